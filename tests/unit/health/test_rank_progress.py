"""Which rank is behind by the heartbeats, and when that is a hang."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from rgt_tui.health import diagnose_box, stuck_ranks
from rgt_tui.model import Heartbeat, LostRank, RankReading, TrainingProcess
from tests.unit.health.test_stuck_ranks import MOVES, SLEEPS, SPINS, found, rank
from tests.unit.triage.builders import NOW, box, sample


def at(
    number: int, phase: str, for_s: float = 45.0, step: int = 40, world: int = 3, **over: Any
) -> TrainingProcess:
    usual: dict[str, Any] = {"usual_s": 0.5, "slowest_s": 2.0, "steps": 40}
    told = usual | {name: over.pop(name) for name in usual if name in over}
    beat = Heartbeat(phase=phase, for_s=for_s, step=step, step_s=for_s + 1, **told)
    return rank(number, world=world, beat=beat, **over)


NAMED = [("HANG2", "rank 1 of 3 (pid 101)")]
ALL = [("D19", "all ranks of 3")]
BACK = (at(0, "backward"), at(2, "backward"))


@pytest.mark.parametrize(
    ("procs", "named"),
    [
        ((*BACK, at(1, "forward", **MOVES)), NAMED),
        ((*BACK, at(1, "data", **MOVES)), NAMED),
        ((*BACK, at(1, "forward", **SPINS)), NAMED),
        ((*BACK, at(1, "forward", 21.0, **SLEEPS)), NAMED),
        ((at(0, "collective"), at(2, "collective"), at(1, "optimizer", step=39)), NAMED),
        ((at(0, "data"), at(2, "data"), at(1, "backward", step=39)), NAMED),
        ((at(0, "collective"), at(2, "collective"), at(1, "loop", **MOVES)), NAMED),
        ((at(0, "loop"), at(2, "loop"), at(1, "loop", **MOVES)), NAMED),
        ((at(0, "loop"), at(2, "loop"), at(1, "loop", 31.0, **SLEEPS)), NAMED),
        ((at(0, "backward"), at(2, "backward"), at(1, "backward", **MOVES)), NAMED),
        ((at(0, "collective"), at(1, "collective"), at(2, "collective")), ALL),
        ((at(0, "collective"), at(1, "backward"), at(2, "backward")), [("HANG2", "rank 1 of 3 (pid 101)")]),
        ((at(0, "optimizer"), at(1, "collective"), at(2, "optimizer")), ALL),
    ],
    ids=["forward", "data", "spins", "asleep", "step-behind", "backward-behind", "own-code", "own-code-by-kernel",
         "own-code-asleep", "same-phase", "all-wait", "minority-ahead", "not-the-same-collective"],
)  # fmt: skip
def test_who_is_behind_is_named_within_a_minute(
    procs: tuple[TrainingProcess, ...], named: list[tuple[str, str]]
) -> None:
    assert found(*procs) == named
    assert found(*procs, quiet=50.0) == named
    assert found(*procs, quiet=1.0) == []  # the curve goes on


@pytest.mark.parametrize(
    "procs",
    [
        (*BACK, at(1, "forward", 19.0, **MOVES)),
        (*BACK, at(1, "evaluation", 900.0, **MOVES)),
        (*BACK, at(1, "checkpoint", 900.0, state="D", wait="rpc_wait")),
        (*BACK, at(1, "start", 900.0, **SLEEPS)),
        (*BACK, at(1, "end", 900.0, **SLEEPS)),
        (*BACK, at(1, "forward", steps=2, **MOVES)),
        (*BACK, at(1, "forward", usual_s=10.0, **MOVES)),
        (*BACK, at(1, "forward", slowest_s=31.0, **MOVES)),
        (at(0, "loop", **MOVES), at(1, "collective"), at(2, "collective")),
        (at(0, "collective", 39.0), at(1, "collective"), at(2, "collective")),
        (at(0, "data", **MOVES), at(1, "data", **MOVES), at(2, "data", **MOVES)),
        (at(0, "forward", **MOVES), at(1, "forward", **MOVES), at(2, "forward", **MOVES)),
        (*BACK, at(1, "a phase of a newer trainer", **MOVES)),
    ],
    ids=["soon", "evaluates", "saves", "starts", "ends", "first-steps", "slow-steps", "once-slow", "rank-0-alone",
         "all-wait-briefly", "all-load", "all-compute", "unknown-phase"],
)  # fmt: skip
def test_what_may_be_work_is_no_hang(procs: tuple[TrainingProcess, ...]) -> None:
    assert found(*procs) == []
    assert found(*procs, quiet=100.0, silent=100.0) == []


def test_rank_0_alone_in_its_own_code_and_a_rank_that_saves_for_half_an_hour_are_named_later() -> (
    None
):
    wait = (at(1, "collective", 400.0), at(2, "collective", 400.0))
    assert found(at(0, "loop", 301.0, **MOVES), *wait) == [("HANG2", "rank 0 of 3 (pid 100)")]
    saves = at(1, "checkpoint", 1801.0, state="D", wait="rpc_wait", still_s=1800.0)
    long = (at(0, "backward", 1801.0, still_s=1800.0), at(2, "backward", 1801.0, still_s=1800.0))
    assert found(*long, saves, quiet=1900.0, silent=1900.0) == NAMED


@pytest.mark.parametrize(
    ("age", "over", "named"),
    [
        (20.0, {}, True),
        (19.9, {}, False),
        (29.0, {"usual_s": 5.8}, True),
        (28.9, {"usual_s": 5.8}, False),
        (30.0, {"slowest_s": 20.0}, True),
        (29.9, {"slowest_s": 20.0}, False),
        (300.0, {"slowest_s": 900.0}, True),
        (300.0, {"steps": 2}, True),
        (299.9, {"steps": 2}, False),
        (20.0, {"steps": 3}, True),
    ],
)
def test_how_long_a_step_may_take_is_measured(
    age: float, over: dict[str, Any], named: bool
) -> None:
    """Rank 0 alone, too, where it is known what it is at."""
    wait = (at(1, "backward", age, **over), at(2, "backward", age, **over))
    assert bool(found(at(0, "forward", age, **over, **MOVES), *wait)) is named


def test_how_sure_it_is() -> None:
    def confidence(*procs: TrainingProcess) -> float | None:
        state = box(
            sample=sample(procs=procs), sample_at=NOW, queues=(), logs=(), runs=(), found=()
        )
        (finding,) = diagnose_box(state, NOW, ())
        return finding.confidence

    assert confidence(*BACK, at(1, "forward", **MOVES)) == 0.8
    assert confidence(*BACK, at(1, "backward", **MOVES)) == 0.8
    assert confidence(at(0, "loop"), at(2, "loop"), at(1, "loop", **MOVES)) == 0.6
    assert confidence(at(0, "loop"), at(2, "loop"), at(1, "loop", **SLEEPS)) == 0.8


def evidence(*procs: TrainingProcess) -> str:
    state = box(sample=sample(procs=procs), sample_at=NOW, queues=(), logs=(), runs=(), found=())
    (finding,) = diagnose_box(state, NOW, ())
    return finding.evidence


def test_the_evidence_says_rank_phase_step_and_age() -> None:
    assert evidence(*BACK, at(1, "forward", 47.0, **SLEEPS)) == (
        "rank 1 (pid 101) is in the forward pass of step 41 for 47s: sleeps (time.sleep or similar) "
        "(hrtimer_nanosleep); ranks 0, 2 wait for it (in the backward pass of step 41 for 45s; futex_do_wait)"
    )
    assert evidence(*(at(n, "collective", world=4) for n in range(3))) == (
        "all 3 ranks here wait (futex_do_wait), and no progress for 45s: ranks 0, 1, 2 in a collective of step "
        "41 for 45s; the one that they wait for may be on another machine"
    )
    assert "(state T), in the forward pass of step 41 for 45s; ranks 0, 2" in evidence(
        *BACK, at(1, "forward", state="T", wait="do_signal_stop")
    )


def test_a_rank_that_is_gone_or_stopped_is_named_whatever_the_others_say() -> None:
    lost: dict[str, Any] = {"lost": (LostRank(2, 77),)}
    assert found(at(0, "evaluation", **lost), at(1, "collective", **lost)) == [
        ("D20", "rank 2 of 3 (pid 77)")
    ]


def test_one_rank_without_a_heartbeat_and_the_kernel_alone_is_asked() -> None:
    assert found(*BACK, rank(1, **MOVES)) == []
    assert found(*BACK, rank(1, **SLEEPS)) == NAMED
    assert stuck_ranks.compare_ranks([]) is None
    assert stuck_ranks.describe_phase(rank(1)) == ""
    assert stuck_ranks.describe_phase(at(1, "evaluation")) == "evaluating after step 40 for 45s"
    alone = stuck_ranks.compare_ranks(
        [at(0, "evaluation", 1800.0), at(1, "checkpoint", 7.0), at(2, "backward")]
    )
    assert alone is not None
    assert (alone.age, alone.limit, alone.aside) == (7.0, 1800.0, True)


def test_the_reading_of_an_older_agent_is_taken() -> None:
    raw = {"rank": 1, "world": 3, "group": "a"}
    assert msgspec.convert(raw, RankReading).beat is None
