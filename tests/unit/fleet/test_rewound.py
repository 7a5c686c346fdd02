"""A metrics file that was replaced, and a found curve that was told anew, do not leave their old points behind."""

from __future__ import annotations

from rgt_tui.fleet import fold_points, rewind_run
from rgt_tui.model import FileCursor, RunResume, RunState, ScalarPoint, Scalars, Series

RUN = RunState(
    name="r",
    series={"loss": Series([1, 2, 3, 4], [4.0, 3.0, 2.0, 1.0]), "lr": Series([1], [0.1])},
    resumes=(RunResume(step=1, reason="x", index=1), RunResume(step=3, reason="y", index=3)),
)


def frame(source: str, start: int, inode: int = 7, name: str = "loss") -> Scalars:
    point = ScalarPoint(step=9, at=None, epoch=None, values={name: 0.5})
    return Scalars(run="r", source=source, inode=inode, start=start, end=start + 1, points=(point,))


def test_what_follows_on_leaves_everything() -> None:
    assert rewind_run(RUN, frame("/m", 50), FileCursor(inode=7, offset=50)) is RUN
    assert rewind_run(RUN, frame("/m", 0), None) is RUN
    assert (
        rewind_run(RUN, frame("/d#loss", 4, inode=8), FileCursor(inode=7, offset=4)) is RUN
    )  # a new segment


def test_a_replaced_file_begins_anew() -> None:
    for new in (frame("/m", 0), frame("/m", 50, inode=8)):
        assert rewind_run(RUN, new, FileCursor(inode=7, offset=50)).series == {}
        assert rewind_run(RUN, new, FileCursor(inode=7, offset=50)).resumes == ()


def test_a_found_curve_is_replaced_from_where_the_frame_starts() -> None:
    back = rewind_run(RUN, frame("/d#loss", 2), FileCursor(inode=7, offset=4))
    assert list(back.series["loss"]) == [(1, 4.0), (2, 3.0)]
    assert list(back.series["lr"]) == [(1, 0.1)]
    assert [resume.index for resume in back.resumes] == [1]
    after = fold_points(back, frame("/d#loss", 2), 0.0, 0.0)
    assert list(after.series["loss"]) == [(1, 4.0), (2, 3.0), (9, 0.5)]
    assert list(RUN.series["loss"])[-1] == (4, 1.0), "the older snapshot has changed"


def test_a_found_curve_is_known_by_the_name_of_its_points() -> None:
    run = RunState(name="r", series={"val_loss": Series([1, 2, 3], [3.0, 2.0, 1.0])})
    back = rewind_run(run, frame("/d#eval_loss", 1, name="val_loss"), FileCursor(inode=7, offset=3))
    assert {name: list(series) for name, series in back.series.items()} == {"val_loss": [(1, 3.0)]}


def test_metrics_from_another_place_begin_anew() -> None:
    """Such as those that the trainer itself writes, after what was found on its console."""
    found = fold_points(RUN, frame("/d#loss", 4), 0.0, 0.0)
    assert rewind_run(found, frame("/d#lr", 0, name="lr"), None) is found
    for source in ("/d/metrics.jsonl", "/other#loss"):
        assert rewind_run(found, frame(source, 0), None).series == {}


def test_a_run_carries_how_far_its_sources_are() -> None:
    run = fold_points(RunState(name="r"), frame("/m", 50), 0.0, 0.0)
    assert run.cursors == {"/m": FileCursor(inode=7, offset=51)}
