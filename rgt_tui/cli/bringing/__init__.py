"""``rgt push``, ``rgt secret``, ``rgt mirrors``: what a run needs on a box, brought there."""
