"""What lies on a box that could be lost, what proves that it has a copy, and what a box holds still for a call."""

from __future__ import annotations

import msgspec

from rgt_tui.model.protocol import Name


class ResultGroup(msgspec.Struct, frozen=True, kw_only=True):
    """The files of one directory of a box, without those of directories below it that are groups of their own."""

    path: Name
    """Absolute, on the box."""
    owner: str = ""
    """``cell NAME``, ``run NAME``, ``results GLOB``, or ``job DIR`` for the logs and the state of a queue; empty =
    nobody's."""
    files: int = 0
    bytes: int = 0
    newest: float = 0.0
    """Newest ctime, by the box's clock."""
    newest_path: Name = ""
    fingerprint: str = ""
    """SHA-256 over path, size, mtime, ctime and inode of every file: the same as long as none of them changes, wherever
    they are grouped alike. docs/agent.md says how it is made."""
    problem: str | None = None
    """Why not all of it could be looked at; such a group proves nothing."""


class Skipped(msgspec.Struct, frozen=True, kw_only=True):
    """Files that count as nobody's result, and the rule that says so: caches, packages, the system's own."""

    rule: str
    files: int = 0
    """0 where nobody counted them: of packages, and of storage that outlives the instance."""
    bytes: int = 0


class Results(msgspec.Struct, frozen=True, kw_only=True):
    """Everything on a box that a verb could take: the answer of the agent's ``results``."""

    at: float
    """The box's clock."""
    generation: str
    """SHA-256 over the fingerprints of all groups."""
    since: float | None = None
    """Files whose ctime is older came with the image and are not listed; None = unknown, so all are listed."""
    groups: tuple[ResultGroup, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    problems: tuple[str, ...] = ()
    """What could not be looked at: then nothing says that the list is whole."""


class Seal(msgspec.Struct, frozen=True, kw_only=True):
    """What the box holds still for one billing call: no queue runner starts a cell under it."""

    nonce: str
    generation: str
    """Of the `Results` at the moment of sealing."""
    at: float
    """The box's clock."""
    seconds: float
    """How long it holds, unless it is opened before."""
    busy: tuple[str, ...] = ()
    """Why the box is not quiet, seen in the last look under the seal; empty = it is."""


class CopyProof(msgspec.Struct, frozen=True, kw_only=True):
    """A verified copy of one directory of a box, off the box or on storage that outlives it."""

    path: Name
    """Of the directory on the box."""
    fingerprint: str
    """`ResultGroup.fingerprint` at the time of the copy: another one now means that the box has newer files."""
    where: str
    """The directory of the copy."""
    files: int = 0
    bytes: int = 0
    checkpoints: int = 0
    """How many of them were loaded."""
    errors: tuple[tuple[str, str], ...] = ()
    """``(path, reason)`` of what the copy lacks or holds damaged; empty = it was verified whole."""
    checked: float | None = None
    """When the copy itself was last looked at, by `rgt_tui.model.evidence.steady`."""
