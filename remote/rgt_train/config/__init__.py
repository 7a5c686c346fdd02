"""Configuration: one flat file, one list of fields, one place where they meet the command line."""
