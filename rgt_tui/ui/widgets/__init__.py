"""Widgets that draw line by line, and the pure functions that make their lines."""
