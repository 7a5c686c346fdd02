"""Commands that take machines in: rented, found in an account, tried before money runs."""
