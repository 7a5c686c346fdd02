"""Commands that name what went wrong: triage of logs, and the handbook."""
