"""The mirror process: copies checkpoints that are published already, reads them back, keeps what is worth keeping.

A process of its own, so that a slow network neither holds up the training nor the next save, and the libraries of an
object store neither draw the training's random numbers nor start threads beside it. It dies with its trainer.
"""

from __future__ import annotations

import io
import os
import socket
import sys
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any, BinaryIO, Dict, List, Mapping, Optional, Sequence

from rgt_train import manifest, wire
from rgt_train.exits import UsageError
from rgt_train.manifest import Damaged
from rgt_train.mirror import place as places
from rgt_train.mirror.bringing import bring, bring_logs, forget, keep_logs
from rgt_train.mirror.opening import open_place
from rgt_train.mirror.owner import Owner, check, take
from rgt_train.mirror.place import MANIFEST, Place
from rgt_train.mirror.room import prune, with_room
from rgt_train.retention import Policy
from rgt_train.store import Store
from rgt_train.writer import die_with_parent


def main() -> None:
    """Serve until the trainer closes the connection."""
    sock = socket.socket(fileno=int(sys.argv[1]))
    die_with_parent(int(sys.argv[2]))
    if hasattr(os, "nice"):
        os.nice(5)  # there is no hurry: the checkpoint is on the local disk
    reader = wire.Reader(sock)
    errands: Optional[Errands] = None
    try:
        while True:
            message = reader.read(block=True)
            assert message is not None, "a blocking read returns a message"
            fields = message[0]
            held = bool(fields["held"])
            try:
                if errands is None:
                    errands = Errands(open_place(fields["url"]), fields["out"], fields["launch"], held=held)
                answer = errands.do(fields)
            except (OSError, Damaged, UsageError) as error:
                answer = {"error": f"{type(error).__name__}: {error}", "usage": isinstance(error, UsageError)}
            wire.send(sock, {**answer, "held": errands.held if errands is not None else held})
    except wire.Closed:
        os._exit(0)


class Errands:
    """What one launch asks of its mirror.

    Args:
        place: The mirror.
        out: The run directory.
        launch: Name of the launch.
        held: Whether it held the mirror already, before this process was started.
    """

    def __init__(self, place: Place, out: str, launch: str, *, held: bool) -> None:
        self._place, self._out, self._launch, self.held = place, out, launch, held
        self._swept = self._logs_failed = False
        self._verbs = {"copy": self._copy, "logs": self._logs, "bring": self._bring, "forget": self._forget}

    def do(self, fields: Dict[str, Any]) -> Dict[str, Any]:
        """Do what is asked and return the answer.

        Raises:
            OSError: The place, or the local disk, failed.
            Damaged: What was read back is not what was copied.
            UsageError: The mirror is not this launch's.
        """
        owner = check(self._place, self._out, self._launch, held=self.held)
        return self._verbs[fields["do"]](fields, owner)

    def _copy(self, fields: Dict[str, Any], owner: Optional[Owner]) -> Dict[str, Any]:
        policy, name, says = Policy(fields["last"], fields["hours"]), fields["name"], []  # type: ignore[var-annotated]
        if owner is not None:
            with_room(self._place, policy, name, says, lambda: take(self._place, self._out, owner))
        self.held = True
        if not self._swept:
            self._place.sweep()
            self._swept = True
        foreign = Foreign(fields["files"], fields["manifest"], fields["keep"]) if "files" in fields else None
        done = copy(self._place, fields["path"], name, policy, says, foreign)
        try:
            keep_logs(self._place, self._out)
            self._logs_failed = False
        except OSError as error:  # the checkpoint is there all the same
            if not self._logs_failed:
                says.append(f"the logs are not mirrored: {type(error).__name__}: {error}")
            self._logs_failed = True
        return {**done, "says": says}

    def _logs(self, fields: Dict[str, Any], owner: Optional[Owner]) -> Dict[str, Any]:
        if owner is not None:
            take(self._place, self._out, owner)
        self.held = True
        keep_logs(self._place, self._out)
        return {"gone": True}

    def _bring(self, fields: Dict[str, Any], owner: Optional[Owner]) -> Dict[str, Any]:
        path, says = bring(self._place, Store(self._out, fields["attempt"]), fields["local"])
        if owner is not None:
            with suppress(OSError):  # a mirror that is full can be read all the same; the next copy notes it
                take(self._place, self._out, owner)
                self.held = True
        return {"path": path, "says": says, "logs": bring_logs(self._place, self._out)}

    def _forget(self, fields: Dict[str, Any], owner: Optional[Owner]) -> Dict[str, Any]:
        if owner is not None:
            take(self._place, self._out, owner)
        self.held = True
        forget(self._place, fields["first"])
        return {}


@dataclass(frozen=True)
class Foreign:
    """A checkpoint of another trainer, whose manifest is not among its files.

    Attributes:
        files: Name in the manifest → path.
        manifest: The manifest.
        keep: Steps that stay in the mirror beside what the policy keeps.
    """

    files: Mapping[str, str]
    manifest: str
    keep: Sequence[int] = ()


def copy(
    place: Place,
    path: str,
    name: str,
    policy: Policy,
    says: Optional[List[str]] = None,
    foreign: Optional[Foreign] = None,
) -> Dict[str, Any]:
    """Copy the checkpoint at `path` and compare every byte; then delete what the policy does not keep.

    Args:
        place: The mirror.
        path: The checkpoint.
        name: What it is called there.
        policy: What stays there; what is copied now stays in any case.
        says: Gets a line for each that was given up for want of room.
        foreign: What it is made of where another trainer wrote it; `path` says nothing then.

    Raises:
        OSError: The place, or the local disk, failed.
        Damaged: What was read back is not what was copied.
    """
    begun, keep = time.monotonic(), foreign.keep if foreign is not None else ()
    with ExitStack() as stack:
        files: Dict[str, BinaryIO] = {}
        try:
            if foreign is None:
                body = manifest.read(path)
                paths = {file: os.path.join(path, file) for file in [*body["files"], MANIFEST]}
            else:
                body, paths = manifest.parse(foreign.manifest.encode(), name), dict(foreign.files)
                files[MANIFEST] = io.BytesIO(foreign.manifest.encode())
            for file, source in paths.items():
                # Opened all at once: it may be pruned here while it is being copied.
                files[file] = stack.enter_context(open(source, "rb", buffering=0))
        except (Damaged, FileNotFoundError):
            return {"gone": True}
        if name not in place.names() or not _is_whole(place, name, body):
            told = [] if says is None else says
            with_room(place, policy, name, told, lambda: _put(place, name, files), keep)
            compare(place, name, body)
    prune(place, policy, name, keep)
    size = sum(facts["size"] for facts in body["files"].values())
    return {"bytes": size, "seconds": time.monotonic() - begun}


def compare(place: Place, name: str, body: Dict[str, Any]) -> None:
    """Read a directory back and compare every byte of it, and its manifest with `body`.

    Raises:
        Damaged: Something differs.
    """
    places.check(place, name, body["files"])
    if manifest_of(place, name) != body:
        raise Damaged(f"{MANIFEST} reads back differently")


def _is_whole(place: Place, name: str, body: Dict[str, Any]) -> bool:
    """Say whether a copy that is there already is what it should be; a dead incarnation may have begun it."""
    try:
        compare(place, name, body)
    except (Damaged, UsageError):
        return False
    return True


def manifest_of(place: Place, name: str) -> Dict[str, Any]:
    """Return the manifest in the directory `name` of a place.

    Raises:
        Damaged: It is altered.
    """
    return manifest.parse(b"".join(place.read(name, MANIFEST)), f"{place.url}/{name}")


def _put(place: Place, name: str, files: Mapping[str, BinaryIO]) -> None:
    for source in files.values():
        source.seek(0)  # an attempt before may have read them
    place.put(name, files)
