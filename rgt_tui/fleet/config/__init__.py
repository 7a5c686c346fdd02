"""The fleet file: where it is found, what it may say, and how a box is added to it."""
