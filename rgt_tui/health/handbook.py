"""The handbook as the live look at a box has it: its pages, with what readings prove of some of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from rgt_tui.handbook import Page, shipped_pages
from rgt_tui.health import conditions_gpu as gpu
from rgt_tui.health import conditions_queue as queue
from rgt_tui.health import conditions_runs as runs
from rgt_tui.health import conditions_space as space
from rgt_tui.health.condition import Entry, Proof
from rgt_tui.health.facts import Facts
from rgt_tui.model.box import BoxState


class Live(NamedTuple):
    """What the readings of a box add to a page."""

    prove: Callable[[Facts], Iterable[Proof]] | None = None
    gives_way: str = ""
    reading: Callable[[BoxState], str | None] | None = None
    cleared_by: str = "step"
    fixes: bool = True
    """The page's own steps are shown; else they are made from the reading."""


LIVE = {
    "U6": Live(fixes=False),
    "U7": Live(fixes=False),
    "CKPT1": Live(cleared_by="saved"),
    "U33": Live(prove=queue.prove_copy_failed),
    "U9": Live(prove=queue.prove_killed_by_kernel, gives_way="any", reading=space.memory_reading),
    "U10": Live(reading=gpu.vram_reading),
    "U11": Live(reading=gpu.vram_reading),
    "LO3": Live(reading=gpu.vram_reading),
    "M8": Live(reading=gpu.vram_reading),
    "M14": Live(reading=gpu.vram_reading),
    "M15": Live(reading=gpu.vram_reading),
    "M17": Live(reading=gpu.vram_reading),
    "SP1": Live(prove=queue.prove_preempted, gives_way="any"),
    "U3": Live(prove=queue.prove_killed, gives_way="any", reading=space.memory_reading),
    "P8": Live(prove=runs.prove_nan, gives_way="log"),
    "U22": Live(prove=gpu.prove_lost),
}
"""By id."""


def _entry(page: Page) -> Entry:
    live = LIVE.get(page.id, Live())
    return Entry(
        id=page.id,
        title=page.title,
        severity=page.severity,
        resource=page.resource,
        fixes=page.fixes if live.fixes else (),
        never=page.never,
        patterns=page.patterns,
        prove=live.prove,
        gives_way=live.gives_way,
        reading=live.reading,
        cleared_by=live.cleared_by,
        beats=page.beats,
        symptom=page.symptom_only,
        sources=page.sources,
    )


PAGES = tuple(page for page in shipped_pages().values() if page.patterns and not page.terminal_only)
"""The pages that the log of a run can show."""
HANDBOOK = {page.id: _entry(page) for page in PAGES}
