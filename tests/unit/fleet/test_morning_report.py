"""The report of a night: nothing unknown is shown as nothing."""

from __future__ import annotations

import msgspec
import pytest

from rgt_tui.fleet.history import morning_report as reports
from rgt_tui.health import ClockReading
from rgt_tui.model import (
    ArmedRecord,
    AutostopMode,
    BoxSpec,
    BoxState,
    ClockMode,
    CostTally,
    EndAction,
    Happening,
    MoneyAmount,
    NightFacts,
    SelfStopState,
    UnwatchedSpan,
)

NIGHT = 1_790_000_000.0
MORNING = NIGHT + 8 * 3600
replace = msgspec.structs.replace


def happening(n: int, level: str, about: str, text: str = "x", box: str = "a") -> Happening:
    return Happening(n, NIGHT + n, box, text, level, about)


def night(*rows: Happening, **changes: object) -> NightFacts:
    whole = NightFacts(
        since=NIGHT,
        until=MORNING,
        happened=rows,
        counted_from=NIGHT - 30,
        before=(CostTally("USD", 10.0, 1.0),),
        after=(CostTally("USD", 13.1, 1.4),),
    )
    return replace(whole, **changes)


def text(report: reports.NightReport) -> str:
    return "   ".join(
        f"{word.label} {word.text}".strip() for word in reports.report_words(report, MORNING)
    )


def test_what_a_night_cost_and_what_was_for_nothing() -> None:
    report = reports.morning_report(night(), (), ())
    assert not any(each.at_least for each in (*report.spent, *report.idle))
    assert "spent $3.10" in text(report)
    assert "wasted $0.40" in text(report)
    assert "0 errors" in text(report)
    assert "nothing known to be lost" in text(report)
    assert "next clock none known" in text(report)
    assert "not watched" not in text(report)


def test_currencies_are_never_added_up_and_a_new_one_counts_from_nothing() -> None:
    report = reports.morning_report(
        night(after=(CostTally("USD", 13.1, 1.0), CostTally("CNY", 9.2, 8.91))), (), ()
    )
    assert [(each.currency, round(each.value, 2)) for each in report.spent] == [
        ("USD", 3.1),
        ("CNY", 9.2),
    ]
    assert [(each.currency, round(each.value, 2)) for each in report.idle] == [
        ("USD", 0.0),
        ("CNY", 8.91),
    ]


@pytest.mark.parametrize(
    "changes",
    [
        {"at_least": True},
        {"rests": (UnwatchedSpan(NIGHT + 60, NIGHT + 3660),)},
        {"counted_from": NIGHT + 3600},
    ],
)
def test_a_sum_that_lacks_hours_or_prices_is_a_lower_bound(changes: dict[str, object]) -> None:
    report = reports.morning_report(night(**changes), (), ())
    assert all(each.at_least for each in (*report.spent, *report.idle))
    assert "spent ≥ $3.10" in text(report)


@pytest.mark.parametrize(
    "changes",
    [
        {"counted_from": None},
        {"before": (), "after": ()},
        {"after": (CostTally("USD", 10.0, 1.0),), "rests": (UnwatchedSpan(NIGHT, MORNING),)},
    ],
)
def test_what_nobody_knows_is_never_nothing(changes: dict[str, object]) -> None:
    report = reports.morning_report(night(**changes), (), ())
    assert report.spent == report.idle == ()
    assert "spent unknown" in text(report)
    assert "wasted unknown" in text(report)


def test_at_least_nothing_is_not_said_of_a_currency_beside_one_that_is_known() -> None:
    after = (CostTally("USD", 10.001, 1.001), CostTally("CNY", 9.2, 8.91))
    report = reports.morning_report(night(after=after, at_least=True), (), ())
    assert (
        [each.currency for each in report.spent]
        == [each.currency for each in report.idle]
        == ["CNY"]
    )


def test_time_that_nobody_watched_is_told() -> None:
    report = reports.morning_report(
        night(rests=(UnwatchedSpan(NIGHT, NIGHT + 3600), UnwatchedSpan(MORNING - 600, MORNING))),
        (),
        (),
    )
    assert report.unwatched == 4200
    assert "not watched for 1h10" in text(report)


def test_money_that_is_counted_from_elsewhere_says_from_when() -> None:
    early = reports.morning_report(night(counted_from=NIGHT - 7200), (), ())
    assert early.money_since == NIGHT - 7200
    assert "money counted since" in text(early)
    assert reports.morning_report(night(), (), ()).money_since is None


def test_an_error_is_over_when_something_milder_is_said_of_the_same() -> None:
    report = reports.morning_report(
        night(
            happening(1, "error", "inodes:/w"),
            happening(2, "error", "inodes:/w"),  # worse, not another one
            happening(3, "error", "inodes:/w", box="b"),
            happening(4, "warn", "inodes:/w"),
            happening(5, "info", "inodes:/w"),
            happening(6, "error", "memory"),
            happening(7, "error", ""),
            happening(8, "info", ""),
            happening(9, "error", "inodes:/w"),  # and again
        ),
        (),
        (),
    )
    assert (report.errors, report.ended) == (5, 1)
    assert "5 errors, 1 over since" in text(report)


def armed(off: float | None, **changes: object) -> BoxState:
    arm = ArmedRecord(
        box="a", kind="runpod", account="x", instance="i", boot="b", mode=AutostopMode.IDLE, action=EndAction.PARK,
        limit_s=60.0, at=NIGHT - 99, per_hour=0.5,
    )  # fmt: skip
    stop = replace(SelfStopState(armed=(arm,), off_at=off), **changes)
    return BoxState(spec=BoxSpec(name="a", host="h"), self_stop=stop)


def test_what_a_box_saved_by_stopping_itself_is_an_estimate() -> None:
    report = reports.morning_report(night(), (armed(MORNING - 7200),), ())
    assert report.saved == (MoneyAmount(1.0, "USD", estimated=True),)
    assert "saved by autostop ~$1.00" in text(report)
    told = reports.morning_report(night(), (armed(MORNING - 7200, saved=0.7),), ())
    assert told.saved == (MoneyAmount(0.7, "USD", estimated=True),)


def test_a_stop_without_a_price_saved_nobody_knows_what() -> None:
    box = armed(MORNING - 7200)
    assert box.self_stop is not None
    dear = replace(
        box,
        self_stop=replace(box.self_stop, armed=(replace(box.self_stop.armed[0], per_hour=None),)),
    )
    assert "saved by autostop unknown" in text(reports.morning_report(night(), (dear,), ()))


def test_a_stop_of_another_night_is_not_of_this() -> None:
    assert "autostop" not in text(
        reports.morning_report(night(), (armed(NIGHT - 1), armed(None)), ())
    )


def test_what_is_gone_is_lost() -> None:
    report = reports.morning_report(
        night(happening(1, "error", "gone", "the provider no longer knows it")), (), ()
    )
    assert "lost a: the provider no longer knows it" in text(report)
    assert "nothing known" not in text(report)


def test_the_next_clock_is_the_soonest_that_anybody_knows() -> None:
    def clock(box: str, left: float | None) -> reports.NextClock:
        return reports.NextClock(
            box,
            ClockReading(
                what="x",
                mode=next(iter(ClockMode)),
                seconds_left=left,
                consequence="",
                level="warn",
                text="",
            ),
        )

    report = reports.morning_report(
        night(), (), (clock("a", 90_000.0), clock("b", 7200.0), clock("c", None))
    )
    assert "next clock b 2h00" in text(report)


def test_a_long_time_is_not_called_a_night() -> None:
    assert text(reports.morning_report(night(), (), ())).startswith("night ")
    assert not text(reports.morning_report(night(since=NIGHT - 8 * 3600), (), ())).startswith(
        "night "
    )


def test_each_box_that_ended_in_the_night_is_named_with_its_receipt() -> None:
    rows = (
        happening(1, "error", reports.ENDED, "unknown whether stopped"),
        happening(2, "info", reports.ENDED, "stopped by you"),
        happening(3, "info", "", "park sent by you", box="b"),
    )
    report = reports.morning_report(night(*rows), (), ())
    assert report.receipts == ("a",)
    assert "receipts rgt receipt a" in text(report)
    assert "receipts" not in text(reports.morning_report(night(), (), ()))
