"""One file a correction; each opens with its formula, its source and the test that pins it."""
