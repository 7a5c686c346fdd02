"""One module per screen. Screens are imported when they are opened, never before the first frame."""
