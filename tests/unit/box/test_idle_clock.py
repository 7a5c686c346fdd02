"""Idle, at work or unknown: what a look says, and how long it has been so without a break."""

from __future__ import annotations

from typing import Any

import pytest
from rgt_box.autostop.idle_clock import ClockReading, IdleClock, IdleVerdict, judge_reading

IDLE = IdleVerdict()
AT_WORK, BLIND = IdleVerdict(active=("x",)), IdleVerdict(unknown=("y",))
HELD = IdleVerdict(holders=({"pid": 7},))
QUIET: dict[str, Any] = {"transfers": [], "input_at": 5.0}
NOTEBOOK: dict[str, Any] = {
    "pid": 7, "ticks": 70, "name": "ipykernel", "cpu_pct": 0.1, "works": True, "notebook": True, "rss": 1 << 30,
}  # fmt: skip


def at(boot: float, slept: float = 0.0, ahead: float = 1000.0) -> ClockReading:
    return ClockReading(boot, boot - slept, boot + ahead)


def test_a_box_on_which_nothing_happens_is_idle_since_the_first_look_that_saw_it() -> None:
    clock = IdleClock(10.0)
    for seconds in (0, 10, 20, 30):
        assert clock.feed(at(seconds), IDLE) == ""
    assert (clock.idle_since, clock.idle_s(at(35)), clock.unknown_s(at(35))) == (0, 35, 0)


@pytest.mark.parametrize("verdict", [AT_WORK, BLIND, HELD])
def test_anything_else_begins_the_time_anew(verdict: IdleVerdict) -> None:
    clock = IdleClock(10.0)
    clock.feed(at(0), IDLE)
    clock.feed(at(10), verdict)
    assert clock.idle_since is None
    assert clock.idle_s(at(15)) == (None if verdict is BLIND else 0.0)
    clock.feed(at(20), IDLE)
    assert clock.idle_s(at(29)) == 9


@pytest.mark.parametrize(
    ("then", "why"),
    [
        (at(10, slept=6), "the machine was suspended for 6 s"),
        (at(10, ahead=1006), "the clock was set by +6 s"),
        (at(10, ahead=990), "the clock was set by -10 s"),
        (at(41), "nothing was read for 41 s"),
        (at(-1), "suspended"),
        (at(10, slept=4, ahead=1004), ""),
    ],
)
def test_a_break_in_the_clocks_begins_it_anew(then: ClockReading, why: str) -> None:
    clock = IdleClock(10.0)
    clock.feed(at(0), IDLE)
    said = clock.feed(then, IDLE)
    assert (bool(said), why in said) == (bool(why), True)
    assert clock.idle_since == (then.boot if why else 0)


def test_unknown_goes_on_through_short_whiles_of_idleness_and_ends_with_work() -> None:
    clock = IdleClock(10.0)
    for seconds in range(0, 100, 20):
        clock.feed(at(seconds), BLIND)
        clock.feed(at(seconds + 10), IDLE)
    assert clock.unknown_s(at(100)) == 100
    clock.clear_unknown_after(at(100), 60.0)
    assert clock.unknown_s(at(100)) == 100
    clock.clear_unknown_after(at(150), 60.0)
    assert clock.unknown_s(at(150)) == 0
    clock.feed(at(110), BLIND)
    clock.feed(at(120), AT_WORK)
    assert clock.unknown_s(at(120)) == 0


def test_a_quiet_look_is_idle() -> None:
    assert judge_reading(QUIET, {}, ()) == IDLE
    assert (
        judge_reading(QUIET | {"gpus": [{"index": 0, "util": 2.9, "vram_used": 5 << 20}]}, {}, ())
        == IDLE
    )


@pytest.mark.parametrize(
    ("sample", "signs", "words"),
    [
        ({"gpus": [{"index": 1, "util": 3.0, "vram_used": 0}]}, {}, "GPU 1 is busy: 3%"),
        ({"transfers": [{"name": "rsync", "pid": 9}]}, {}, "files are being copied: rsync, pid 9"),
        ({"session": {"slurm": [{"id": "4"}]}}, {}, "Slurm has the job 4"),
        ({}, {"active": ["a runner is at work"]}, "a runner is at work"),
        ({}, {"processes": [NOTEBOOK | {"cpu_pct": 2.0}]}, "ipykernel, pid 7, uses 2% of a core"),
        ({}, {"processes": [NOTEBOOK | {"cpu_pct": 10.0, "works": False}]}, "uses 10% of a core"),
        (
            {},
            {"processes": [NOTEBOOK | {"cpu_pct": 4.0, "waits_pct": 90.0, "works": False}]},
            "uses 4% of a core, and waits for one 90% of the time",
        ),
    ],
)
def test_work(sample: dict[str, Any], signs: dict[str, Any], words: str) -> None:
    found = judge_reading(QUIET | sample, signs, {(7, 70)})
    assert words in found.active[0]
    assert (found.unknown, found.holders) == ((), ())


@pytest.mark.parametrize(
    ("sample", "signs", "words"),
    [
        ({"gpus": [{"index": 0, "error": "lost"}]}, {}, "GPU 0 does not answer: lost"),
        ({"gpus": [{"index": 0, "vram_used": 1}]}, {}, "does not report its utilisation"),
        ({"gpus": [{"index": 0, "util": 0.0}]}, {}, "its used memory"),
        ({"gpus": [{"index": 0, "util": 0.0, "vram_used": 1 << 30}]}, {}, "an unknown process"),
        (
            {"gpus": [{"index": 0, "util": 0.0, "vram_used": 1}]},
            {"cards": 2},
            "1 of 2 GPUs can be read",
        ),
        ({"transfers": None}, {}, "whether files are being copied"),
        ({"input_at": None}, {}, "last typed"),
        ({"session": {"slurm_error": "down"}}, {"slurm": True}, "Slurm cannot be queried: down"),
        ({}, {"unknown": ["hidden"]}, "hidden"),
    ],
)
def test_what_cannot_be_told_is_never_idle(
    sample: dict[str, Any], signs: dict[str, Any], words: str
) -> None:
    found = judge_reading(QUIET | sample, signs, ())
    assert words in found.unknown[0]
    assert found.active == ()


def test_slurms_program_on_a_box_without_slurm_says_nothing() -> None:
    assert judge_reading(QUIET | {"session": {"slurm_error": "down"}}, {"slurm": False}, ()) == IDLE


def test_memory_of_a_card_is_explained_by_a_named_process() -> None:
    sample = QUIET | {"gpus": [{"index": 0, "util": 0.0, "vram_used": 8 << 30}]}
    assert judge_reading(sample, {"named": {0: True}}, ()) == IDLE


@pytest.mark.parametrize(
    "process",
    [
        NOTEBOOK,
        NOTEBOOK | {"rss": 256 << 20},
        NOTEBOOK | {"notebook": False},
        NOTEBOOK | {"rss": 1, "vram": True},
        NOTEBOOK | {"rss": 1, "run": "train"},
    ],
)
def test_an_idle_process_that_holds_something_blocks_until_that_very_one_was_accepted(
    process: dict[str, Any],
) -> None:
    signs = {"processes": [process]}
    assert judge_reading(QUIET, signs, ()).holders == (process,)
    assert judge_reading(QUIET, signs, {(7, 71), (8, 70)}).holders == (process,)
    assert judge_reading(QUIET, signs, {(7, 70)}) == IDLE


@pytest.mark.parametrize(
    "process",
    [NOTEBOOK | {"rss": (256 << 20) - 1}, NOTEBOOK | {"notebook": False, "rss": (1 << 30) - 1}],
)
def test_a_small_one_does_not(process: dict[str, Any]) -> None:
    assert judge_reading(QUIET, {"processes": [process]}, ()) == IDLE
