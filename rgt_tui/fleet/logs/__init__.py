"""Logs that somebody reads: all of their lines kept compactly, older ones fetched from the box, found there."""
