"""A pod's JSON may be anything: it is read, or refused as a bad answer, and never breaks anything else."""

from __future__ import annotations

import math
from datetime import UTC
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rgt_tui.providers import BadAnswer
from rgt_tui.providers.answers import parse_number, parse_time
from rgt_tui.providers.runpod_pod import LIFECYCLES, network_per_hour, parse_pod

json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)
FIELDS = (
    *(
        "id",
        "name",
        "status",
        "actions",
        "cost",
        "disk",
        "mounts",
        "ssh",
        "locked",
        "createdAt",
        "startedAt",
    ),
    *("persistent", "network", "size", "path", "volumeId", "direct", "host", "port", "username"),
)
pods = st.recursive(
    json,
    lambda inner: (
        st.dictionaries(st.sampled_from(FIELDS), inner, max_size=8) | st.lists(inner, max_size=2)
    ),
    max_leaves=20,
)


@given(st.dictionaries(st.sampled_from(FIELDS), pods, max_size=12))
def test_any_object_is_a_pod_or_a_bad_answer(raw: dict[str, Any]) -> None:
    try:
        pod = parse_pod(raw)
    except BadAnswer:
        return
    for value in (pod.cost, pod.container_gb, pod.volume_gb):
        assert value is None or (math.isfinite(value) and value >= 0)
    for running in (True, False):
        assert all(rate is None or rate >= 0 for _, rate in pod.list_disks(running=running))
    for text in (
        pod.name,
        pod.status,
        *pod.actions,
        pod.volume_path,
        pod.host or "",
        pod.user or "",
    ):
        assert text.isprintable()
    assert pod.lifecycle is not None


@pytest.mark.parametrize("raw", [None, [], "x", {}, {"id": None}, {"id": ""}, {"id": 3}])
def test_what_has_no_id_is_a_bad_answer(raw: object) -> None:
    with pytest.raises(BadAnswer):
        parse_pod(raw)


@given(json)
def test_prices_and_times_are_sane_or_none(value: object) -> None:
    price, time = parse_number(value), parse_time(value)
    assert price is None or price >= 0
    assert time is None or time > 0


def test_huge_and_odd_numbers() -> None:
    assert parse_number("1e999") is None
    assert parse_number(10**400) is None
    assert parse_number(" 1.5 ") == 1.5
    assert parse_time("0001-01-01T00:00:00+23:59") is None
    assert parse_time("2026-11-20T08:00:00Z") == parse_time("2026-11-20T09:00:00+01:00")
    assert parse_time("2026-11-20T08:00:00") is None, "it may be fourteen hours earlier"
    assert parse_time("2026-11-20T08:00:00", UTC) == parse_time("2026-11-20T08:00:00Z")


def test_network_volumes_are_cheaper_above_a_terabyte() -> None:
    assert network_per_hour(1000, "STANDARD") == pytest.approx(70 / 730)
    assert network_per_hour(3000, "STANDARD") == pytest.approx((70 + 100) / 730)
    assert network_per_hour(3000, "HIGH_PERFORMANCE") == pytest.approx(420 / 730)


def test_every_documented_state_is_known() -> None:
    assert set(LIFECYCLES) == {
        "PROVISIONING",
        "STARTING",
        "RUNNING",
        "EXITED",
        "ERROR",
        "TERMINATED",
    }
