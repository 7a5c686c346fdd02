"""The ``unseal`` verb: open the seal that a billing call was made under, or for which none was made."""

from __future__ import annotations

import os
import signal
import sys
import time

from rgt_box import files, jsonline, ownership, place, procstat
from rgt_box.commands import file_tree, seal

HELP = """
usage: unseal NONCE

Open the seal that answered with this nonce: queue runners may begin again.

Prints {"opened"}: false when it had been opened before, by its time or by another.

Exit status: 0 it is open, 2 wrong command line, 3 it does not open (it does so by itself).

Example: unseal 0123456789abcdef0123456789abcdef
"""
OPENED_WITHIN = 10.0


def main(argv: list[str]) -> int:
    """Run the verb; returns the exit status."""
    words, _ = file_tree.parse_words(argv, {}, HELP)
    if len(words) != 1:
        return file_tree.refuse("unseal: which NONCE?")
    path = os.path.join(place.state_dir(), seal.LOCK)
    # Who may write to the file says which process is to end.
    holder = files.lock_holder(path) if ownership.is_ours(path) and files.is_locked(path) else {}
    pid, ticks = holder.get("pid"), holder.get("ticks")
    opened = holder.get("nonce") == words[0] and isinstance(pid, int) and procstat.is_alive(pid, ticks)
    if opened:
        try:
            os.kill(int(pid or 0), signal.SIGTERM)
        except ProcessLookupError:
            opened = False
        deadline = time.monotonic() + OPENED_WITHIN
        while procstat.is_alive(int(pid or 0), ticks) and time.monotonic() < deadline:
            time.sleep(0.01)
        if procstat.is_alive(int(pid or 0), ticks):
            print("the seal does not open; it does so by itself", file=sys.stderr)
            return seal.HELD
    sys.stdout.buffer.write(jsonline.line({"opened": opened}))
    sys.stdout.buffer.flush()
    return seal.OK
