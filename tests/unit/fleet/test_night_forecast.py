"""The night ahead: when it ends, what it costs, and that unknown stays unknown."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from datetime import datetime

import msgspec
import pytest

from rgt_tui.fleet.history import night_forecast
from rgt_tui.model import (
    ArmedRecord,
    AutostopMode,
    BoxState,
    EndAction,
    FoundRun,
    MeterKind,
    ProviderRef,
    ReducedHistory,
    SelfStopState,
    Series,
)
from rgt_tui.profiles import load_profile, run_cost
from tests.ui.boxes import (
    cell,
    disk,
    gpu,
    meter,
    profile,
    queue,
    run,
    running_box,
    sample,
    stale_box,
)

NOW = datetime(2026, 11, 24, 23, 0).astimezone().timestamp()  # a Tuesday, at eleven in the evening
HOUR = 3600.0
replace = msgspec.structs.replace


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Use a zone whose clocks change."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def training_box(*, step: int = 1200, total: int | None = 3600, waiting: int = 0) -> BoxState:
    """Return a box with a run of a step a second since `step` seconds, at $1 per hour."""
    box = running_box("lab", at=NOW)
    points = [(at, float(at)) for at in range(step - 400, step + 1, 10)]
    times = [(at, NOW - step + at) for at in range(step - 400, step + 1, 10)]
    going = replace(
        run("lstm-a"),
        step=step,
        total_steps=total,
        last_at=NOW,
        progressed_at=NOW,
        series={"loss": Series().with_points(points), "@time": Series().with_points(times)},
        resumes=(),
    )
    cells = [cell("lstm-a", "running", started=NOW - step)]
    cells += [cell(f"next-{number}") for number in range(waiting)]
    return replace(
        box,
        runs=(going,),
        queues=(replace(queue(*cells, at=NOW), runner_alive=True),),
        found=(),
        meter=replace(
            meter(), kind=MeterKind.COMPUTE_AND_STORAGE, per_hour=1.0, currency="USD", at=NOW,
            balance=None, at_least=False,
        ),
    )  # fmt: skip


def night_of(box: BoxState) -> night_forecast.NightForecast:
    """Return the night of one box."""
    return night_forecast.forecast_night([(box, profile())], NOW)


def night_on(platform: str, box: BoxState, **changes: object) -> night_forecast.NightForecast:
    """Return the night of one box of a platform; `changes` are keys of the fleet file."""
    keys = {"profile": platform, "provider": ProviderRef(platform, "i-1"), **changes}
    box = replace(box, spec=replace(box.spec, **keys))
    return night_forecast.forecast_night([(box, load_profile(platform))], NOW)


def armed_record(no_progress_s: float = 0.0) -> ArmedRecord:
    """Return the record of a box that parks itself after half an hour."""
    return ArmedRecord(
        box="lab", kind="x", account="a", instance="1", boot="b", mode=AutostopMode.IDLE,
        action=EndAction.PARK, limit_s=1800.0, at=NOW - 60, no_progress_s=no_progress_s,
    )  # fmt: skip


def hung_box() -> BoxState:
    """Return a box whose run has lived for 41 minutes at one step, with a GPU in its memory."""
    box = training_box(total=None)
    process = replace(sample(at=NOW).procs[0], run="lstm-a", cpu_pct=0.3)
    stuck = replace(box.runs[0], progressed_at=NOW - 41 * 60)
    idle = sample(at=NOW, gpus=(gpu(0.0, sim=False),), procs=(process,))
    return replace(box, runs=(stuck,), sample=idle, sample_at=NOW)


def text_of_night(forecast: night_forecast.NightForecast, width: int = 100) -> str:
    """Return the forecast as a person reads it."""
    return "\n".join(line.text for line in night_forecast.night_lines(forecast, width))


def test_the_axis_goes_to_the_next_noon_and_costs_to_seven() -> None:
    morning, noon = night_forecast.find_morning(NOW)
    assert (morning - NOW, noon - morning) == (8 * HOUR, 5 * HOUR)
    early, _ = night_forecast.find_morning(morning - 60.0)
    assert early == morning


def test_a_run_that_keeps_its_pace_ends_when_its_steps_are_done() -> None:
    box = training_box()
    end = night_forecast.forecast_end(box, box.runs[0], NOW)
    assert end is not None
    assert end.likely == pytest.approx(NOW + 2400)
    assert end.earliest < end.likely < (end.latest or 0)
    night = night_of(box).boxes[0]
    assert night.works
    assert night.cost is not None
    assert night.cost.value == pytest.approx(8.0)
    assert night.wasted is not None
    least, likely, most = night.wasted
    assert likely == pytest.approx(8.0 - 2400 / HOUR)
    assert least < likely < most


def test_a_slower_last_quarter_counts_and_widens_the_spread() -> None:
    box = training_box()
    fast = [(at, NOW - 1800 + at) for at in range(0, 900, 10)]
    slow = [(900 + at, NOW - 900 + 3 * at) for at in range(0, 301, 10)]
    series = {**box.runs[0].series, "@time": Series().with_points([*fast, *slow])}
    end = night_forecast.forecast_end(box, replace(box.runs[0], series=series), NOW)
    assert end is not None
    assert end.likely == pytest.approx(NOW + 3 * 2400)
    assert end.earliest < NOW + 2400 + 1


def test_the_eta_of_status_and_fleet_is_the_same_and_leaves_start_up_out() -> None:
    box = training_box()
    late = replace(
        box,
        queues=(replace(queue(cell("lstm-a", "running", started=NOW - 9000)), runner_alive=True),),
    )
    end = night_forecast.forecast_end(late, late.runs[0], NOW)
    cost = run_cost(late, "lstm-a", NOW)
    assert end is not None
    assert cost is not None
    assert cost.left_s == pytest.approx(2400)
    assert end.likely == pytest.approx(NOW + 2400)
    assert cost.per_1000_steps.value == pytest.approx(9000 / 1200 * 1000 / HOUR), (
        "start-up is paid, too"
    )


def test_cells_that_wait_come_after_it_with_a_wide_spread_until_one_has_ended() -> None:
    one = night_of(training_box(waiting=2)).boxes[0].end
    assert one is not None
    assert one.likely == pytest.approx(NOW + 2400 + 2 * 3600)
    box = training_box(waiting=2)
    ended = cell("before", "done", started=NOW - 4000, ended=NOW - 2200)
    known = replace(box, queues=(replace(box.queues[0], cells=(ended, *box.queues[0].cells)),))
    end = night_of(known).boxes[0].end
    assert end is not None
    assert end.likely == pytest.approx(NOW + 2400 + 2 * 1800)


def test_what_is_unknown_is_said_and_costs_no_zero() -> None:
    for box in (training_box(total=None), stale_box("lab", at=NOW)):
        forecast = night_of(box)
        night = forecast.boxes[0]
        assert night.end is None
        assert night.wasted is None
        assert night.unknown
        shown = text_of_night(forecast)
        assert "unknown" in shown
        assert "of it without work  unknown" in shown or "rest unknown" in shown
        assert "??" in shown
    assert (
        night_of(replace(training_box(), meter=replace(meter(), per_hour=None))).boxes[0].cost
        is None
    )


def test_a_box_without_work_bills_for_nothing_and_autostop_is_proposed() -> None:
    box = training_box()
    done = replace(box.queues[0], cells=(cell("lstm-a", "done"),), runner_alive=False)
    ended = replace(box, queues=(done,), sample=replace(sample(at=NOW), procs=()), sample_at=NOW)
    forecast = night_on("runpod", ended)
    night = forecast.boxes[0]
    assert night.works is False
    assert night.wasted == pytest.approx((8.0, 8.0, 8.0))
    assert forecast.advice[0].command == "autostop lab --idle 30m"
    assert "rgt autostop lab --idle 30m" in text_of_night(forecast)


@pytest.mark.parametrize(
    ("platform", "changes"),
    [("lambda", {}), ("runpod", {"protected": True}), ("runpod", {"provider": None})],
)
def test_a_box_that_cannot_stop_itself_is_offered_a_message_and_a_person_stops_it(
    platform: str, changes: dict[str, object]
) -> None:
    box = training_box(total=None)
    ended = replace(box, queues=(replace(box.queues[0], cells=(), runner_alive=False),), runs=())
    ended = replace(ended, sample=replace(sample(at=NOW), procs=()), sample_at=NOW)
    for state, command in ((ended, "autostop lab --idle 30m --ask"), (box, "lease lab 8h --ask")):
        (one,) = night_on(platform, state, **changes).advice
        assert one.command == command
        assert "the box cannot stop itself: it notifies you (rgt notify lab)" in one.why
        assert "you stop it (rgt down lab)" in one.why


def test_a_box_that_cannot_be_armed_at_all_is_offered_no_command() -> None:
    forecast = night_on("runpod", training_box(total=None), untrusted=True)
    (one,) = forecast.advice
    assert one.command == ""
    assert "stop it yourself (rgt down lab)" in one.why
    assert " 1  lab   its end is unknown" in text_of_night(forecast)


def test_a_hung_run_is_offered_with_its_evidence_where_the_box_can_be_armed_for_it() -> None:
    hung = hung_box()
    (one,) = night_on("runpod", hung).advice
    assert one.command == "autostop lab --idle 30m --idle-if no-progress"
    assert "lstm-a, pid 2231, lives and holds GPU 0 (15.8 GiB), but makes no progress" in one.why
    assert "step 1,200 for 41m00, GPU 0%, CPU <1%; it keeps the box on" in one.why
    (one,) = night_on("lambda", hung).advice
    assert one.command == "autostop lab --idle 30m --idle-if no-progress --ask"
    (one,) = night_on("runpod", hung, idle_if="no-progress=2h").advice
    assert one.command == "autostop lab --idle 30m", "the fleet file has the condition"
    record = armed_record(no_progress_s=3600.0)
    armed = replace(hung, self_stop=SelfStopState(armed=(record,)))
    assert "autostop" not in str(night_on("runpod", armed).advice), "it is armed for that"
    without = replace(hung, self_stop=SelfStopState(armed=(replace(record, no_progress_s=0.0),)))
    assert "--idle-if" in night_on("runpod", without).advice[0].command, "a hung run keeps it on"


def test_an_armed_box_parks_after_its_end_and_nothing_is_proposed() -> None:
    record = armed_record()
    forecast = night_of(replace(training_box(), self_stop=SelfStopState(armed=(record,))))
    night = forecast.boxes[0]
    assert night.off is not None
    assert night.off.likely == pytest.approx(NOW + 2400 + 1800)
    assert night.wasted == pytest.approx((0.5, 0.5, 0.5))
    assert night.cost is not None
    assert night.cost.value == pytest.approx((2400 + 1800) / HOUR)
    assert not [one for one in forecast.advice if "autostop" in one.command]


def test_a_disk_that_grows_is_full_at_its_pace_and_one_that_does_not_is_not() -> None:
    ats = tuple(NOW - 3600 + 60 * n for n in range(61))
    grows = ReducedHistory(
        names=("disk:/w",), at=ats, values=tuple((50 + n / 6,) for n in range(61))
    )
    full = night_forecast.forecast_full(grows, "disk:/w", 60.0, NOW)
    assert full is not None
    assert full.likely == pytest.approx(NOW + 4 * HOUR, rel=1e-6)
    still = replace(grows, values=tuple((50.0,) for _ in range(61)))
    assert night_forecast.forecast_full(still, "disk:/w", 50.0, NOW) is None
    assert (
        night_forecast.forecast_full(
            replace(grows, at=ats[:3], values=grows.values[:3]), "disk:/w", 60.0, NOW
        )
        is None
    )
    box = replace(training_box(), recent=ReducedHistory(), past=replace(grows, names=("disk:/w",)))
    shown = replace(
        sample(at=NOW),
        disks=(replace(disk("/w", 60.0, 1.0), bytes_used=60, bytes_free=40, bytes_total=100),),
    )
    forecast = night_of(replace(box, sample=shown))
    assert any("/w has no bytes left" in event.text for event in forecast.visible_events)
    assert "✖" in text_of_night(forecast)
    assert any(one.command == "notify lab" for one in forecast.advice)


def test_no_line_is_wider_than_the_terminal_and_the_marks_are_in_order() -> None:
    forecast = night_of(training_box(waiting=3))
    for width in (60, 80, 120, 200):
        lines = night_forecast.night_lines(forecast, width)
        assert all(len(line.text) <= width for line in lines)
        row = next(line.text for line in lines if line.text.startswith(" lab"))
        assert row.index("━") < row.index("◆") < row.index("░")


def test_what_is_wrapped_continues_below_its_own_column() -> None:
    boxes = [
        (replace(training_box(), spec=replace(training_box().spec, name=name)), profile())
        for name in ("box-a", "runpod-demo")
    ]
    shown = text_of_night(night_forecast.forecast_night(boxes, NOW), 80).splitlines()
    (legend,) = [line for line in shown if "bills without work" in line]
    assert legend.endswith("╎ 07:00"), "the legend fits in one line"
    first, second = (line.index("billed without work") for line in shown if "autostop" in line)
    assert first == second
    unknown = [n for n, line in enumerate(shown) if line.startswith(" unknown")]
    assert len(unknown) == 1 and " 2 boxes " in shown[unknown[0]], "the same is said once"
    text_at = shown[unknown[0]].index("when a disk is full")
    assert shown[unknown[0] + 1].startswith(" " * text_at)
    assert shown[unknown[0] + 1][text_at] != " "


def test_a_time_has_its_spread() -> None:
    forecast = night_of(training_box())
    assert "23:40 (23:36–23:44)" in text_of_night(forecast)
    assert night_forecast.ForecastTime(1.0, 2.0, None).latest is None


@pytest.mark.parametrize("width", [60, 80, 100, 120, 200])
@pytest.mark.parametrize("minutes", [0, 7, 31, 59])
def test_the_labels_of_the_axis_never_touch(width: int, minutes: int) -> None:
    now = NOW + 60.0 * minutes
    forecast = night_forecast.forecast_night([(training_box(), profile())], now)
    axis = night_forecast.night_lines(forecast, width)[0].text
    labels = axis.split()
    assert labels and all(len(label) == 5 for label in labels), axis
    assert not any(f"{one} {other}" in axis for one, other in itertools.pairwise(labels)), axis


@pytest.mark.usefixtures("berlin")
@pytest.mark.parametrize(
    ("evening", "hours", "ninth"),
    [("2026-10-24T23:00", 9.0, "07:00"), ("2027-03-27T23:00", 7.0, "09:00")],
)
def test_morning_is_at_seven_although_the_clocks_change_at_night(
    evening: str, hours: float, ninth: str
) -> None:
    now = datetime.fromisoformat(evening).timestamp()
    morning, noon = night_forecast.find_morning(now)
    assert (morning - now, noon - morning) == (hours * HOUR, 5 * HOUR)
    for width in (60, 80, 100, 120, 200):
        night = night_forecast.forecast_night([(training_box(), profile())], now)
        axis = night_forecast.night_lines(night, width)[0].text
        labels = axis.split()
        assert labels == sorted(labels) and all(len(label) == 5 for label in labels), axis
        at = night_forecast._find_column(now + 9 * HOUR, night, width - 6)
        assert ninth not in labels or axis.index(ninth) == 5 + at, axis
    assert ninth in labels, "the widest has all hours"


def test_a_run_that_makes_no_progress_has_no_end() -> None:
    hung = training_box()
    hung = replace(hung, runs=(replace(hung.runs[0], progressed_at=NOW - 41 * 60),))
    night = night_of(hung).boxes[0]
    assert (night.works, night.end, night.wasted) == (True, None, None)
    assert "the end of lstm-a: it has made no step for 41m00" in night.unknown
    process = FoundRun(name="lstm-a", pid=7, started=NOW - 9000, command="train.py", alive=True)
    night = night_of(replace(hung, queues=(), found=(process,))).boxes[0]
    assert (night.works, night.end) == (True, None)
    assert "the end of lstm-a: it has made no step for 41m00" in night.unknown
    cost = run_cost(hung, "lstm-a", NOW)
    assert cost is not None and (cost.left_s, cost.to_end) == (None, None), "nor anywhere else"
