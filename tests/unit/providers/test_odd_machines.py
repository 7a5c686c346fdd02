"""What a platform says of a machine may be anything: it is read, or refused, and never becomes free by being odd."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rgt_tui.model import Lifecycle, MeterKind, ProviderRef
from rgt_tui.providers import AccountContext, BadAnswer
from rgt_tui.providers.autodl import open_account as open_autodl
from rgt_tui.providers.digitalocean import open_account as open_digitalocean
from rgt_tui.providers.dstack import open_account as open_dstack
from rgt_tui.providers.lambda_cloud import open_account as open_lambda
from rgt_tui.providers.paperspace import open_account as open_paperspace
from rgt_tui.providers.rented import RentedAccount, RentedMachine
from rgt_tui.providers.skypilot import open_account as open_skypilot
from rgt_tui.providers.vast import open_account as open_vast

CONTEXT = AccountContext(lambda: 1_790_000_000.0, {}, Path("/nonexistent"), 1.0)
VAST = open_vast(ProviderRef("vastai", "1", "http://127.0.0.1:1", "K"), CONTEXT)
LAMBDA = open_lambda(ProviderRef("lambda", "a", "http://127.0.0.1:1", "K"), CONTEXT)
AUTODL = open_autodl(ProviderRef("autodl", "pro-1", "http://127.0.0.1:1", "K"), CONTEXT)
DIGITALOCEAN = open_digitalocean(
    ProviderRef("digitalocean", "7", "http://127.0.0.1:1", "K"), CONTEXT
)
PAPERSPACE = open_paperspace(
    ProviderRef("paperspace-core", "a", "http://127.0.0.1:1", "K"), CONTEXT
)
SKYPILOT = open_skypilot(ProviderRef("skypilot", "a", "http://127.0.0.1:1", "K"), CONTEXT)
DSTACK = open_dstack(ProviderRef("dstack", "a/b/0", "http://127.0.0.1:1", "K"), CONTEXT)
PLATFORMS: dict[
    str, tuple[RentedAccount, Callable[[Any], RentedMachine], dict[str, Any], tuple[str, ...]]
] = {
    "vastai": (
        VAST,
        VAST.parse_machine,
        {"id": 7},
        (
            *(
                "actual_status",
                "intended_status",
                "cur_state",
                "dph_base",
                "dph_total",
                "storage_total_cost",
            ),
            *(
                "storage_cost",
                "disk_space",
                "is_bid",
                "end_date",
                "start_date",
                "ports",
                "public_ipaddr",
            ),
            *(
                "ssh_host",
                "ssh_port",
                "image_runtype",
                "volume_info",
                "label",
                "gpu_name",
                "num_gpus",
            ),
        ),
    ),
    "lambda": (
        LAMBDA,
        LAMBDA.parse_machine,
        {"id": "a"},
        (
            "name",
            "status",
            "instance_type",
            "file_system_names",
            "actions",
            "ip",
            "region",
            "is_reserved",
        ),
    ),
    "autodl": (
        AUTODL,
        lambda raw: AUTODL.parse_machine(raw, None),
        {"uuid": "pro-1"},
        (
            *(
                "name",
                "status",
                "charge_type",
                "started_at",
                "expired_at",
                "created_at",
                "region_name",
            ),
            "req_gpu_amount",
        ),
    ),
    "digitalocean": (
        DIGITALOCEAN,
        DIGITALOCEAN.parse_machine,
        {"id": 7},
        (
            *(
                "name",
                "status",
                "size",
                "gpu_info",
                "locked",
                "networks",
                "region",
                "created_at",
                "features",
            ),
            *("volume_ids", "snapshot_ids"),
        ),
    ),
    "paperspace-core": (
        PAPERSPACE,
        PAPERSPACE.parse_machine,
        {"id": "a"},
        (
            *(
                "name",
                "state",
                "usageRate",
                "storageRate",
                "accelerators",
                "publicIp",
                "publicIpType",
                "region",
            ),
            *("dtCreated", "dtDeleted"),
        ),
    ),
    "skypilot": (
        SKYPILOT,
        SKYPILOT.parse_machine,
        {"name": "a"},
        ("status", "accelerators", "nodes", "cloud", "region", "launched_at"),
    ),
    "dstack": (
        DSTACK,
        DSTACK.parse_machine,
        {"instance_num": 0, "project_name": "a", "fleet_name": "b"},
        (
            "name",
            "status",
            "unreachable",
            "instance_type",
            "backend",
            "hostname",
            "price",
            "region",
            "created",
        ),
    ),
}
STATES = (
    *("running", "exited", "stopped", "active", "booting", "shutdown", "terminated", "\x1b[2J", ""),
    *(
        "off",
        "ready",
        "UP",
        "STOPPED",
        "busy",
        "idle",
        "9999-12-31T23:59:59Z",
        "0001-01-01T00:00:00",
    ),
)
HUGE = (1.7e308, -1.7e308, 10**400, "1.7e308", "9" * 5000, 5e-324)
"""Numbers that are finite, and whose sums, products or quotients are not."""
odd = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(STATES)
    | st.sampled_from(HUGE),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)


@pytest.mark.parametrize("kind", PLATFORMS)
@given(data=st.data())
def test_anything_is_a_machine_that_is_not_free_or_a_bad_answer(
    kind: str, data: st.DataObject
) -> None:
    account, parse, true, fields = PLATFORMS[kind]
    raw = {**true, **data.draw(st.dictionaries(st.sampled_from(fields), odd, max_size=8))}
    machine = parse(raw)
    meter = account.build_meter(machine)
    assert meter.kind is not MeterKind.NONE or meter.lifecycle is Lifecycle.GONE
    assert meter.per_hour is None or (math.isfinite(meter.per_hour) and meter.per_hour >= 0)
    assert meter.spent is None or (math.isfinite(meter.spent) and meter.spent >= 0)
    if meter.kind is MeterKind.COMPUTE_AND_STORAGE:
        assert meter.per_hour is None or meter.per_hour > 0
    assert all(char.isprintable() for char in machine.status + machine.name)
    assert machine.port is None or 0 < machine.port < 65536
    assert account.build_gone_meter(machine).kind is not MeterKind.NONE or machine.outlives == ()


@pytest.mark.parametrize("kind", PLATFORMS)
@given(identifier=odd)
def test_an_id_that_is_none_is_a_bad_answer(kind: str, identifier: object) -> None:
    account, parse, true, _ = PLATFORMS[kind]
    key = next(iter(true))
    try:
        machine = parse({**true, key: identifier})
    except BadAnswer:
        return
    assert account.ids.fullmatch(machine.id)


@pytest.mark.parametrize("huge", HUGE)
def test_prices_that_would_add_up_to_infinity_are_none(huge: object) -> None:
    """Of an infinite price nothing can be said, not even what it has cost: 0 hours of it are no number."""
    raw = {
        "id": 7,
        "actual_status": "running",
        "dph_base": huge,
        "storage_total_cost": huge,
        "start_date": 1.79e9,
    }
    meter = VAST.build_meter(VAST.parse_machine({**raw, "volume_info": []}))
    assert meter.per_hour is None or math.isfinite(meter.per_hour)
    assert meter.spent is None or math.isfinite(meter.spent)
