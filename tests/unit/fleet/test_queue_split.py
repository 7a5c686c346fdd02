"""Lines over several boxes by what they cost, and cells of several boxes against what is there."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rgt_tui.fleet.work.queue_split import (
    NoQueue,
    QueueLine,
    QueuePart,
    SeenCost,
    forget_handed,
    handed_cells,
    list_cells,
    note_handed,
    parse_lines,
    seen_in,
    split_queue,
)
from rgt_tui.model import QueueCell, QueueState


def line(name: str, task: str = "t", epochs: int = 1) -> QueueLine:
    return QueueLine(f"{name}.yaml {task} {epochs}", name, task, epochs)


def names(found: object) -> list[list[str]]:
    return [[one.name for one in share.lines] for share in found.shares]  # type: ignore[attr-defined]


def test_a_file_is_read_as_the_agent_reads_it() -> None:
    found = parse_lines("# all\nconf/a.yaml cls 3 # big\n\n  b.b.toml cls\r\n", "q.txt")
    assert [(one.name, one.task, one.epochs, one.text) for one in found] == [
        ("a", "cls", 3, "conf/a.yaml cls 3 # big"), ("b.b", "cls", 20, "b.b.toml cls"),
    ]  # fmt: skip
    for bad, said in (
        ("a.yaml\n", "q:1: 'a.yaml' is not a cell"),
        ("a.y t 0\n", "q:1"),
        ("a.x t\na.y t\n", "q:2"),
        ("#", "no cell"),
    ):
        with pytest.raises(NoQueue, match=said):
            parse_lines(bad, "q")


def test_without_evidence_it_is_even_and_says_so() -> None:
    found = split_queue([line(name) for name in "abcde"], ["x", "y"])
    assert sorted(len(share) for share in names(found)) == [2, 3]
    assert found.notes == ("split evenly: no finished cell, so no cost per cell",)
    assert [share.seconds for share in found.shares] == [None, None]


def test_the_dear_cell_is_alone_and_the_cheap_ones_together() -> None:
    seen = [SeenCost("x", "big", "t", 90.0), SeenCost("x", "s1", "t", 10.0)]
    lines = [line("s1"), line("big"), line("s2", "u"), line("s3", "u")]
    seen += [SeenCost("y", "other", "u", 10.0)]
    found = split_queue(lines, ["x", "y"], seen=seen)
    assert names(found) == [["big"], ["s1", "s2", "s3"]]
    assert "2 by its task" in found.notes[0] and "by this config" in found.notes[0]
    assert "assumed equal" in found.notes[-1]


def test_a_fast_box_gets_more_and_a_busy_one_less() -> None:
    seen = [SeenCost("fast", "s", "t", 10.0)]
    lines = [line(f"c{at}") for at in range(6)]
    found = split_queue(lines, ["fast", "slow"], seen=seen, speeds={"fast": 200.0, "slow": 100.0})
    assert [len(share) for share in names(found)] == [4, 2]
    assert "fast 200 TFLOP/s" in found.notes[-1]
    busy = split_queue(
        lines, ["x", "y"], seen=seen, queued={"x": [line(f"q{at}") for at in range(6)]}
    )
    assert [len(share) for share in names(busy)] == [0, 6]


@given(
    st.lists(st.integers(1, 50), max_size=12),
    st.integers(1, 4),
    st.dictionaries(st.integers(0, 11), st.floats(0.5, 100), max_size=12),
)
def test_every_line_goes_to_exactly_one_box(
    epochs: list[int], boxes: int, costs: dict[int, float]
) -> None:
    lines = [line(f"c{at}", epochs=count) for at, count in enumerate(epochs)]
    seen = [SeenCost("b0", f"c{at}", "t", cost) for at, cost in costs.items()]
    found = split_queue(lines, [f"b{at}" for at in range(boxes)], seen=seen)
    assert sorted(name for share in names(found) for name in share) == sorted(
        one.name for one in lines
    )
    if (
        seen and lines
    ):  # whoever got the last cell of the fullest share was the one with least to do before
        loads = [share.seconds or 0.0 for share in found.shares]
        dearest = max(max(costs.values()) * count for count in epochs)
        assert max(loads) <= sum(loads) / boxes + dearest + 1e-6
    assert split_queue(lines, [f"b{at}" for at in range(boxes)], seen=seen) == found


def cell(name: str, state: str = "done", **more: object) -> QueueCell:
    return msgspec.convert(
        {"name": name, "cfg": f"{name}.yaml", "task": "t", "epochs": 2, "state": state, **more},
        QueueCell,
    )


def queue(*cells: QueueCell, alive: bool = False) -> QueueState:
    return QueueState(path="~/jobs/q", at=1.0, cells=cells, runner_alive=alive)


def test_only_cells_that_ran_through_at_once_say_what_they_cost() -> None:
    found = seen_in(
        "x",
        [queue(
            cell("a", attempts=1, started=0.0, ended=10.0), cell("b", attempts=2, started=0.0, ended=10.0),
            cell("c", attempts=1, started=0.0, ended=10.0, flag="much too soon"), cell("d", "failed", attempts=1),
        )],
    )  # fmt: skip
    assert found == [SeenCost("x", "a", "t", 5.0)]


def part(
    box: str, state: QueueState | None, *rows: tuple[str, str, str], error: str = ""
) -> QueuePart:
    cells = tuple({"name": name, "status": status, "state": how} for name, status, how in rows)
    return QueuePart(box=box, job="~/jobs/q", queue=state, cells=cells, error=error)


def told(*parts: QueuePart) -> dict[str, tuple[str, str]]:
    return {entry.name: (entry.status, entry.command) for entry in list_cells(parts)}


def test_what_is_missing_comes_with_its_command() -> None:
    found = told(part(
        "x", queue(),
        ("a", "ok", "done"), ("b", "damaged", "done"), ("c", "never-ran", "waiting"), ("d", "missing", "failed"),
    ))  # fmt: skip
    assert found == {
        "a": ("ok", ""),
        "b": ("damaged", "rgt queue x run --again b --job '~/jobs/q'"),
        "c": ("never-ran", "rgt queue x run --job '~/jobs/q'"),
        "d": ("missing", "rgt queue x run --job '~/jobs/q'"),
    }
    working = told(part("x", queue(alive=True), ("c", "never-ran", "waiting")))
    assert working == {"c": ("never-ran", "")}


def test_a_cell_of_two_boxes_is_a_duplicate() -> None:
    whole = told(part("x", queue(), ("a", "ok", "done")), part("y", queue(), ("a", "ok", "done")))
    assert whole["a"] == ("duplicate", "")
    spare = told(
        part("x", queue(), ("a", "ok", "done")), part("y", queue(), ("a", "never-ran", "waiting"))
    )
    assert spare["a"] == ("duplicate", "rgt queue y take-out a --job '~/jobs/q'")
    runs = told(
        part("x", queue(), ("a", "ok", "done")),
        part("y", queue(cell("a", "running"), alive=True), ("a", "not-done", "running")),
    )
    assert runs["a"] == ("duplicate", "")
    idle = told(
        part("x", queue(), ("a", "never-ran", "waiting")),
        part("y", queue(cell("a", "running"), alive=True), ("a", "never-ran", "running")),
    )
    assert idle["a"] == ("duplicate", "rgt queue x take-out a --job '~/jobs/q'")


def test_what_a_box_that_was_not_reached_has_is_unknown_and_nothing_is_offered() -> None:
    found = told(part("x", queue(cell("a", "running"), cell("b", "done")), error="refused"))
    assert found == {"a": ("unknown", ""), "b": ("unknown", "")}


def test_handed_cells_are_kept_until_their_box_knows(tmp_path: Path) -> None:
    path = tmp_path / "state/handed.json"
    assert handed_cells(path) == ()
    note_handed(path, "x", "~/jobs/q", {"y": ["a", "b"]})
    note_handed(path, "x", "~/jobs/q", {"z": ["b", "c"]})
    assert [(one.cell, one.to) for one in handed_cells(path)] == [
        ("a", "y"),
        ("b", "z"),
        ("c", "z"),
    ]
    forget_handed(path, "x", "~/jobs/q", ["a", "b"])
    assert [one.cell for one in handed_cells(path)] == ["c"]
    path.write_bytes(b"{")
    with pytest.raises(OSError, match="damaged"):
        handed_cells(path)
