"""The dialog that stops a meter: what is asked, its evidence, its words."""
