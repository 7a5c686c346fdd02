"""Boxes that cannot run the agent: read by a plain POSIX shell, over a command's pipes or a terminal."""
