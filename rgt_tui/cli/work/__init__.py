"""The commands that start work on a box, look after it, and open the box to a person's own programs."""
