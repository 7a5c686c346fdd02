"""Work on a box, asked for by a person: its agent's verbs, one job, and queues over several boxes."""
