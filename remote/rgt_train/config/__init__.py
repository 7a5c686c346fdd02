"""Configuration: one list of fields, small YAML files, one place where they meet the command line."""
