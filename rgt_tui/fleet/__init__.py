"""One session per box, merged into one immutable fleet state; the engine behind every screen and command."""
