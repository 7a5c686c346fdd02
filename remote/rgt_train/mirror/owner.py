"""Whose mirror it is: two runs with one URL would delete each other's checkpoints and resume from them.

A run gets a name when its mirror is first used, kept in ``OUT/run-id`` and, with the launch that writes, in the file
``owner.json`` of the mirror. A launch with an empty directory takes the name over: that is how a wiped disk comes home.
A launch whose directory belongs to another run is refused. The last launch that came holds the mirror; one that still
runs somewhere else is told so at its next copy, and changes nothing there any more.
"""

from __future__ import annotations

import json
import os
import socket
import time
from dataclasses import asdict, dataclass
from typing import Optional

from rgt_train import reading
from rgt_train.durable import replace_file
from rgt_train.exits import UsageError
from rgt_train.mirror.place import OWNER, Place
from rgt_train.store import Store

ID_FILE = "run-id"
PROVEN = os.path.join(".rgt", "proven")
"""Where the checksums of another trainer's checkpoints are, in the run directory."""


@dataclass(frozen=True)
class Owner:
    """Who holds a mirror.

    Attributes:
        run: Name of the run, the same for all its launches.
        launch: Name of the launch that may write.
        where: Host and run directory of that launch, for a person.
        since: When it came, seconds since 1970.
    """

    run: str
    launch: str
    where: str
    since: float

    def encode(self) -> bytes:
        """Return it as the content of a file."""
        return (json.dumps(asdict(self), sort_keys=True) + "\n").encode()


def check(place: Place, out: str, launch: str, *, held: bool) -> Optional[Owner]:
    """See that the run in `out` may write to `place`.

    Args:
        place: The mirror.
        out: The run directory.
        launch: Name of this launch.
        held: Whether this launch held the mirror before.

    Returns:
        What is to be noted with `take`; None where it is noted already.

    Raises:
        UsageError: It is the mirror of another run, or another launch has come meanwhile.
        OSError: The place does not answer.
    """
    noted = _decode(place.note(), f"{place.url}/{OWNER}")
    mine = _own_id(out)
    if noted is not None and noted.launch == launch:
        return None
    if noted is not None and held:
        raise UsageError(
            f"another launch of this run took the mirror {place.url} over: {noted.where}. One of the two must end; "
            "nothing more is copied by this one"
        )
    if noted is not None and mine != noted.run and (mine or _has_checkpoints(out)):
        raise UsageError(
            f"the mirror {place.url} belongs to another run ({noted.run}, last held by {noted.where}): each run needs "
            f"a mirror of its own. If it is this run's all the same, write that name into {os.path.join(out, ID_FILE)}"
        )
    run = noted.run if noted is not None else mine or os.urandom(8).hex()
    return Owner(run, launch, f"{socket.gethostname()}:{out}", round(time.time(), 3))


def take(place: Place, out: str, owner: Owner) -> None:
    """Note `owner` here and there.

    Raises:
        OSError: It could not be noted.
    """
    if _own_id(out) != owner.run:
        replace_file(os.path.join(out, ID_FILE), f"{owner.run}\n".encode())
    place.mark(owner.encode())


def _own_id(out: str) -> str:
    try:
        return reading.content(os.path.join(out, ID_FILE)).decode(errors="replace").strip()
    except OSError:
        return ""


def _has_checkpoints(out: str) -> bool:
    store = Store(out, 0)
    return bool(store.items()) or reading.is_dir(store.best) or reading.is_dir(os.path.join(out, PROVEN))


def _decode(raw: bytes, where: str) -> Optional[Owner]:
    if not raw:
        return None
    try:
        body = json.loads(raw)
        return Owner(str(body["run"]), str(body["launch"]), str(body["where"]), float(body["since"]))
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f"{where} cannot be understood ({error!r}): it says whose mirror it is; remove it if it is this run's"
        ) from error
