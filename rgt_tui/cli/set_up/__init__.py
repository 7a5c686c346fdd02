"""Commands that set a fleet up: a first file, boxes in it, trust in it, the check of all of it."""
