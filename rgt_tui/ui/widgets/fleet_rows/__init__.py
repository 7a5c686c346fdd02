"""The fleet screen: its table, and the panes below it."""
