"""The Textual front end. It draws what the fleet knows and does no input or output of its own."""
