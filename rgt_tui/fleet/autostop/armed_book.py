"""What this computer remembers about boxes it has armed, since a machine that has stopped itself cannot say so.

One JSON file per instance, in a directory beside the journal. It outlives rgt, a reboot of this computer, and the box's
running; a person's `--disarm`, or arming anew, ends it.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from rgt_tui import files
from rgt_tui.gate import Target
from rgt_tui.model import Armed, BoxSpec, SelfStop

ARMED = "armed"
"""Name of its directory, beside the audit log."""
MOST_BYTES = 4 << 20

Stamp = tuple[int, int]
"""Modification time in nanoseconds, and inode."""


class ArmedBook:
    """The files, below one directory of mode 0700."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def find(self, spec: BoxSpec) -> SelfStop | None:
        """Return what is remembered of a box's instance; None = it was never armed from here, or that is over.

        A file that cannot be read counts as none: the box itself says what it is armed with.
        """
        try:
            with files.open_regular(self._path(spec), follow=False) as file:
                return msgspec.json.decode(file.read(MOST_BYTES), type=SelfStop)
        except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None

    def stamps(self, specs: Iterable[BoxSpec]) -> dict[str, Stamp]:
        """Return, for each of these boxes that something is remembered of, what changes with its file.

        One look at the directory answers for all of them: hardly any box of a fleet is armed.
        """
        try:
            names = frozenset(path.name for path in self.folder.iterdir())
        except OSError:
            return {}
        found = {}
        for spec in specs if names else ():
            path = self._path(spec)
            if path.name in names and (stamp := self.stamp(spec)) is not None:
                found[spec.name] = stamp
        return found

    def stamp(self, spec: BoxSpec) -> Stamp | None:
        """Return what changes with the file, so that it is read only then; None = there is none."""
        with contextlib.suppress(OSError):
            status = self._path(spec).stat()
            return status.st_mtime_ns, status.st_ino
        return None

    def change(self, spec: BoxSpec, change: Callable[[SelfStop | None], SelfStop | None]) -> SelfStop | None:
        """Replace what is remembered by what `change` makes of it, and return that; None forgets it.

        Raises:
            OSError: it cannot be written; it is as it was.
            TimeoutError: another rgt holds it.
        """
        path = self._path(spec)
        with files.alone(path):
            before = self.find(spec)
            after = change(before)
            if after is None:
                path.unlink(missing_ok=True)
            elif after != before:
                files.publish(path, msgspec.json.encode(after))
        return after

    def arm(self, spec: BoxSpec, armed: Armed) -> SelfStop:
        """Remember that a box was armed: what was known of an earlier arming in the same mode is over.

        Raises:
            OSError: it cannot be written.
            TimeoutError: another rgt holds it.
        """

        def change(before: SelfStop | None) -> SelfStop:
            same_life = before is not None and before.told_at is None and before.off_at is None
            others = [one for one in before.armed if one.mode != armed.mode] if before and same_life else []
            return SelfStop(armed=(*(one for one in others if one.boot == armed.boot), armed))

        found = self.change(spec, change)
        assert found is not None
        return found

    def forget(self, spec: BoxSpec) -> None:
        """The box was disarmed by a person.

        Raises:
            OSError: it cannot be taken away.
            TimeoutError: another rgt holds it.
        """
        self.change(spec, lambda _: None)

    def _path(self, spec: BoxSpec) -> Path:
        ref = spec.provider
        if ref is not None:
            name = Target(kind=ref.kind, account=ref.account, instance=ref.instance).file_name
        else:
            name = hashlib.sha256(f"box\0{spec.name}".encode(errors="surrogatepass")).hexdigest()[:32]
        return self.folder / f"{name}.json"
