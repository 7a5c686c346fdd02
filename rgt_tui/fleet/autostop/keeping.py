"""Put a box's own stop off, or take it back; and the audit log's lines about it, written before anything is sent."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from rgt_tui.fleet.autostop import autostop_verbs
from rgt_tui.fleet.autostop.armed_book import ArmedBook
from rgt_tui.fleet.autostop.autostop_verbs import Way
from rgt_tui.fleet.fleet_source import GateClosed
from rgt_tui.gate import AuditEntry, AuditEvent, AuditLog
from rgt_tui.model.autostop import AutostopStatus
from rgt_tui.model.box import BoxSpec
from rgt_tui.model.evidence import Verb
from rgt_tui.profiles.readings import age


class Keeping:
    """Puts off and takes back, in writing.

    Args:
        spec: The box.
        audit: Where it is written down.
        book: What is remembered of it.
        clock: Epoch seconds.
    """

    def __init__(
        self, spec: BoxSpec, audit: AuditLog, book: ArmedBook, *, clock: Callable[[], float]
    ) -> None:
        self._spec = spec
        self._audit = audit
        self._book = book
        self._clock = clock

    async def keep(self, way: Way, seconds: float) -> AutostopStatus:
        """Put the box's stop off.

        Raises:
            GateClosed: it is not armed, so there is nothing to put off.
            BoxError: whether it was put off is not known.
            AuditFailed: it cannot be written down; nothing was sent.
        """
        before = await autostop_verbs.ask_status(way)
        if not is_armed(before):
            raise GateClosed((f"{self._spec.name} is not armed: there is nothing to put off",))
        boot = boot_of(before)
        self.note(AuditEvent.REQUESTED, boot, f"keep for {age(seconds)}: puts its own stop off")
        after = await autostop_verbs.keep(way, seconds)
        self.note(AuditEvent.KEPT, boot, f"kept for {age(seconds)}")
        return after

    async def disarm(self, way: Way) -> AutostopStatus:
        """Take back what a box is armed with. One that is not armed is asked all the same: it forgets what it has.

        Raises:
            BoxError: whether it is still armed is not known.
            AuditFailed: it cannot be written down; nothing was sent.
        """
        boot = boot_of(await autostop_verbs.ask_status(way))
        self.note(AuditEvent.REQUESTED, boot, "disarm")
        after = await autostop_verbs.disarm(way)
        with contextlib.suppress(OSError, TimeoutError):  # it is disarmed, whatever this disk says
            self._book.forget(self._spec)
        self.note(AuditEvent.DISARMED, boot, "disarmed")
        return after

    def note(self, event: AuditEvent, boot: str, text: str, typed: str = "") -> None:
        """Write one line.

        Raises:
            AuditFailed: it is not there.
        """
        ref = self._spec.provider
        self._audit.record(
            AuditEntry(
                at=self._clock(),
                event=event,
                box=self._spec.name,
                verb=Verb.PARK,
                instance=ref.instance if ref is not None else "",
                typed=typed,
                text=text,
                boot=boot,
            )
        )


def is_armed(status: AutostopStatus) -> bool:
    """Tell whether a box is armed in any mode."""
    return status.armed or (status.lease is not None and status.lease.armed)


def boot_of(status: AutostopStatus) -> str:
    """Return the boot that a box is armed for; empty where it is not."""
    return status.boot or (status.lease.boot if status.lease is not None else None) or ""
