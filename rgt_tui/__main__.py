"""``python -m rgt_tui``: the same as ``rgt``."""

import sys

from rgt_tui.cli import main

if __name__ == "__main__":
    sys.exit(main())
