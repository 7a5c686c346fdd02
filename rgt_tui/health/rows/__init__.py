"""What the rows of the condition table read and say, by subject."""
