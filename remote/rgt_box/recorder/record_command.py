"""The ``record`` verb: start, stop or be the recorder of this host."""

from __future__ import annotations

import os
import signal
import sys
import time

from rgt_box import bytecode, files, jsonline, options, place, procstat
from rgt_box.recorder import control, state_files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rgt_wire import JsonObject

HELP = """
usage: record [--stop] [--status] [--list] [--foreground] [--idle-hours N]
       record --taken-away SOURCE [--in S]

Start the detached recorder of this host (its state is in RGT_STATE_DIR, else below ~/.cache/rgt), if none runs, and
print its status as a JSON line. There is never more than one. The ring's size is RGT_RING_BYTES (64 MiB).

  --stop          ask it to stop, and wait until it has
  --status        print the status of the running one; exit 1 when there is none
  --list          print every recorder of this user on this host as a JSON line, other state directories included
  --foreground    be the recorder, in this process
  --idle-hours N  stop by itself when nobody has watched for N hours (72)
  --taken-away SOURCE  for a hook that catches the platform's signal: SOURCE takes this machine away; ask every run that
                  saves on SIGTERM to save, and let the recorder report it
  --in S          seconds until then (default: unknown)
"""


def main(argv: list[str]) -> int:
    """Run the verb; return the exit status."""
    spec = dict.fromkeys(("--stop", "--status", "--list", "--foreground"), "flag")
    spec.update({"--idle-hours": "float", "--taken-away": "str", "--in": "float"})
    found = options.parse_or_exit(argv, spec, HELP)
    folder = place.state_dir()
    if found["taken-away"]:
        from rgt_box.recorder import preemption

        ends = None
        if found["in"] is not None:
            ends = round(time.time() + found["in"], 3)
        notice = preemption.make_notice(found["taken-away"], "signal", ends)
        preemption.announce_notice(folder, notice, [])
        control.signal_recorder(folder, signal.SIGHUP)
        print(preemption.notice_text(state_files.read_notice(folder) or notice))
        return 0
    if found["foreground"]:
        from rgt_box.recorder import (
            daemon,
        )  # here: starting it does not need the samplers

        bytecode.restart_without_source("record", *argv)
        return daemon.run_recorder(folder, found["idle-hours"] or daemon.IDLE_HOURS)
    if found["list"]:
        for recorder in list_recorders():
            jsonline.print_frame(recorder)
        return 0
    if found["stop"]:
        if control.stop_recorder(folder):
            return 0
        print("the recorder did not stop", file=sys.stderr)
        return 1
    if found["status"]:
        state = control.live_status(folder)
    else:
        state = control.ensure_running(folder, found["idle-hours"])
    if state is None:
        print(control.last_failure(folder) or "no recorder is running", file=sys.stderr)
        return 1
    jsonline.print_frame(state)
    return 0


def list_recorders() -> list[JsonObject]:
    """Return each live recorder of this user as a dict, sorted by state directory.

    A process counts only if its open lock file contains its own pid and start time. Nothing is
    inferred from a pid or an environment variable. A recorder whose directory was removed is left
    out, as it will exit.

    Returns:
        ``pid``, ``folder`` (the state directory), ``own`` (it is the caller's), ``watched`` (a
        client is connected), ``armed`` (an autostop, a lease or a sink), ``jobs`` (queues it
        records that are not done), and ``unwatched_s`` (seconds since the last client left; None
        while one is connected or when it is unknown).
    """
    own = {os.path.realpath(where) for where in state_files.state_folders(place.state_dir())}
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            folder = _state_directory(int(name))
        else:
            folder = None
        if folder is not None:
            found.append(_describe_recorder(int(name), folder, os.path.realpath(folder) in own))
    return sorted(found, key=lambda item: (str(item["folder"]), int(item["pid"])))


def _state_directory(pid: int) -> str | None:
    """Return the directory whose recorder lock this process holds; None if it is not a recorder."""
    try:
        if os.stat(
            "/proc/%d" % pid
        ).st_uid != os.getuid() or "--foreground" not in procstat.read_cmdline(pid):
            return None
        # Readable only for processes of the same user (ptrace(2) access check).
        descriptors = os.listdir("/proc/%d/fd" % pid)
    except OSError:
        return None
    for descriptor in descriptors:
        try:
            path = os.readlink("/proc/%d/fd/%s" % (pid, descriptor))
        except OSError:
            continue
        if os.path.basename(path) != state_files.LOCK:
            continue
        holder = files.lock_holder(path)
        if holder.get("pid") == pid and procstat.is_alive(pid, holder.get("ticks")):
            return os.path.dirname(path)
    return None


def _describe_recorder(pid: int, folder: str, own: bool) -> JsonObject:
    watched = control.has_live_watcher(folder)
    since = (state_files.read_status(folder, state_files.STATUS) or {}).get("unwatched_since")
    unwatched: float | None = None
    if not watched and isinstance(since, (int, float)):
        unwatched = round(max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - since), 1)
    queues = state_files.read_json(folder, state_files.KNOWN_QUEUES)
    return {
        "pid": pid,
        "folder": folder,
        "own": own,
        "watched": watched,
        "armed": state_files.is_there(folder, (state_files.ARMED, state_files.SINK)),
        "jobs": sum(isinstance(queue, dict) and not queue.get("done") for queue in queues.values()),
        "unwatched_s": unwatched,
    }
