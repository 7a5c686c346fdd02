"""Many processes of one run: joining them, agreeing, proving that they are in step, and sharded checkpoints."""
