"""The handbook as applied to live boxes: its pages, and what samples prove about some of them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from rgt_tui.handbook import Judge, Page, shipped_pages
from rgt_tui.health import signs, stuck_ranks
from rgt_tui.health.condition import Entry, Proof
from rgt_tui.health.facts import Facts
from rgt_tui.health.rows import conditions_curves as curves
from rgt_tui.health.rows import conditions_domains as domains
from rgt_tui.health.rows import conditions_gpu as gpu
from rgt_tui.health.rows import conditions_queue as queue
from rgt_tui.health.rows import conditions_runs as runs
from rgt_tui.health.rows import conditions_space as space
from rgt_tui.health.signs import Sign
from rgt_tui.model import BoxState


class Live(NamedTuple):
    """What the readings of a box add to a page."""

    prove: Callable[[Facts], Iterable[Proof]] | None = None
    needs: Sign | None = None
    gives_way: str = ""
    reading: Callable[[BoxState], str | None] | None = None
    cleared_by: str = "step"
    fixes: bool = True
    """The page's own steps are shown; else they are made from the reading."""


LIVE = {
    "U6": Live(fixes=False),
    "U7": Live(fixes=False),
    "CKPT1": Live(cleared_by="saved"),
    "U33": Live(prove=queue.prove_copy_failed, needs=signs.queued),
    "U9": Live(queue.prove_killed_by_kernel, signs.work, gives_way="any", reading=space.memory_reading),
    "U10": Live(reading=gpu.vram_reading),
    "U11": Live(reading=gpu.vram_reading),
    "LO3": Live(reading=gpu.vram_reading),
    "M8": Live(reading=gpu.vram_reading),
    "M14": Live(reading=gpu.vram_reading),
    "M15": Live(reading=gpu.vram_reading),
    "M17": Live(reading=gpu.vram_reading),
    "SP1": Live(prove=queue.prove_preempted, needs=signs.queued, gives_way="any"),
    "U3": Live(prove=queue.prove_killed, needs=signs.queued, gives_way="any", reading=space.memory_reading),
    "P8": Live(prove=runs.prove_nan, needs=signs.odd_loss, gives_way="log"),
    "U22": Live(prove=gpu.prove_lost, needs=signs.ailing_card),
    "END1": Live(reading=runs.end_reading),
    "BOOT1": Live(prove=queue.prove_restarted, needs=signs.work, gives_way="any"),
    "C12": Live(prove=curves.prove_epoch_anew, needs=signs.resumed),
    "C14": Live(prove=curves.prove_lr_anew, needs=signs.resumed),
    "HANG1": Live(prove=stuck_ranks.prove_stopped, needs=signs.ranks),
    "HANG2": Live(prove=stuck_ranks.prove_away, needs=signs.ranks, gives_way="log"),
    "D19": Live(prove=stuck_ranks.prove_all_wait, needs=signs.ranks, gives_way="log"),
    "D20": Live(prove=stuck_ranks.prove_gone, needs=signs.ranks, gives_way="log"),
    **{
        rule.page: Live(prove=domains.proves(rule.page), needs=domains.judged, gives_way="log")
        for rule in domains.RULES
    },
}
"""By id."""
STORAGE_IDS = ("U6", "U7")
"""Which of them it is, and whether it is over, the live reading says."""


def _entry(page: Page) -> Entry:
    live = LIVE.get(page.id, Live())
    return Entry(
        id=page.id,
        title=page.title,
        severity=page.severity,
        action=str(page.action),
        resource=page.resource,
        fixes=page.fixes if live.fixes else (),
        never=page.never,
        prove=live.prove,
        needs=live.needs,
        gives_way=live.gives_way,
        reading=live.reading,
        cleared_by=live.cleared_by,
        beats=page.beats,
        confidence=judge().sure(page),
        symptom=page.symptom_only,
    )


@functools.cache
def run_pages() -> tuple[Page, ...]:
    """Return the pages that the log of a run can show."""
    return tuple(page for page in shipped_pages().values() if page.patterns and not page.terminal_only)


@functools.cache
def judge() -> Judge:
    """Return the judge of the logs of runs."""
    return Judge(shipped_pages())


@functools.cache
def _entries() -> dict[str, Entry]:
    shown = run_pages()
    known = {page.id for page in shown}
    by_readings = [page for page in shipped_pages().values() if page.id in LIVE and page.id not in known]
    return {page.id: _entry(page) for page in (*shown, *by_readings)}


class _Handbook(Mapping[str, Entry]):
    """Read when it is first asked for: 230 KB of TOML are not to delay the first frame."""

    def __getitem__(self, id_: str) -> Entry:
        return _entries()[id_]

    def __iter__(self) -> Iterator[str]:
        return iter(_entries())

    def __len__(self) -> int:
        return len(_entries())


HANDBOOK: Mapping[str, Entry] = _Handbook()
"""All that can be found on a box: what logs show, then what readings alone prove."""
