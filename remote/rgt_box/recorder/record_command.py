"""The ``record`` verb: start, stop or be the recorder of this host."""

from __future__ import annotations

import sys

from rgt_box import bytecode, jsonline, options, place
from rgt_box.recorder import control

HELP = """
usage: record [--stop] [--status] [--list] [--foreground] [--idle-hours N]

Start the detached recorder of this host (its state is in RGT_STATE_DIR, else below ~/.cache/rgt), if none runs, and
print its status as a JSON line. There is never more than one. The ring's size is RGT_RING_BYTES (64 MiB).

  --stop          ask it to stop, and wait until it has
  --status        print the status of the running one; exit 1 when there is none
  --list          print every recorder of this user on this host as a JSON line, other state directories included
  --foreground    be the recorder, in this process
  --idle-hours N  stop by itself when nobody has watched for N hours (72)
"""


def main(argv: list[str]) -> int:
    """Run the verb; returns the exit status."""
    spec = dict.fromkeys(("--stop", "--status", "--list", "--foreground"), "flag")
    spec["--idle-hours"] = "float"
    found = options.parse_or_exit(argv, spec, HELP)
    folder = place.state_dir()
    if found["foreground"]:
        from rgt_box.recorder import daemon  # here: who only starts it does without all the samplers

        bytecode.begin_anew("record", *argv)
        return daemon.serve(folder, found["idle-hours"] or daemon.IDLE_HOURS)
    if found["list"]:
        from rgt_box.recorder import recorder_list  # here: only rgt doctor asks

        for recorder in recorder_list.list_recorders():
            jsonline.say(recorder)
        return 0
    if found["stop"]:
        if control.stop(folder):
            return 0
        print("the recorder did not stop", file=sys.stderr)
        return 1
    state = control.status(folder) if found["status"] else control.ensure(folder, found["idle-hours"])
    if state is None:
        print(control.failure(folder) or "no recorder is running", file=sys.stderr)
        return 1
    jsonline.say(state)
    return 0
