"""Samples into means by the minute, and what a box is known by."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from rgt_tui.model import (
    BoxSpec,
    BoxState,
    DiskReading,
    GpuReading,
    MemoryReading,
    ProviderRef,
    Sample,
)
from rgt_tui.store import MinuteMeans, history_path
from rgt_tui.store.database import box_identity
from rgt_tui.store.minute_means import LONGEST_MOUNT

replace = msgspec.structs.replace


def state(at: float, util: float | None, used: int = 50) -> BoxState:
    gpu = GpuReading(index=0, name="g", util=util, vram_used=25, vram_total=100)
    disk = DiskReading(mount="/data", bytes_total=100, bytes_used=used, bytes_free=100 - used)
    sample = Sample(
        boot="b", seq=1, at=at, gpus=(gpu,), mem=MemoryReading(used=3, limit=4), disks=(disk,)
    )
    return BoxState(spec=BoxSpec(name="a", host="h"), sample=sample, sample_at=at)


def test_a_minute_is_the_mean_of_what_was_read_in_it() -> None:
    means = MinuteMeans()
    for at, util in ((0.0, 10.0), (30.0, 20.0), (59.9, None), (60.0, 99.0)):
        means.add_sample(state(at, util))
    assert means.take_finished(65.0) == ()
    (first,) = means.take_finished(70.0)
    assert (first.box, first.slot, first.count) == ("a", 0, 3)
    assert first.values == {"util": 15.0, "vram": 25.0, "cgroup": 75.0, "disk:/data": 50.0}
    (last,) = means.take_finished(None)
    assert (last.slot, last.values["util"]) == (1, 99.0)
    assert means.take_finished(None) == ()


def test_a_minute_of_the_future_does_not_stay_open_for_ever() -> None:
    means = MinuteMeans()
    means.add_sample(state(7200.0, 1.0))
    assert [mean.slot for mean in means.take_finished(60.0)] == [120]


@pytest.mark.parametrize("util", [1e39, -5.0, float("inf"), float("nan")])
def test_what_no_share_can_be_is_left_out(util: float) -> None:
    means = MinuteMeans()
    means.add_sample(state(0.0, 20.0))
    means.add_sample(state(1.0, util))
    (mean,) = means.take_finished(None)
    assert (mean.values["util"], mean.count) == (20.0, 2)


@pytest.mark.parametrize("at", [-1e300, -1.0, 1e300, float("-inf"), float("nan")])
def test_a_sample_of_no_time_belongs_to_no_minute(at: float) -> None:
    means = MinuteMeans()
    means.add_sample(state(at, 20.0))
    assert means.take_finished(None) == ()


def test_a_sample_that_cannot_be_added_up_leaves_nothing_behind() -> None:
    means = MinuteMeans()
    with pytest.raises(OverflowError):
        means.add_sample(state(0.0, 20.0, used=10**400))
    means.add_sample(state(1.0, 20.0))
    (mean,) = means.take_finished(None)
    assert mean.count == 1


def test_a_mount_point_without_end_is_not_kept() -> None:
    means = MinuteMeans()
    disk = DiskReading(mount="/" + "x" * LONGEST_MOUNT, bytes_total=100, bytes_used=50)
    one = state(0.0, 20.0)
    assert one.sample is not None
    means.add_sample(replace(one, sample=replace(one.sample, disks=(disk, *one.sample.disks))))
    assert set(means.take_finished(None)[0].values) == {"util", "vram", "cgroup", "disk:/data"}


# Which box is which.

SPEC = BoxSpec(name="lab", host="1.2.3.4", port=40022, user="root")


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (SPEC, replace(SPEC, logs=("x",), identity="k"), True),
        (SPEC, replace(SPEC, name="other"), False),
        (SPEC, replace(SPEC, port=40023), False),
        (SPEC, replace(SPEC, provider=ProviderRef("runpod", "p1")), False),
        (
            replace(SPEC, provider=ProviderRef("runpod", "p1")),
            replace(SPEC, name="renamed", host="5.6.7.8", provider=ProviderRef("runpod", "p1")),
            True,
        ),
        (
            replace(SPEC, provider=ProviderRef("runpod", "p1")),
            replace(SPEC, provider=ProviderRef("runpod", "p2")),
            False,
        ),
    ],
)
def test_a_box_is_known_again_and_no_stranger_is(one: BoxSpec, other: BoxSpec, same: bool) -> None:
    assert (box_identity(one) == box_identity(other)) is same


def test_where_the_history_lies() -> None:
    assert history_path({"XDG_STATE_HOME": "/s"}) == Path("/s/rgt/history.db")
    assert (
        history_path({"XDG_STATE_HOME": "relative"}) == Path.home() / ".local/state/rgt/history.db"
    )
    assert history_path({"RGT_HISTORY": "/x.db"}) == Path("/x.db")
    assert history_path({"RGT_HISTORY": "/x.db"}, "/y.db") == Path("/y.db")
    assert history_path({"RGT_HISTORY": "off"}) is None
