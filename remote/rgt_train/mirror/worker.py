"""The mirror process: copies checkpoints that are published already, reads them back, keeps what is worth keeping.

A process of its own, so that a slow network neither holds up the training nor the next save, and the libraries of an
object store neither draw the training's random numbers nor start threads beside it. It dies with its trainer.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from contextlib import ExitStack
from typing import Any, BinaryIO, Callable, Dict, Optional

from rgt_train import manifest, retention, wire
from rgt_train.exits import UsageError
from rgt_train.manifest import Damaged
from rgt_train.mirror.bringing import bring, forget
from rgt_train.mirror.opening import open_place
from rgt_train.mirror.place import MANIFEST, Place, bests, check, steps
from rgt_train.retention import Item, Policy
from rgt_train.store import Store
from rgt_train.writer import die_with_parent


def main() -> None:
    """Serve until the trainer closes the connection."""
    sock = socket.socket(fileno=int(sys.argv[1]))
    die_with_parent(int(sys.argv[2]))
    if hasattr(os, "nice"):
        os.nice(5)  # there is no hurry: the checkpoint is on the local disk
    reader = wire.Reader(sock)
    place: Optional[Place] = None
    try:
        while True:
            message = reader.read(block=True)
            assert message is not None, "a blocking read returns a message"
            fields = message[0]
            try:
                place = place or open_place(fields["url"])
                answer = _VERBS[fields["do"]](place, fields)
            except (OSError, Damaged, UsageError) as error:
                answer = {"error": f"{type(error).__name__}: {error}", "usage": isinstance(error, UsageError)}
            wire.send(sock, answer)
    except wire.Closed:
        os._exit(0)


def copy(place: Place, path: str, name: str, policy: Policy) -> Dict[str, Any]:
    """Copy the checkpoint at `path` and compare every byte; then delete what the policy does not keep.

    Raises:
        OSError: The place, or the local disk, failed.
        Damaged: What was read back is not what was copied.
    """
    begun = time.monotonic()
    with ExitStack() as stack:
        files: Dict[str, BinaryIO] = {}
        try:
            body = manifest.read(path)
            for file in [*body["files"], MANIFEST]:
                # Opened all at once: it may be pruned here while it is being copied.
                files[file] = stack.enter_context(open(os.path.join(path, file), "rb", buffering=0))
        except (Damaged, FileNotFoundError):
            return {"gone": True}
        if name not in place.names() or not _is_whole(place, name, body):
            place.put(name, files)
            compare(place, name, body)
    prune(place, policy)
    size = sum(facts["size"] for facts in body["files"].values())
    return {"bytes": size, "seconds": time.monotonic() - begun}


def compare(place: Place, name: str, body: Dict[str, Any]) -> None:
    """Read a directory back and compare every byte of it, and its manifest with `body`.

    Raises:
        Damaged: Something differs.
    """
    check(place, name, body["files"])
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


def prune(place: Place, policy: Policy) -> None:
    """Delete what the policy does not keep: the newest ``best`` stays, and the steps that it keeps here too."""
    names = place.names()
    known = steps(names)
    if policy.hours:
        known = [_dated(place, item) for item in known]
    for item in [*retention.doomed(known, policy), *bests(names)[:-1]]:
        place.drop(item.name)


def _dated(place: Place, item: Item) -> Item:
    try:
        at = float(manifest_of(place, item.name).get("time", 0.0))
    except (Damaged, UsageError, OSError):
        at = 0.0
    return Item(item.step, item.attempt, item.serial, item.name, at)


def _copy(place: Place, fields: Dict[str, Any]) -> Dict[str, Any]:
    return copy(place, fields["path"], fields["name"], Policy(fields["last"], fields["hours"]))


def _bring(place: Place, fields: Dict[str, Any]) -> Dict[str, Any]:
    path, says = bring(place, Store(fields["out"], fields["attempt"]), fields["local"])
    return {"path": path, "says": says}


def _forget(place: Place, fields: Dict[str, Any]) -> Dict[str, Any]:
    forget(place, fields["first"])
    return {}


_VERBS: Dict[str, Callable[[Place, Dict[str, Any]], Dict[str, Any]]] = {
    "copy": _copy,
    "bring": _bring,
    "forget": _forget,
}
