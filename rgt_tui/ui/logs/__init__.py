"""Reading a log: what is looked for in its lines, which of them are shown, and when they were written."""
