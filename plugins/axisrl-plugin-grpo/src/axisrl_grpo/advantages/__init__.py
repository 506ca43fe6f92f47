"""One file an advantage; each opens with its formula, its paper and the test that pins it."""
