"""Where machines are rented: a module for each platform, and what they share."""
