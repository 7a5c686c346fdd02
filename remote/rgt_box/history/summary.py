"""Recorded samples, summed up into rows for a client that has been away for long."""

from __future__ import annotations

from collections import deque

from rgt_box import jsonline
from rgt_box.history.chain import ChainReader

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

STEP = 64 << 10
"""Bytes of the ring that are worked through at a time, so that live samples go out in between."""


class Row:
    """A stretch of time: per name the minimum, the sum, the maximum and the count."""

    __slots__ = ("at", "count", "values")

    def __init__(self) -> None:
        self.at, self.count = 0.0, 0
        self.values: dict[str, list[float]] = {}

    def add(self, at: float, figures: dict[str, float]) -> None:
        """Take in a sample."""
        self.at, self.count = at, self.count + 1
        for name, value in figures.items():
            have = self.values.setdefault(name, [value, 0.0, value, 0])
            have[:] = [min(have[0], value), have[1] + value, max(have[2], value), have[3] + 1]

    def wire(self, names: list[str]) -> list[Any]:
        """Return the row as it goes out."""
        values = [self.values.get(name) for name in names]
        return [
            self.at,
            self.count,
            [have and [round(have[0], 1), round(have[1] / have[3], 1), round(have[2], 1)] for have in values],
        ]


class Summary:
    """Rows of equal width by a clock of our own: the box's uptime, across reboots the time between.

    Args:
        seconds: How far back to look.
        points: How many rows at most.
    """

    def __init__(self, seconds: float, points: int) -> None:
        self.width = seconds / points
        self._rows: deque[Row] = deque([Row()], points)
        self._longest = seconds
        self._elapsed, self._place = 0.0, 0
        self._last: tuple[str, float, float | None] | None = None
        self._seen = ("", 0)

    def add(self, sample: dict[str, Any]) -> None:
        """Take in the next sample."""
        boot, at = str(sample.get("boot")), float(sample.get("at") or 0.0)
        up = (sample.get("session") or {}).get("uptime_s")
        if self._last is not None:
            self._elapsed += self._since(boot, at, up)
        self._last, self._seen = (boot, at, up), (boot, int(sample.get("seq") or 0))
        place = int(self._elapsed / self.width)
        for _ in range(min(place - self._place, self._rows.maxlen or 0)):
            self._rows.append(Row())
        self._place = place
        self._rows[-1].add(at, figures(sample))

    def _since(self, boot: str, at: float, up: float | None) -> float:
        assert self._last is not None
        before, then, was = self._last
        passed = up - was if boot == before and up is not None and was is not None else at - then
        return min(max(passed, 0.0), self._longest)

    def frame(self) -> dict[str, Any]:
        """Return the ``history`` frame."""
        rows = [row for row in self._rows if row.count or row is not self._rows[0]]
        names = sorted({name for row in rows for name in row.values})
        found = {
            "t": "history",
            "boot": self._seen[0],
            "seq": self._seen[1],
            "width": self.width,
            "names": names,
        }
        return dict(found, rows=[row.wire(names) for row in rows])


def figures(sample: dict[str, Any]) -> dict[str, float]:
    """Return the percentages of a sample that are summed up."""
    gpus = sample.get("gpus") or []
    utils = [gpu["util"] for gpu in gpus if gpu.get("util") is not None]
    mem = sample.get("mem") or {}
    found: dict[str, float | None] = {
        "util": sum(utils) / len(utils) if utils else None,
        "vram": share([gpu.get("vram_used") for gpu in gpus], [gpu.get("vram_total") for gpu in gpus]),
        "cgroup": share([max(0, (mem.get("used") or 0) - (mem.get("cache") or 0))], [mem.get("limit")]),
    }
    for disk in sample.get("disks") or []:
        for name, part, whole in (
            ("disk", "bytes_used", "bytes_total"),
            ("inodes", "inodes_used", "inodes_total"),
        ):
            found["%s:%s" % (name, disk.get("mount"))] = share([disk.get(part)], [disk.get(whole)])
    return {name: value for name, value in found.items() if value is not None}


def share(parts: list[Any], wholes: list[Any]) -> float | None:
    """Return the percentage of the sums; None where nothing is known."""
    whole = sum(item or 0 for item in wholes)
    return 100.0 * sum(item or 0 for item in parts) / whole if whole else None


class Summing:
    """Works through the whole history, a stretch at a time.

    Args:
        folder: The state directory.
        request: ``{"seconds", "points"}``.
    """

    def __init__(self, folder: str, request: dict[str, Any]) -> None:
        self._summary = Summary(request["seconds"], request["points"])
        self._reader = ChainReader(folder)
        self._reader.seek("?", 0)

    def step(self) -> dict[str, Any] | None:
        """Work through some of it; returns the frame when all is done."""
        records = self._reader.read(STEP)
        for record in records:
            if record.is_sample:
                self._summary.add(jsonline.loads_dict(record.payload) or {})
        if records:
            return None
        self._reader.close()
        return self._summary.frame()
