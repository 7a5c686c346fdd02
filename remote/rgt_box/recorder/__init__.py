"""History that outlives the client: a ring on disk, the recorder that fills it, the readers that resume."""
