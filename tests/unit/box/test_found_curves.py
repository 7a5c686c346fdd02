"""What a client that comes back is told of a found curve: what is new, and all of it where its own points are wrong."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from rgt_box.metrics import Curve, CurvePart
from rgt_box.streams import curve_followers

Points = list[tuple[float, float]]
LONG: Points = [(float(step), 4.0 - step / 1000) for step in range(4 * curve_followers.BEHIND)]


def curve(*parts: Points) -> Curve:
    made = []
    for points in parts:
        xs, ys = [x for x, _ in points], [y for _, y in points]
        made.append(part(xs, ys))
    return Curve("step", made)


def part(xs: list[float], ys: list[float]) -> CurvePart:
    return CurvePart("f", "csv", "loss", xs, ys, [None] * len(xs), [])


def told(sent: curve_followers.SentCurve, now: Curve) -> tuple[int, int, Points]:
    """Return the cursor's number, where it begins and what is told, all in one frame."""
    start, points, _ = sent.new_points(now)
    return sent.prefix_checksum(start + len(points)), start, [(x, y) for x, y, _ in points]


@pytest.mark.parametrize("known", [1, curve_followers.BEHIND, len(LONG)])
def test_a_client_that_comes_back_is_told_what_is_new(known: int) -> None:
    mark, start, points = told(curve_followers.SentCurve(None), curve(LONG[:known]))
    assert (start, points) == (0, LONG[:known])
    more = [*LONG[:known], (9000.0, math.nan)]
    again, start, points = told(curve_followers.SentCurve((mark, known)), curve(more))
    assert (start, len(points)) == (known, 1)
    assert again == told(curve_followers.SentCurve(None), curve(more))[0], (
        "a number does not depend on how it was sent"
    )


@pytest.mark.parametrize("place", [0, 5, len(LONG) - 1], ids=["first", "middle", "last"])
def test_a_point_that_was_corrected_meanwhile_is_told_again(place: int) -> None:
    mark, _, _ = told(curve_followers.SentCurve(None), curve(LONG))
    now = [*LONG, (9000.0, 1.0)]
    now[place] = (LONG[place][0], 0.5)
    _, start, points = told(curve_followers.SentCurve((mark, len(LONG))), curve(now))
    assert (start, points) == (0, now)


def test_a_correction_that_is_seen_is_told_from_there_and_counts_for_the_next_time() -> None:
    sent = curve_followers.SentCurve(None)
    told(sent, curve(LONG))
    last = [*LONG[:-1], (LONG[-1][0], 0.5)]
    mark, start, points = told(sent, curve(last))
    assert (start, points) == (len(LONG) - 1, last[-1:])
    assert told(curve_followers.SentCurve((mark, len(LONG))), curve(last))[1:] == (len(LONG), [])
    early = [LONG[0], (LONG[1][0], 0.5), *LONG[2:]]
    mark, start, _ = told(sent, curve(early))
    assert start == 1
    assert told(curve_followers.SentCurve((mark, len(LONG))), curve(early))[1:] == (len(LONG), [])


def test_a_segment_that_began_meanwhile_is_told_behind_what_is_known() -> None:
    mark, _, _ = told(curve_followers.SentCurve(None), curve(LONG))
    start, points, resumes = curve_followers.SentCurve((mark, len(LONG))).new_points(
        curve(LONG, [(9000.0, 2.0)])
    )
    assert (start, len(points), resumes) == (len(LONG), 1, True)


@pytest.mark.parametrize(
    ("printed", "planned"),
    [
        ("step {n}/500 | loss 2.5\n", 500),
        # Batches, of which several make an update.
        ("step {n}0/5000 | loss 2.5\n", None),
        ("step {n} | loss 2.5\n", None),
    ],
)
def test_a_log_says_how_many_steps_a_metrics_file_goes_to(
    printed: str, planned: int | None, tmp_path: Path
) -> None:
    rows = [f"{n},{9 - n / 10}\n" for n in range(1, 41)]
    (tmp_path / "run").mkdir()
    (tmp_path / "run/metrics.csv").write_text("".join(["step,loss\n", *rows]))
    log = tmp_path / "train.log"
    log.write_text("".join(printed.format(n=n) for n in range(1, 41)))
    curves = curve_followers.FoundScalars("a", str(tmp_path / "run"), str(log), {})
    curves.takes_only_totals = True
    values = [point[3] for frame in curves.poll() for point in frame.get("points", ())]
    assert [value["total_steps"] for value in values if "total_steps" in value] == (
        [] if planned is None else [planned]
    )
    assert curves.has_total is (planned is not None)
    assert curves.is_read_exactly
    assert curves.has_loss


@pytest.mark.parametrize(
    ("rows", "planned"),
    # Keras' CSVLogger counts from 0; fractions of epochs are counted by their points.
    [
        ([f"{n - 1},{9 - n / 10}\n" for n in range(1, 13)], 90),
        (["0.5,2\n", "1.5,1\n", "12,0.5\n"], None),
    ],
)
def test_a_log_says_how_many_epochs_a_metrics_file_goes_to(
    rows: list[str], planned: int | None, tmp_path: Path
) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run/history.csv").write_text("".join(["epoch,loss\n", *rows]))
    log = tmp_path / "train.log"
    log.write_text("".join(f"Epoch {n}/90 | loss {9 - n / 10}\n" for n in range(1, 13)))
    curves = curve_followers.FoundScalars("a", str(tmp_path / "run"), str(log), {})
    curves.takes_only_totals = True
    frames = curves.poll()
    values = [point[3] for frame in frames for point in frame.get("points", ())]
    assert {frame["axis"] for frame in frames} == {"epoch"}
    assert [value["total_steps"] for value in values if "total_steps" in value] == (
        [] if planned is None else [planned]
    )
    assert curves.has_total is (planned is not None)
