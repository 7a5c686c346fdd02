"""A second copy of the checkpoints, where it outlives the machine: a directory, or anything fsspec has a URL for."""
