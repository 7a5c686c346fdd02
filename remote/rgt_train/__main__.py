"""``python -m rgt_train``."""

from __future__ import annotations

import os
import sys

from rgt_train.cli import main


def _end(code: int) -> None:
    """Flush and exit; a reader that is gone must not turn success into exit code 120."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    if os.environ.get("WORLD_SIZE", "") not in ("", "1"):
        # Threads that torch.distributed leaves behind abort some processes in the interpreter's own end ("terminate
        # called without an active exception"), and torchrun then calls a finished run failed. All is on disk here.
        os._exit(code)
    sys.exit(code)


def run() -> None:
    """Run the command line and end the process; what the zipapp calls, too."""
    _end(main())


if __name__ == "__main__":
    run()
