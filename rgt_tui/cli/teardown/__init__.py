"""The commands that bring results home, stop a meter, and say what was done and what it can still cost."""
