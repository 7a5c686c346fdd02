"""The history on disk: one SQLite file with what was seen, so that a restart shows it at once."""
