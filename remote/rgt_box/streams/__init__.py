"""The watch channel: followers with cursors, the bounded way out, and the loop between them."""
