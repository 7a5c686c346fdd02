from __future__ import annotations

import functools
import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from rgt_box.metrics import TOTAL, jsonl, open_reader

from tests.unit.metrics.makers import FIXTURES, Follower


def row(step: int, loss: float = 1.0, **more: Any) -> dict[str, Any]:
    return {"epoch": step / 50, "grad_norm": 0.5, "loss": loss, "step": step, **more}


def write(path: Path, history: list[dict[str, Any]], indent: int | None = 2, **more: Any) -> None:
    state: dict[str, Any] = {
        "best_metric": None,
        "global_step": len(history),
        "log_history": history,
        "stateful_callbacks": {},
        **more,
    }
    path.write_text(json.dumps(state, indent=indent, sort_keys=True) + "\n")


def follower(path: Path, limit: int = 5000) -> Follower:
    return Follower(functools.partial(open_reader, "hf_trainer", str(path)), limit)


def losses(each: Follower) -> list[tuple[float, Any]]:
    return [point[2:4] for point in each.points if point[0] == "loss"]


def test_only_new_rows_come(tmp_path: Path) -> None:
    path = tmp_path / "trainer_state.json"
    history = [row(5), row(10)]
    write(path, history)
    each = follower(path, 2)
    each.poll()
    assert losses(each) == [(5, 1.0), (10, 1.0)]
    history += [
        row(15, float("nan")),
        row(20, 0.0, grad_norm=float("nan")),
        {"eval_loss": 2.0, "step": 20},
    ]
    write(path, history)
    each.poll()
    assert losses(each) == [(5, 1.0), (10, 1.0), (15, "nan"), (20, "nan")]
    assert (each.resets, len(each.points), each.points[-1][:4]) == (
        0,
        13,
        ("eval_loss", "step", 20.0, 2.0),
    )
    assert each.poll().points == []


def test_another_course_is_read_anew(tmp_path: Path) -> None:
    path = tmp_path / "trainer_state.json"
    write(path, [row(5), row(10), row(15)])
    each = follower(path)
    each.poll()
    write(path, [row(5), row(10, 7.0), row(15, 7.0), row(20, 7.0)])
    each.poll()
    assert (each.resets, losses(each)) == (1, [(5, 1.0), (10, 7.0), (15, 7.0), (20, 7.0)])
    write(path, [row(5)])
    each.poll()
    assert (each.resets, losses(each)) == (2, [(5, 1.0)])
    write(path, [])
    each.poll()
    assert (each.resets, losses(each)) == (3, [])


@pytest.mark.parametrize("indent", [2, None])
def test_a_torn_write_keeps_the_old_points_wherever_it_is_cut(
    tmp_path: Path, indent: int | None
) -> None:
    path = tmp_path / "trainer_state.json"
    write(path, [row(5), row(10), row(15)], indent)
    whole = path.read_bytes()
    write(path, [row(5), row(10)], indent)
    before = follower(path)
    before.poll()
    for cut in range(0, len(whole), 3):
        path.write_bytes(whole[:cut])
        each = follower(path)
        each.cursor, each.points = before.cursor, list(before.points)
        each.poll()
        assert (losses(each)[:2], each.resets) == (losses(before), 0)
        path.write_bytes(whole)
        each.poll()
        assert (losses(each), each.resets) == ([(5, 1.0), (10, 1.0), (15, 1.0)], 0)


@pytest.mark.parametrize("indent", [2, None])
def test_the_plan_behind_the_history_is_told_when_it_changes(
    tmp_path: Path, indent: int | None
) -> None:
    path = tmp_path / "trainer_state.json"
    each = follower(path, 1)
    for steps, most in ((5, 100), (10, 100), (15, 300), (15, 0), (15, -1)):
        write(
            path,
            [row(step) for step in range(5, steps + 1, 5)],
            indent,
            max_steps=most,
            global_step=steps,
        )
        each.poll()
    assert [point[1:4] for point in each.points if point[0] == TOTAL] == [
        ("step", 5.0, 100.0),
        ("step", 15.0, 300.0),
    ]
    assert losses(each) == [(5, 1.0), (10, 1.0), (15, 1.0)]


def test_a_max_steps_among_the_rows_is_no_plan(tmp_path: Path) -> None:
    path = tmp_path / "trainer_state.json"
    write(path, [row(5, max_steps=7, global_step=3)])
    each = follower(path)
    each.poll()
    assert [point for point in each.points if point[0] == TOTAL] == []


def test_the_sample_in_two_saves(tmp_path: Path) -> None:
    path = tmp_path / "trainer_state.json"
    each = follower(path, 3)
    for step in (20, 40):
        path.write_bytes(
            (FIXTURES / f"hf_trainer/checkpoint-{step}/trainer_state.json").read_bytes()
        )
        each.poll()
    assert (each.resets, len(each.points), losses(each)[-1]) == (0, 69, (40.0, 3.8949180603027345))
    assert [point[:4] for point in each.points if point[0] == TOTAL] == [
        (TOTAL, "step", 20.0, 40.0)
    ]


def test_reading_goes_on_inside_a_long_history(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "trainer_state.json"
    write(path, [row(step) for step in range(300)])
    decoded: list[int] = []
    real = jsonl._decode

    def decode(text: str, at: int) -> tuple[Any, int]:
        decoded.append(at)
        return real(text, at)

    monkeypatch.setattr(jsonl, "_decode", decode)
    cursor, points = None, 0
    for _ in range(1000):
        batch = open_reader("hf_trainer", str(path)).read(cursor, 9)
        points, cursor = points + len(batch.points), batch.cursor
        if not batch.more:
            break
    assert points == 900
    assert len(decoded) < 310


def test_a_long_history_needs_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "trainer_state.json"
    write(path, [row(step, text="x" * 5000) for step in range(3000)])
    assert path.stat().st_size > 14 << 20
    tracemalloc.start()
    each = follower(path)
    each.poll()
    assert (len(losses(each)), tracemalloc.get_traced_memory()[1] < 8 << 20) == (3000, True)
    tracemalloc.stop()


def test_rows_larger_than_a_window_and_names_of_any_script(tmp_path: Path) -> None:
    path = tmp_path / "trainer_state.json"
    state = {
        "log_history": [
            row(1, note="x" * 500000),
            row(2, **{"Verlust/ä": 1.0, "损失": 2.0}),
            row(3),
        ]
    }
    for ascii_only in (True, False):
        path.write_text(json.dumps(state, ensure_ascii=ascii_only))
        each = follower(path)
        each.poll()
        assert [x for x, _ in losses(each)] == [1, 2, 3]
        assert {"Verlust/ä", "损失"} <= {point[0] for point in each.points}


@pytest.mark.parametrize(
    "text",
    [
        '{"log_history": ' + "[" * 100000 + "}",
        '{"log_history": [{"step": 1, "loss": x}]}',
        '{"log_history": 5}',
        "{}",
    ],
)
def test_hostile_text_is_bounded(tmp_path: Path, text: str) -> None:
    path = tmp_path / "trainer_state.json"
    path.write_text(text)
    each = follower(path)
    each.poll()
    assert each.points == []


def test_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "trainer_state.json"
    write(path, [row(1)])
    monkeypatch.setattr(jsonl, "MAX_BYTES", 10)
    batch = open_reader("hf_trainer", str(path)).read()
    assert (batch.points, batch.problems[0].reason) == ([], "larger than 0 MiB")
