"""Pulling results off a box: what is wanted, by which way it comes, its streams, and the look at what came."""
