"""Many sources, one curve: the better one wins, others fill in what lies before it, and nothing is there twice."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from rgt_box.metrics import Curve, CurveUpdate, PointSeries, SourceSeries, merge_curves, preference


def series(*points: tuple[float, float]) -> PointSeries:
    made = PointSeries()
    for x, y in points:
        made.add_point(x, y, None)
    return made


def offer(kind: str, path: str, run: str = "run", **tags: PointSeries) -> SourceSeries:
    every = {}
    for name, value in tags.items():
        tag, _, axis = name.partition("__")
        every["", tag, axis or "step"] = value
    return SourceSeries(path, kind, run, preference(kind), every)


def loss(*offers: SourceSeries, metric: str = "loss") -> Curve:
    return merge_curves(offers)["run", metric]


def xs(curve: Curve) -> list[float]:
    return [x for x, _, _ in curve.list_points()]


def test_one_source_wins_each_metric() -> None:
    log = offer("console:nanogpt", "log", loss=series((1, 1), (2, 2)), lr=series((1, 5)))
    events = offer("tensorboard", "tb", loss=series((1, 1.25), (2, 2.25)))
    found = merge_curves([log, events])
    assert found["run", "loss"].growing_part.path == "tb"
    assert found["run", "loss"].list_points() == [(1, 1.25, None), (2, 2.25, None)]
    assert found["run", "lr"].growing_part.path == "log"
    assert sorted(found) == [("run", "loss"), ("run", "lr")]


def test_a_better_source_that_appears_later_takes_over_where_it_begins() -> None:
    log = offer("console:nanogpt", "log", loss=series(*[(x, 1.0) for x in range(10)]))
    events = offer("tensorboard", "tb", loss=series((6, 2.0), (7, 2.0)))
    curve = loss(log, events)
    assert xs(curve) == [0, 1, 2, 3, 4, 5, 6, 7], (
        "what the lesser source has beyond is not mixed in"
    )
    assert curve.segment_starts() == [6]
    assert [part.path for part in curve.parts] == ["log", "tb"]


def test_the_state_of_transformers_fills_in_what_the_console_no_longer_has() -> None:
    state = offer("hf_trainer", "state", loss=series((5, 1.0), (10, 1.0), (15, 1.0)))
    log = offer("console:hf", "log", loss=series((15, 3.0), (20, 3.0)))
    assert loss(state, log).list_points() == [
        (5, 1.0, None),
        (10, 1.0, None),
        (15, 3.0, None),
        (20, 3.0, None),
    ]


def test_axes_are_never_mixed() -> None:
    log = offer("console:keras", "log", loss__epoch=series((1, 1.0), (2, 1.0)))
    rows = offer("jsonl", "rows", loss=series((100, 2.0)))
    curve = loss(log, rows)
    assert (curve.x_kind, xs(curve)) == ("step", [100])
    both = offer("jsonl", "rows", loss=series((100, 2.0)), loss__epoch=series((1, 9.0)))
    assert loss(both).list_points() == [(100, 2.0, None)]


def test_a_resume_in_a_new_file_is_a_segment_and_hides_what_it_overtakes() -> None:
    first = offer("lightning", "version_0", loss=series(*[(x, 0.0) for x in range(10)]))
    second = offer("lightning", "version_1", loss=series(*[(x, 1.0) for x in range(5, 8)]))
    curve = loss(first, second)
    assert xs(curve) == list(range(8))
    assert [y for _, y, _ in curve.list_points()] == [0.0] * 5 + [1.0] * 3
    assert curve.segment_starts() == [5]
    anew = loss(second, first)
    assert [part.path for part in anew.parts] == ["version_0"], "begun again from the start"


def test_a_resume_within_a_file_stays_a_segment() -> None:
    curve = loss(offer("rgt", "metrics.jsonl", loss=series((1, 1), (2, 1), (3, 1), (2, 5), (3, 5))))
    assert curve.segment_starts() == [2]
    assert curve.list_points() == [(1, 1, None), (2, 5, None), (3, 5, None)]


def test_epochs_of_a_console_become_steps_where_a_state_tells_how_many_make_one() -> None:
    state = offer(
        "hf_trainer",
        "state",
        loss=series((50, 1.0), (100, 1.0)),
        epoch=series((50, 0.5), (100, 1.0)),
    )
    log = offer("console:hf", "log", loss__epoch=series((1.5, 3.0), (2.0, 3.5)))
    curve = loss(state, log)
    assert (curve.x_kind, curve.list_points()) == (
        "step",
        [(50, 1.0, None), (100, 1.0, None), (150.0, 3.0, None), (200.0, 3.5, None)],
    )


def test_runs_of_a_database_are_runs() -> None:
    several = {("a", "loss", "step"): series((1, 1)), ("b", "loss", "step"): series((1, 2))}
    one = {("only", "loss", "step"): series((1, 1))}
    assert set(merge_curves([SourceSeries("db", "trackio", "run", 3, several)])) == {
        ("a", "loss"),
        ("b", "loss"),
    }
    assert set(merge_curves([SourceSeries("db", "trackio", "run", 3, one)])) == {("run", "loss")}


def test_nothing_gives_nothing() -> None:
    assert merge_curves([]) == {}
    assert merge_curves([offer("csv", "x", seed=series((1, 1)), loss=PointSeries())]) == {}


def test_only_what_is_new_is_sent() -> None:
    nan = float("nan")
    rows = offer("console:tqdm", "log", loss=series((1, 1.0), (2, nan)))
    news = CurveUpdate([], loss(rows))
    assert (news.keep, [x for x, _, _ in news.points], news.resumes) == (0, [1, 2], False)
    sent = [(x, y) for x, y, _ in news.points]
    grown = rows.series["", "loss", "step"]
    assert CurveUpdate(sent, loss(rows)).points == []
    grown.add_point(3, 3.0, None)
    news = CurveUpdate(sent, loss(rows))
    assert (news.keep, news.points, news.resumes) == (2, [(3, 3.0, None)], False)
    grown.add_point(3, 3.5, None)
    news = CurveUpdate([*sent, (3, 3.0)], loss(rows))
    assert (news.keep, news.points, news.resumes) == (2, [(3, 3.5, None)], False), (
        "a bar that corrects itself"
    )
    grown.add_point(2, 9.0, None)
    news = CurveUpdate([*sent, (3, 3.5)], loss(rows))
    assert (news.keep, news.points, news.resumes) == (1, [(2, 9.0, None)], True), "a restart"
    better = offer("tensorboard", "tb", loss=series((2, 7.0), (4, 8.0)))
    news = CurveUpdate([(1, 1.0), (2, 9.0)], loss(rows, better))
    assert (news.keep, [x for x, _, _ in news.points], news.resumes) == (1, [2, 4], True), (
        "a better source"
    )


POINTS = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 9)), max_size=12).map(
    lambda rows: series(*rows)
)
KIND = st.sampled_from(["rgt", "tensorboard", "wandb", "console:tqdm", "hf_trainer"])


@given(st.lists(st.tuples(KIND, POINTS), max_size=6))
def test_whatever_is_offered_no_x_comes_twice(rows: list[tuple[str, PointSeries]]) -> None:
    offers = [offer(kind, str(n), loss=made) for n, (kind, made) in enumerate(rows)]
    found = merge_curves(offers)
    assert bool(found) == any(made.xs for _, made in rows)
    for curve in found.values():
        places = xs(curve)
        assert places == sorted(set(places))
        assert set(curve.segment_starts()) <= set(places[1:])
        best = min(each.rank for each in offers if each.series["", "loss", "step"].xs)
        assert preference(curve.growing_part.kind) == best
        assert merge_curves(list(offers))["run", "loss"].list_points() == curve.list_points()
