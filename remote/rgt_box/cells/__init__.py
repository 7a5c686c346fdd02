"""The queue of cells: files, checks, the runner, durable copies."""
