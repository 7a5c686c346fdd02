"""The ``remove`` verb: take rgt off this box, or only its older agents; never jobs, results or checkpoints."""

from __future__ import annotations

import os
import re
import stat
import sys

from rgt_box import files, jsonline, landing, options, place
from rgt_box.recorder import control, state_files
from rgt_box.verbs import namers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator

HELP = """
usage: remove [--old] [--dry-run] [--job DIR]...

Stop the recorder of this host, and remove its history, what rgt keeps in the state directory, and the files of agent
and trainer. What else stands there is left. Job directories, results and checkpoints are not touched.

Nothing is removed while a queue runs or waits here, or another rgt watches. A file that a process, a Slurm job, a Pod,
cron or the batch script of a job that is not through can name is kept. So are all agents where other hosts may share
them, or where one of these cannot be asked.

  --old       only agents of other versions than this one
  --dry-run   only say what would be removed
  --job DIR   a job directory that may name an agent

Prints a JSON line per thing: path, bytes, what, kept (why it stays; null = it goes); then {"refused": [...], "failed":
[...], "bytes": removed}.

Exit status: 0 all of it is gone (or would be), 1 something stays, 2 the command line is wrong.
"""
ZIPAPP = re.compile(r"rgt-(box|train)-[0-9a-f]{16}\.pyz$")
STATE = re.compile(
    r"(?:recorder\.(?:lock|json)|recorder-config\.json|watch-\d+\.json|pynvml-.*\.pyc|hashes\.jsonl|mirror-.*\.lock"
    r"|found\.json|xid\.json|host\.json|env-\d+|probe)(?:\.tmp-\d+)?|rgt-(?:box|train)-.*\.tmp"
)
RING = re.compile(r"\d+\.seg|spare-\d+")


def main(argv: list[str]) -> int:
    """Run the verb; returns the exit status."""
    found = options.parse_or_exit(argv, {"--old": "flag", "--dry-run": "flag", "--job": "list"}, HELP)
    state = place.state_dir()
    packed = list(zipapps([landing.home(), *landing.spares()]))
    naming, doubts = namers.look(packed, found["job"])
    refused = [] if found["old"] else list(live(naming, found["job"]))
    shared = namers.sharing(landing.home(), state)
    own = os.path.basename(place.root())
    recorder = 0 if found["old"] else recorder_of(state)  # it is stopped, and names nothing then
    if not refused and not found["old"] and not found["dry-run"] and not control.stop(state):
        refused = ["the recorder of this host did not stop"]
    rows = [] if found["old"] else [*kept_by_rgt(state, bool(shared)), *others(state)]
    for path in packed:
        name = os.path.basename(path)
        if not found["old"] or (name.startswith("rgt-box-") and name != own):
            who = [namer.who for namer in naming if namer.file == name and not 0 < namer.pid == recorder]
            in_home = path.startswith(landing.home() + os.sep)
            doubt = ([shared] if shared and in_home else []) + doubts
            why = "; ".join(["named by " + text for text in who[:3]] or doubt[:1])
            rows.append(row(path, "the agent" if name.startswith("rgt-box-") else "the trainer", why or None))
    failed: list[str] = []
    gone = 0
    for item in rows:
        if refused or found["dry-run"] or item["kept"] or remove(item["path"], failed):
            gone += 0 if item["kept"] or refused else item["bytes"]
        sys.stdout.buffer.write(jsonline.line(item))
    if not refused and not found["dry-run"] and not found["old"]:
        for folder in folders(state):
            _rmdir(folder)
    sys.stdout.buffer.write(jsonline.line({"refused": refused, "failed": failed, "bytes": gone}))
    return 1 if refused or failed or any(item["kept"] for item in rows) else 0


def recorder_of(state: str) -> int:
    """Return the pid of this host's recorder; 0 where none runs."""
    found = control.status(state) or {}
    return int(found.get("pid") or 0)


def live(naming: list[namers.Namer], jobs: list[str]) -> Iterator[str]:
    """Yield what speaks against removing anything: a queue, or somebody who watches."""
    for job in jobs:
        if files.is_locked(os.path.join(os.path.expanduser(job), "runner.lock")):
            yield "the queue in %s is running" % job
    for namer in naming:
        if namer.verb in ("slurm", "pod") and namer.file.startswith("rgt-box-"):
            yield "%s executes the agent when its turn comes" % namer.who
        elif namer.verb == "watch":
            yield "another rgt watches this box (%s): quit it first" % namer.who
        elif namer.verb not in ("", "record") and namer.file.startswith("rgt-box-"):
            yield "the agent is at work: %s" % namer.who


def zipapps(places: list[str]) -> Iterator[str]:
    """Yield the files of agent and trainer in these directories."""
    for folder in places:
        for name in _names(folder):
            path = os.path.join(folder, name)
            if ZIPAPP.match(name) and _is_own(path, stat.S_ISREG):
                yield path


def kept_by_rgt(state: str, shared: bool) -> Iterator[dict[str, Any]]:
    """Yield what the recorder and the verbs have left: the history as one row, every other file by itself.

    Args:
        state: This host's state directory.
        shared: Other hosts may have the home directory, too: what stands right in rgt's, as an earlier rgt left it
            without a name, may be theirs then, as where a recorder that is not ours still writes there.
    """
    old = landing.home()
    theirs = shared or files.is_locked(os.path.join(old, place.LOCK))
    for folder in dict.fromkeys([*state_files.places(state), *([] if theirs else [old]), *landing.spares()]):
        ring = os.path.join(folder, "ring")
        if _is_own(ring, stat.S_ISDIR) and _names(ring):
            yield row(ring, "the history")
        for name in _names(folder):
            path = os.path.join(folder, name)
            if STATE.fullmatch(name) and (_is_own(path, stat.S_ISREG) or _is_own(path, stat.S_ISFIFO)):
                yield row(path, "its notes")


def others(state: str) -> Iterator[dict[str, Any]]:
    """Yield the histories of other hosts in this home directory: theirs to remove, and a doubt about the agents."""
    for name in _names(landing.home()):
        path = os.path.join(landing.home(), name)
        if name.startswith("host-") and path != state and _is_own(path, stat.S_ISDIR):
            size = row(os.path.join(path, "ring"), "")["bytes"]
            yield dict(row(path, "the history", "it is that of %s" % name[5:]), bytes=size)


def folders(state: str) -> list[str]:
    """Return the directories that were made for all this, the inner ones first; only empty ones will go."""
    found = dict.fromkeys([*state_files.places(state), landing.home(), *landing.spares()])
    return [path for folder in found for path in (os.path.join(folder, "ring"), folder)]


def row(path: str, what: str, kept: str | None = None) -> dict[str, Any]:
    """Return what is printed of one thing."""
    paths = [os.path.join(path, name) for name in _names(path) if RING.fullmatch(name)] or [path]
    size = 0
    for one in paths:
        try:
            size += os.lstat(one).st_blocks * 512
        except OSError:
            pass
    return {"path": path, "bytes": size, "what": what, "kept": kept}


def remove(path: str, failed: list[str]) -> bool:
    """Remove a file, or the segments of a ring."""
    inside = [os.path.join(path, name) for name in _names(path) if RING.fullmatch(name)]
    try:
        for one in inside if _is_own(path, stat.S_ISDIR) else [path]:
            os.unlink(one)
    except FileNotFoundError:
        pass
    except OSError as error:
        failed.append("%s: %s" % (error.filename or path, error.strerror))
        return False
    return True


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _is_own(path: str, kind: Any) -> bool:
    """Tell whether a path is of a kind and this user's, and no link to somewhere else."""
    try:
        there = os.lstat(path)
    except OSError:
        return False
    return bool(kind(there.st_mode)) and there.st_uid == os.geteuid()


def _rmdir(folder: str) -> None:
    try:
        os.rmdir(folder)
    except OSError:
        pass  # something of somebody else's is in it, or it has gone already
