"""``python -m rgt_train``."""

from __future__ import annotations

import os
import sys

from rgt_train.cli import main


def _flush_and_exit(code: int) -> None:
    """Flush and exit; a closed pipe must not turn success into exit code 120."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    if os.environ.get("WORLD_SIZE", "") not in ("", "1"):
        # Threads left by torch.distributed can abort a process while the interpreter shuts down
        # ("terminate called without an active exception"), and torchrun then reports a finished run
        # as failed. All data is on disk here.
        os._exit(code)
    sys.exit(code)


def run() -> None:
    """Run the command line and end the process; also the entry point of the zipapp."""
    _flush_and_exit(main())


if __name__ == "__main__":
    run()
