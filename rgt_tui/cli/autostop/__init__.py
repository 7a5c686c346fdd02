"""``rgt autostop``, ``lease``, ``keep`` and ``notify``: a box that stops itself, and calls without the laptop."""
