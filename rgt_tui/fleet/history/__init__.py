"""What was, as the history has kept it: its keeper, an earlier moment, the report of a night."""
