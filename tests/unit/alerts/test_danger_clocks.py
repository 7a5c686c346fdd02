"""Danger clocks: one reading for the alert and the screens; never too long a time, and silent while nothing counts."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rgt_tui.health import (
    AlertState,
    ClockBound,
    ClockReading,
    RememberedBox,
    clock_readings,
    first_contact_notices,
    park_confirmed,
    pending_readings,
    step_alerts,
    update_life,
)
from rgt_tui.model import (
    BoxState,
    ClockClaim,
    ClockMode,
    ClockStart,
    DangerClock,
    DetachedSessions,
    Lifecycle,
    LinkState,
    MachineLife,
    Meter,
    MeterKind,
    PreemptionNotice,
    SlurmJob,
)
from rgt_tui.profiles import all_profiles, load_profile
from tests.unit.triage.builders import NOW, box, sample

replace = msgspec.structs.replace

HOUR, DAY = 3600.0, 86400.0
STOPPED = Meter(MeterKind.STORAGE_ONLY, Lifecycle.STOPPED, at=NOW, source="AutoDL")
RUNNING = Meter(MeterKind.COMPUTE_AND_STORAGE, Lifecycle.RUNNING, 0.5, at=NOW, source="Vast.ai")
NO_METER = Meter()


def of(platform: str, **over: Any) -> BoxState:
    """A box of a platform that answers no longer, and that no control plane speaks of."""
    given = {
        "link": LinkState.UNREACHABLE,
        "meter": NO_METER,
        "sample": None,
        "sample_at": None,
        **over,
    }
    state = box(**given)
    return replace(state, spec=replace(state.spec, profile=platform, provider=None))


def read(platform: str, now: float = NOW, **over: Any) -> tuple[ClockReading, ...]:
    return clock_readings(load_profile(platform), of(platform, **over), now)


def first(platform: str, now: float = NOW, **over: Any) -> ClockReading:
    found = read(platform, now, **over)
    assert found
    return found[0]


def test_nothing_counts_for_a_box_that_runs() -> None:
    for platform in ("autodl", "generic-ssh", "runpod", "vastai"):
        assert read(platform, link=LinkState.LIVE, sample=sample(), sample_at=NOW - 1) == ()
        assert (
            read(platform, link=LinkState.LIVE, sample=sample(), sample_at=NOW - 1, meter=RUNNING)
            == ()
        )


def test_nothing_counts_for_a_box_that_is_gone() -> None:
    assert (
        read("runpod", meter=replace(STOPPED, lifecycle=Lifecycle.GONE), sample_at=NOW - DAY) == ()
    )


@pytest.mark.parametrize(
    ("ago", "left", "level"),
    [
        (0.5 * DAY, 14.5 * DAY, "info"),
        (10 * DAY, 5 * DAY, "warn"),
        (13 * DAY, 2 * DAY, "error"),
        (16 * DAY, 0.0, "error"),
    ],
)
def test_autodl_counts_fifteen_days_from_the_stop(ago: float, left: float, level: str) -> None:
    life = MachineLife(existed=True, ran=True, rested=True, seen_at=NOW - ago, stopped_at=NOW - ago)
    found = first("autodl", meter=STOPPED, life=life)
    assert (found.seconds_left, found.level, found.approx, found.bound) == (
        left,
        level,
        False,
        ClockBound.EXACT,
    )
    assert "/root/autodl-fs" in found.consequence


def test_a_stop_that_nobody_saw_counts_from_the_last_sample() -> None:
    """Nobody looked for four days: it may have stopped right after the last look, and the worse counts."""
    life = MachineLife(existed=True, ran=True, rested=True, seen_at=NOW - 4 * DAY, stopped_at=NOW)
    found = first("autodl", meter=STOPPED, life=life)
    assert (found.seconds_left, found.most_left, found.bound) == (
        11 * DAY,
        15 * DAY,
        ClockBound.AT_LEAST,
    )
    assert "11d 0h left or more: it stopped at most 4d 0h ago" in found.text


def test_without_a_provider_the_fifteen_days_start() -> None:
    """A real AutoDL account has no control plane here: the last sample is all that is known."""
    found = first("autodl", sample_at=NOW - 3 * DAY)
    assert (found.seconds_left, found.most_left, found.bound, found.sure) == (
        12 * DAY,
        None,
        ClockBound.AT_LEAST,
        False,
    )
    assert found.text.startswith("if it has stopped, 12d 0h left or more: last seen 3d 0h ago")


def test_a_box_that_dropped_out_for_a_moment_counts_nothing() -> None:
    assert read("autodl", sample_at=NOW - 60) == ()


def test_our_own_park_is_known_to_the_second() -> None:
    found = first(
        "autodl",
        sample_at=NOW - 3 * DAY - 30,
        life=MachineLife(asked="park", parked_at=NOW - 3 * DAY),
    )
    assert (found.seconds_left, found.bound, found.sure) == (12 * DAY, ClockBound.EXACT, True)
    assert found.source == "parked through rgt"


def test_a_box_that_ran_after_its_park_is_not_parked() -> None:
    found = first(
        "autodl", sample_at=NOW - DAY, life=MachineLife(asked="park", parked_at=NOW - 3 * DAY)
    )
    assert (found.seconds_left, found.sure) == (14 * DAY, False)


def test_a_park_through_rgt_says_more_than_when_the_provider_was_read() -> None:
    """Nobody looked for four days after the park: the provider's word is of today, the park of then."""
    life = MachineLife(
        existed=True,
        ran=True,
        rested=True,
        parked_at=NOW - 4 * DAY,
        seen_at=NOW - 4 * DAY,
        stopped_at=NOW,
    )
    found = first("autodl", meter=STOPPED, life=life)
    assert (found.seconds_left, found.bound, found.source) == (
        11 * DAY,
        ClockBound.EXACT,
        "parked through rgt",
    )


def test_a_provider_that_says_stopped_for_the_first_time_counts_from_its_reading() -> None:
    found = first("autodl", meter=replace(STOPPED, at=NOW - DAY))
    assert (found.seconds_left, found.bound) == (14 * DAY, ClockBound.AT_MOST)


def test_a_stop_that_was_told_before_the_last_sample_counts_from_what_was_told() -> None:
    life = MachineLife(existed=True, rested=True, stopped_at=NOW - 2 * DAY)
    found = first("autodl", meter=replace(STOPPED, at=NOW), sample_at=NOW - DAY, life=life)
    assert (found.seconds_left, found.bound) == (13 * DAY, ClockBound.EXACT)


def test_a_box_never_seen_alive_has_at_most_the_whole_time() -> None:
    found = first(
        "autodl", meter=STOPPED, life=MachineLife(existed=True, rested=True, stopped_at=NOW - DAY)
    )
    assert (found.seconds_left, found.bound) == (14 * DAY, ClockBound.AT_MOST)
    assert found.text.startswith("at most 14d 0h left; unknown when it stopped: ")
    assert read("autodl") == (), "nobody has ever seen it"


def test_a_provider_that_cannot_be_read_says_nothing() -> None:
    """Its last word was *running*, three hours ago; since then neither it nor the box has answered."""
    old = replace(RUNNING, at=NOW - 3 * HOUR, error="503")
    found = first("runpod", meter=old, sample_at=NOW - 4 * HOUR)
    assert (found.seconds_left, found.sure) == (30 * DAY - 3 * HOUR, False)
    assert read("runpod", meter=replace(RUNNING, at=NOW - 30), sample_at=NOW - 4 * HOUR) == ()


def test_runpod_counts_about_thirty_days_and_the_double_rate() -> None:
    life = MachineLife(existed=True, ran=True, rested=True, seen_at=NOW, stopped_at=NOW)
    meter = Meter(MeterKind.STORAGE_ONLY, Lifecycle.STOPPED, 0.02, at=NOW, source="RunPod")
    removal, double = read("runpod", meter=meter, life=life)
    assert (removal.seconds_left, removal.approx) == (30 * DAY, True)
    assert (double.mode, double.seconds_left, double.per_hour) == (ClockMode.CHARGE, None, 0.02)
    assert double.text.startswith("$0.02/h without a limit: volume disk at double rate")


def test_a_charge_of_an_unknown_rate_is_not_free() -> None:
    found = first("vastai", meter=STOPPED)
    assert (found.what, found.seconds_left, found.per_hour) == (
        "disk bills while stopped",
        None,
        None,
    )
    assert found.text.startswith("rate unknown without a limit")


def test_the_balance_is_divided_by_what_the_account_burns() -> None:
    meter = replace(RUNNING, balance=10.0, burn_per_hour=0.5, at=NOW - HOUR)
    found = first("vastai", meter=meter, link=LinkState.LIVE, sample=sample(), sample_at=NOW)
    assert (found.what, found.seconds_left, found.level) == ("zero balance", 19 * HOUR, "warn")


@pytest.mark.parametrize(
    "over",
    [{"balance": None}, {"burn_per_hour": 0.0}, {"balance": math.nan}, {"burn_per_hour": None}],
)
def test_a_balance_that_says_nothing_does_not_count(over: dict[str, Any]) -> None:
    meter = replace(replace(RUNNING, balance=10.0, burn_per_hour=0.5), **over)
    assert read("vastai", meter=meter, link=LinkState.LIVE, sample=sample(), sample_at=NOW) == ()


def test_where_sources_disagree_the_worse_counts_and_both_are_said() -> None:
    end, ended = read("vastai", meter=replace(RUNNING, ends_at=NOW + DAY), sample_at=NOW)
    assert (end.what, end.seconds_left) == ("end date set by the host", DAY)
    assert (ended.what, ended.seconds_left) == ("ended rental", 3 * DAY)
    assert "deleted 48 h after the end" in ended.text
    assert "until it is destroyed or the host cleans up" in ended.text


def test_an_end_date_that_has_come_about_counts_no_more() -> None:
    meter = replace(STOPPED, ends_at=NOW - DAY)
    assert [one.what for one in read("vastai", meter=meter)] == [
        "ended rental",
        "disk bills while stopped",
    ]
    assert first("vastai", meter=meter).seconds_left == DAY


def custom(start: ClockStart, after_s: float | None) -> DangerClock:
    return DangerClock(
        what="limit", consequence="it ends", applies_when="always", mode=ClockMode.COUNTDOWN,
        counts_from=start, claims=(ClockClaim(after_s=after_s, cited_as="test"),),
    )  # fmt: skip


def test_the_walltime_is_what_the_scheduler_gave() -> None:
    profile = replace(load_profile("generic-ssh"), clocks=(custom(ClockStart.WALLTIME, None),))
    jobs = (
        SlurmJob(id="1", name="a", state="RUNNING", left_s=7200.0),
        SlurmJob(id="2", name="b", state="PENDING", left_s=60.0),
    )
    state = of(
        "generic-ssh",
        link=LinkState.LIVE,
        sample=sample(session=DetachedSessions(slurm=jobs)),
        sample_at=NOW - 200,
    )
    (found,) = clock_readings(profile, state, NOW)
    assert found.seconds_left == 7000.0
    assert clock_readings(profile, replace(state, sample=None), NOW) == ()
    assert clock_readings(profile, replace(state, sample_at=None), NOW) == ()
    off = replace(state, link=LinkState.UNREACHABLE, meter=replace(STOPPED, at=NOW))
    assert clock_readings(profile, off, NOW) == ()


@pytest.mark.parametrize(
    ("runs", "running", "off"), [("running", True, False), ("always", True, True)]
)
def test_a_charge_counts_in_its_state_alone(runs: str, running: bool, off: bool) -> None:
    clock = DangerClock(
        what="fee", consequence="it costs", applies_when="always", mode=ClockMode.CHARGE, runs=runs,
        claims=(ClockClaim(cited_as="test"),),
    )  # fmt: skip
    profile = replace(load_profile("generic-ssh"), clocks=(clock,))
    meter = replace(RUNNING, storage_per_hour=0.02)
    live = of("generic-ssh", link=LinkState.LIVE, sample=sample(), sample_at=NOW, meter=meter)
    rate = 0.02 if runs == "always" else 0.5  # what goes on in every state is the storage
    assert [one.per_hour for one in clock_readings(profile, live, NOW)] == (
        [rate] if running else []
    )
    assert bool(clock_readings(profile, of("generic-ssh", meter=STOPPED), NOW)) is off
    assert bool(clock_readings(profile, of("generic-ssh"), NOW)) is off, (
        "nobody has ever seen it run"
    )


def test_a_countdown_from_the_start_is_at_most_what_is_left_since_it_was_first_seen() -> None:
    profile = replace(load_profile("generic-ssh"), clocks=(custom(ClockStart.START, 12 * HOUR),))
    state = of(
        "generic-ssh",
        link=LinkState.LIVE,
        sample=sample(),
        sample_at=NOW,
        life=MachineLife(started_at=NOW - HOUR),
    )
    (found,) = clock_readings(profile, state, NOW)
    assert (found.seconds_left, found.bound) == (11 * HOUR, ClockBound.AT_MOST)
    assert "unknown when it started" in found.text
    assert clock_readings(profile, replace(state, life=MachineLife()), NOW) == ()
    off = replace(state, link=LinkState.UNREACHABLE, meter=replace(STOPPED, at=NOW))
    assert clock_readings(profile, off, NOW) == ()


def first_of(state: BoxState) -> tuple[str, float | None]:
    found = [
        one
        for one in clock_readings(load_profile(state.spec.profile), state, NOW)
        if one.seconds_left == 0
    ]
    return (found[0].what, found[0].seconds_left) if found else ("", None)


def test_a_limit_that_the_machine_has_outlived_is_none() -> None:
    """A paid notebook runs on where a free one ends; only the machine itself shows which it is."""
    seen = of(
        "paperspace-gradient", sample_at=NOW - 10, life=MachineLife(started_at=NOW - 7 * HOUR)
    )
    assert [
        (one.what, one.seconds_left)
        for one in clock_readings(load_profile("paperspace-gradient"), seen, NOW)
        if one.mode is ClockMode.COUNTDOWN
    ] == [("timer of a paid notebook", 5 * HOUR)]
    about = replace(seen, life=MachineLife(started_at=NOW - 6 * HOUR - 60), sample_at=NOW)
    assert first_of(about) == ("timer of a free notebook", 0.0), (
        "a minute over its end proves nothing yet"
    )
    silent = replace(seen, sample_at=NOW - 1.1 * HOUR)
    assert "timer of a free notebook" in [
        one.what for one in clock_readings(load_profile("paperspace-gradient"), silent, NOW)
    ]


@pytest.mark.parametrize(
    ("left", "level"), [(11 * HOUR, "info"), (0.9 * HOUR, "warn"), (0.2 * HOUR, "error")]
)
def test_a_session_that_ends_the_same_day_is_no_trouble_from_its_first_minute(
    left: float, level: str
) -> None:
    started = NOW - 12 * HOUR + left
    colab = of(
        "colab",
        link=LinkState.LIVE,
        sample=sample(),
        sample_at=NOW,
        life=MachineLife(started_at=started),
    )
    job = SlurmJob(id="1", name="a", state="RUNNING", left_s=left)
    slurm = of(
        "slurm",
        link=LinkState.LIVE,
        sample=sample(session=DetachedSessions(slurm=(job,))),
        sample_at=NOW,
    )
    for state in (colab, slurm):
        (found,) = clock_readings(load_profile(state.spec.profile), state, NOW)
        assert found.seconds_left == pytest.approx(left)
        assert found.level == level
        told = step_alerts(AlertState(memory=RememberedBox(past=state.life)), state, NOW)
        assert [one.level for one in told.raised if one.kind == "clock"] == (
            [] if level == "info" else [level]
        )


def test_the_control_plane_tells_the_walltime_where_the_box_does_not() -> None:
    meter = replace(RUNNING, source="Slurm", ends_at=NOW + 3 * HOUR)
    (found,) = clock_readings(load_profile("slurm"), of("slurm", meter=meter, sample_at=NOW), NOW)
    assert (found.what, found.seconds_left) == ("walltime", 3 * HOUR)


def test_a_clock_that_is_over_does_not_hide_the_next_one() -> None:
    life = MachineLife(
        existed=True, ran=True, rested=True, seen_at=NOW - 2 * DAY, stopped_at=NOW - 2 * DAY
    )
    state = of("gpushare", meter=STOPPED, life=life)
    release, emptied, charge = clock_readings(load_profile("gpushare"), state, NOW)
    assert (release.what, release.seconds_left) == ("release of the stopped instance", 8 * DAY)
    assert (emptied.what, emptied.seconds_left) == ("/hy-tmp is emptied", 0.0)
    assert (charge.mode, charge.level) == (ClockMode.CHARGE, "warn")
    told = step_alerts(AlertState(memory=RememberedBox(past=life)), state, NOW)
    assert "clock" not in [one.id for one in told.raised], (
        "eight days are no alert, and what is over is none"
    )
    late = replace(state, life=replace(life, seen_at=NOW - 9 * DAY, stopped_at=NOW - 9 * DAY))
    raised = step_alerts(AlertState(memory=RememberedBox(past=late.life)), late, NOW).raised
    assert [
        "1d 0h left: release of the stopped instance" in one.text
        for one in raised
        if one.id == "clock"
    ] == [True]


def test_a_machine_that_is_off_and_bills_in_full_says_the_full_rate() -> None:
    off = Meter(
        MeterKind.COMPUTE_AND_STORAGE, Lifecycle.STOPPED, 3.39, at=NOW, source="DigitalOcean"
    )
    life = MachineLife(existed=True, ran=True, rested=True, seen_at=NOW, stopped_at=NOW)
    (found,) = clock_readings(
        load_profile("digitalocean"), of("digitalocean", meter=off, life=life), NOW
    )
    assert (found.per_hour, found.level) == (3.39, "warn")
    assert found.text.startswith("$3.39/h without a limit: off, and billed in full")


def test_a_charge_after_a_park_is_a_warning_without_a_provider_as_well() -> None:
    parked = of(
        "lanrui", sample_at=NOW - 2 * DAY, life=MachineLife(asked="park", parked_at=NOW - DAY)
    )
    levels = {one.what: one.level for one in clock_readings(load_profile("lanrui"), parked, NOW)}
    assert levels["the data disk bills while stopped"] == "warn"


def test_what_bills_in_every_state_is_no_warning_of_a_machine_that_runs() -> None:
    live = of("lanrui", link=LinkState.LIVE, sample=sample(), sample_at=NOW, meter=RUNNING)
    (found,) = clock_readings(load_profile("lanrui"), live, NOW)
    assert (found.what, found.level, found.per_hour) == (
        "netdisk above the free quota",
        "info",
        None,
    )


def test_a_quota_of_which_nobody_tells_does_not_count() -> None:
    profile = replace(load_profile("generic-ssh"), clocks=(custom(ClockStart.QUOTA, None),))
    assert clock_readings(profile, of("generic-ssh"), NOW) == ()


def test_a_preemption_counts_by_the_boxs_clock_and_has_an_alert_of_its_own() -> None:
    notice = PreemptionNotice(source="EC2", action="stop", ends=NOW + 695.0, at=NOW, boot="boot-1")
    state = of("generic-ssh", sample=sample(notice=notice), clock_skew=600.0)
    (found,) = clock_readings(load_profile("generic-ssh"), state, NOW)
    assert (found.what, found.seconds_left, found.bound) == ("preemption", 95.0, ClockBound.EXACT)
    assert found.text == "1m35 left: EC2 takes this machine away (stop)"
    raised = step_alerts(AlertState(), state, NOW).raised
    assert [(alert.id, alert.level) for alert in raised if alert.id in ("clock", "preemption")] == [
        ("preemption", "error")
    ]
    later = clock_readings(load_profile("generic-ssh"), state, NOW + 155.0)
    assert later[0].text == "EC2 took this machine away 1m00 ago (stop)"
    unknown = replace(state, sample=sample(notice=replace(notice, ends=None)))
    (found,) = clock_readings(load_profile("generic-ssh"), unknown, NOW)
    assert found.text == "EC2 takes this machine away at an unknown time (stop)"


def test_slurm_takes_a_job_away_and_not_the_machine() -> None:
    notice = PreemptionNotice(
        source="Slurm", action="time limit", ends=NOW + 95.5, at=NOW, boot="", asked=("a", "b")
    )
    state = of("generic-ssh", sample=sample(notice=notice), clock_skew=0.0)
    (found,) = clock_readings(load_profile("generic-ssh"), state, NOW)
    assert found.text == "1m35 left: Slurm takes a job away (time limit); asked to save: a, b"
    assert found.consequence == "the job ends; steps since the last save are lost"


def test_the_soonest_comes_first_and_charges_last() -> None:
    life = MachineLife(existed=True, rested=True, seen_at=NOW, stopped_at=NOW)
    meter = replace(STOPPED, balance=1.0, burn_per_hour=0.1)
    assert [one.what for one in read("runpod", meter=meter, life=life)] == [
        "low balance",
        "removal of a long-stopped Pod",
        "volume disk at double rate",
    ]


@pytest.mark.parametrize(
    "over",
    [
        {"sample_at": NOW + 9 * DAY},
        {
            "sample_at": NOW - DAY,
            "meter": STOPPED,
            "life": MachineLife(seen_at=NOW + 1e12, stopped_at=NOW + DAY),
        },
        {"sample_at": math.inf, "meter": STOPPED},
        {"meter": replace(STOPPED, at=math.nan, ends_at=math.inf)},
    ],
)
def test_times_of_a_clock_that_was_set_leave_no_more_than_the_whole_time(
    over: dict[str, Any],
) -> None:
    for found in read("autodl", **over):
        assert found.seconds_left is None or 0 <= found.seconds_left <= 15 * DAY


_TIMES = st.one_of(
    st.none(),
    st.floats(allow_nan=True, allow_infinity=True),
    st.floats(NOW - 99 * DAY, NOW + 99 * DAY),
)


@given(
    st.sampled_from(sorted(all_profiles())),
    st.sampled_from(list(Lifecycle)),
    st.builds(MachineLife, seen_at=_TIMES, stopped_at=_TIMES, parked_at=_TIMES, started_at=_TIMES),
    _TIMES,
    st.builds(
        Meter, at=_TIMES, ends_at=_TIMES, balance=_TIMES, burn_per_hour=_TIMES, per_hour=_TIMES
    ),
)
def test_whatever_is_told_no_time_is_negative_or_too_long(
    platform: str, word: Lifecycle, life: MachineLife, sample_at: float | None, meter: Meter
) -> None:
    for found in read(
        platform, meter=replace(meter, lifecycle=word), life=life, sample_at=sample_at
    ):
        if found.seconds_left is None:
            continue
        assert found.seconds_left >= 0
        if found.counts_from is ClockStart.STOP:
            assert found.whole_s is not None
            assert found.seconds_left <= found.whole_s
            assert found.most_left is None or found.most_left >= found.seconds_left


@pytest.mark.parametrize(
    ("id_", "seconds"), [("autodl", 15 * DAY), ("runpod", 30 * DAY), ("vastai", None)]
)
def test_what_a_stop_would_start(id_: str, seconds: float | None) -> None:
    found = pending_readings(load_profile(id_))[0]
    assert (found.seconds_left, found.counting) == (seconds, False)


def test_a_charge_that_begins_with_a_stop_does_not_end() -> None:
    (found,) = pending_readings(load_profile("paperspace-core"))
    assert (found.mode, found.seconds_left, found.bound) == (
        ClockMode.CHARGE,
        None,
        ClockBound.NONE,
    )
    assert found.text.startswith("from a stop on: disk, address and snapshots bill while it is off")


def test_no_stop_no_clock() -> None:
    assert pending_readings(load_profile("generic-ssh")) == ()


def test_what_is_said_when_a_platform_is_met() -> None:
    said = first_contact_notices(load_profile("vastai"))
    assert said[0] == load_profile("vastai").top_danger
    assert any("bandwidth" in one for one in said)
    assert any("Volume" in one for one in said)


@pytest.mark.parametrize(
    "state",
    [
        of("autodl", sample_at=NOW - 11 * DAY),
        of("autodl", sample_at=NOW - 14 * DAY),
        of(
            "autodl",
            meter=STOPPED,
            life=MachineLife(seen_at=NOW - 14 * DAY, stopped_at=NOW, rested=True),
        ),
        of(
            "runpod",
            meter=STOPPED,
            life=MachineLife(seen_at=NOW - 29 * DAY, stopped_at=NOW - 29 * DAY, rested=True),
        ),
        of("vastai", meter=replace(RUNNING, ends_at=NOW + DAY), sample_at=NOW),
        of("autodl", sample_at=NOW - 3 * DAY),
        of("autodl"),
    ],
)
def test_the_alert_says_what_the_screen_shows(state: BoxState) -> None:
    """What the screens read of the published state is what the alert has read: one judge."""
    found = step_alerts(AlertState(memory=RememberedBox(past=state.life)), state, NOW)
    shown = [
        one
        for one in clock_readings(
            load_profile(state.spec.profile), replace(state, life=found.book.memory.past), NOW
        )
        if one.mode is ClockMode.COUNTDOWN
    ]
    alerts = [alert for alert in found.raised if alert.id == "clock"]
    assert [alert.text for alert in alerts] == [
        one.text for one in shown[:1] if one.level != "info"
    ]
    assert [alert.level for alert in alerts] == [
        one.level for one in shown[:1] if one.level != "info"
    ]


def test_an_alert_after_a_restart_without_any_sample() -> None:
    """Only what an earlier rgt remembered is there: neither the box nor a provider has said a word."""
    found = step_alerts(
        AlertState(memory=RememberedBox(past=MachineLife(seen_at=NOW - 14 * DAY))),
        of("autodl"),
        NOW,
    )
    assert [(alert.id, alert.level) for alert in found.raised if alert.id == "clock"] == [
        ("clock", "error")
    ]


def test_what_the_provider_said_is_remembered_until_it_is_read_again() -> None:
    life = MachineLife(
        existed=True, ran=True, rested=True, seen_at=NOW - 4 * DAY, stopped_at=NOW - 4 * DAY
    )
    found = first("autodl", life=life)
    assert (found.seconds_left, found.bound, found.sure) == (11 * DAY, ClockBound.EXACT, True)
    assert read("autodl", life=life, link=LinkState.LIVE, sample=sample(), sample_at=NOW - 1) == ()


def test_that_a_box_runs_is_noted_every_ten_minutes() -> None:
    live = of("autodl", link=LinkState.LIVE, sample=sample(), sample_at=NOW)
    first_ = update_life(MachineLife(), live, live.meter.lifecycle)
    assert (first_.seen_at, first_.started_at) == (NOW, NOW)
    assert update_life(first_, replace(live, sample_at=NOW + 599), Lifecycle.UNKNOWN) is first_
    assert (
        update_life(first_, replace(live, sample_at=NOW + 600), Lifecycle.UNKNOWN).seen_at
        == NOW + 600
    )
    assert (
        update_life(first_, replace(live, sample_at=NOW - DAY), Lifecycle.UNKNOWN).seen_at
        == NOW - DAY
    ), "the clock was set back"
    assert (
        update_life(
            first_,
            replace(live, link=LinkState.UNREACHABLE, sample_at=NOW - DAY),
            Lifecycle.UNKNOWN,
        )
        is first_
    )


def test_only_a_park_that_it_has_not_run_since_counts() -> None:
    assert park_confirmed(MachineLife(seen_at=NOW), NOW - HOUR).parked_at is None
    assert park_confirmed(MachineLife(seen_at=NOW - 2 * HOUR), NOW - HOUR).parked_at == NOW - HOUR
    assert park_confirmed(MachineLife(parked_at=NOW), NOW - HOUR).parked_at == NOW


def test_a_box_that_runs_again_forgets_its_park() -> None:
    parked = MachineLife(asked="park", seen_at=NOW - DAY, parked_at=NOW - DAY)
    live = of("autodl", link=LinkState.LIVE, sample=sample(), sample_at=NOW)
    assert update_life(parked, live, Lifecycle.UNKNOWN).parked_at is None
    assert (
        update_life(
            parked,
            replace(live, link=LinkState.UNREACHABLE, sample_at=NOW - DAY),
            Lifecycle.UNKNOWN,
        ).parked_at
        == NOW - DAY
    )
