"""Small verbs that prove, copy and search what is on a box."""
