from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest
from rgt_box.streams import follows
from rgt_box.streams.follows import Collector

from tests.process.box.harness import until


def test_rounds_come_one_after_the_other_and_orders_before_them() -> None:
    done: list[str] = []

    def collect() -> tuple[list[dict[str, Any]], bool]:
        done.append("round")
        return [{"n": len(done)}], True

    each = Collector(collect)
    assert each.take_results(60.0) == ([{"n": 1}], True)
    each.run_before_next(lambda: done.append("order"))
    assert each.take_results(60.0) == ([{"n": 3}], True)
    assert done == ["round", "order", "round"]


def test_files_that_hang_are_told_once_and_nothing_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follows, "HUNG_AFTER", 0.01)
    gate = threading.Event()
    rounds: list[int] = []

    def collect() -> tuple[list[dict[str, Any]], bool]:
        gate.wait()
        rounds.append(1)
        return [{"late": True}], False

    each = Collector(collect)
    told = until(lambda: each.take_results(0.0)[0], "the news of the hang")
    assert told[0]["kind"] == "files-hang"
    assert each.take_results(0.0) == ([], False)
    gate.set()
    assert until(lambda: each.take_results(0.01)[0]) == [{"late": True}]
    assert rounds == [1]


def test_a_round_that_computes_for_long_is_no_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a box whose processors are taken a round of many files takes longer than files that answer may."""
    now, turns = [0.0], [0]
    clock = SimpleNamespace(
        monotonic=lambda: now[0],
        clock_gettime=time.clock_gettime,
        pthread_getcpuclockid=time.pthread_getcpuclockid,
    )
    monkeypatch.setattr(follows, "time", clock)
    enough = threading.Event()

    def collect() -> tuple[list[dict[str, Any]], bool]:
        while not enough.is_set():
            turns[0] += 1
        return [{"late": True}], False

    each = Collector(collect)
    for _ in range(4):
        assert each.take_results(0.0) == ([], True)
        now[0] += follows.HUNG_AFTER * 0.6
        turns[0] = 0
        until(lambda: turns[0], "another turn")
    enough.set()
    assert until(lambda: each.take_results(0.01)[0]) == [{"late": True}]


def test_a_failing_follower_is_an_event() -> None:
    def collect() -> tuple[list[dict[str, Any]], bool]:
        raise ValueError("broken")

    ((event,), more) = Collector(collect).take_results(60.0)
    assert (event["kind"], event["text"], more) == ("follow-failed", "ValueError: broken", False)
