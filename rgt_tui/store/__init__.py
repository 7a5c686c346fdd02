"""History in SQLite: what earlier runs of rgt saw of each box, its runs and its spend."""
