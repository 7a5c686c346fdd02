"""Logging in: keys, agents, passwords, and the person who is asked for what no file has."""
