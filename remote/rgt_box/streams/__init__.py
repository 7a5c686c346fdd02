"""The watch channel: samples, followers of files with cursors, the bounded way out, and the loop between them."""
