"""Xid events: each report of the kernel log once, also across two recorders, and never as a flood."""

from __future__ import annotations

import os
import time

from rgt_box import files, place, procstat
from rgt_box.sampling import kernel_log, xid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

QUIET = 60.0
"""Seconds in which the same Xid of the same GPU makes one event: a failing kernel writes hundreds of them."""

OLD_S = 90.0
"""From this age on, an event says how long ago it was: it may have happened long before anybody watched."""


class XidWatch:
    """Follows the kernel log for Xids.

    Args:
        state_dir: Where the place in the log is kept, so that the next recorder tells nothing twice.
        remember: False for a reader that must not move that place.

    Attributes:
        last: PCI address → number of the last Xid of that GPU in the log.
        broken: The same, of the Xids that tell of broken hardware alone.
        limited: Why the log cannot be read; None = it can.
    """

    def __init__(self, state_dir: str, remember: bool = True) -> None:
        self._file = os.path.join(state_dir, "xid.json")
        self._remember = remember
        self._boot = place.boot_id()
        known = files.read_json(self._file) or {}
        told = known.get("at_us") if known.get("boot") == self._boot else None
        self._told = told if isinstance(told, int) else -1
        self._pending: dict[tuple[str, int], list[xid.Xid]] = {}
        self._quiet: dict[tuple[str, int], float] = {}
        self.last: dict[str, int] = {}
        self.broken: dict[str, int] = {}
        self.limited: str | None = None
        self._log: kernel_log.Kmsg | kernel_log.Dmesg | None = None
        try:
            self._log = kernel_log.open_log(b"NVRM: Xid")
        except kernel_log.Unreadable as error:
            self.limited = "Xid: %s" % error

    def poll(self, indexes: dict[str, int]) -> list[dict[str, str]]:
        """Return the events that are due.

        Args:
            indexes: PCI address → index of the GPU.
        """
        records = self._log.records() if self._log is not None else []
        newest = self._told
        for at_us, text in records:
            report = xid.parse(text, at_us)
            if report is None:
                continue
            self.last[report.bus] = report.number
            if report.level == xid.HARDWARE:
                self.broken[report.bus] = report.number
            if at_us > self._told:
                self._pending.setdefault((report.bus, report.number), []).append(report)
                newest = max(newest, at_us)
        if newest > self._told:
            self._told = newest
            self._save()
        return self._due(indexes) if self._pending else []

    def _due(self, indexes: dict[str, int]) -> list[dict[str, str]]:
        now = time.monotonic()
        due = [key for key in self._pending if now - self._quiet.get(key, float("-inf")) >= QUIET]
        events = []
        for key in due:
            reports = self._pending.pop(key)
            self._quiet[key] = now
            events.append(
                {"kind": "xid", "text": words(reports, indexes.get(key[0])), "level": reports[-1].level}
            )
        return events

    def _save(self) -> None:
        if not self._remember:
            return
        state: dict[str, Any] = {"boot": self._boot, "at_us": self._told}
        try:
            files.write_json(self._file, state)
        except OSError:
            pass  # told twice is better than not told


def words(reports: list[xid.Xid], index: int | None) -> str:
    """Return the text of an event for reports of one GPU and number."""
    report = reports[-1]
    gpu = "GPU %s (%s)" % ("?" if index is None else index, report.bus or "unknown address")
    text = "%s: Xid %d, %s" % (gpu, report.number, report.meaning)
    if report.detail and report.detail[:120] != report.meaning:
        text += " [%s]" % report.detail[:160]
    if len(reports) > 1:
        text += ", %d times" % len(reports)
    age = age_s(report.at_us)
    return text + (", %s ago" % _span(age) if age is not None and age > OLD_S else "")


def age_s(at_us: int) -> float | None:
    """Return how long ago a time of the kernel's clock was; None where /proc/uptime cannot be read."""
    up = (procstat.read_bytes("/proc/uptime", 128) or b"").split()
    return max(0.0, float(up[0]) - at_us / 1e6) if up else None


def _span(seconds: float) -> str:
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return "%d %s" % (seconds // size, unit)
    return "%d s" % seconds
