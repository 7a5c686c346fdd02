"""What several rgt on one machine need of the files that they share."""
