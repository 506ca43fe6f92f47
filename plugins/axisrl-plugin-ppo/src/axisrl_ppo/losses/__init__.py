"""One file a loss; each opens with its formula, its paper and the test that pins it."""
