"""The embedded fleet: three sandboxed boxes on loopback that really train, and the stories they tell."""
