"""What an account is billed for that no box names stands on the fleet screen, and so does that nobody could look."""

from __future__ import annotations

import msgspec

from rgt_tui.model import AccountBill, FleetState, UnlistedItem
from rgt_tui.ui.widgets import text_of, unlisted_parts, unlisted_section
from tests.ui.fakes import NOW, running_box
from tests.ui.snap import running, screen_text

MACHINE = UnlistedItem(
    kind="runpod",
    what="machine",
    id="k3v9",
    name="old",
    per_hour=0.69,
    status="RUNNING",
    gpu="RTX 4090",
)
VOLUME = UnlistedItem(
    kind="runpod",
    what="volume",
    id="vol-1",
    per_hour=None,
    size_gb=200.0,
    how="DELETE /v2/network-volumes/vol-1",
)
BILL = AccountBill(
    kind="runpod",
    account="default@vendor",
    things=(MACHINE, VOLUME),
    machines_at=NOW,
    leftovers_at=NOW,
)
CALM = FleetState((running_box(),), (), NOW)


def told(*bills: AccountBill) -> str:
    section = unlisted_section(msgspec.structs.replace(CALM, accounts=bills), 90, NOW)
    return (
        "" if section is None else "\n".join(text_of(row) for row in (section.title, *section.body))
    )


def test_what_has_no_price_makes_the_sum_a_lower_bound() -> None:
    text = told(BILL)
    assert "≥$0.69/h" in text.replace(" ", "")
    assert "price unknown" in text and "DELETE /v2/network-volumes/vol-1" in text
    assert "rgt import --from runpod" in text


def test_nothing_found_is_nothing_said_but_nobody_looked_is() -> None:
    empty = msgspec.structs.replace(BILL, things=())
    assert told(empty) == ""
    failed = msgspec.structs.replace(empty, machines_at=None, machines_error="the key was refused")
    assert "machines: unknown (the key was refused)" in told(failed)
    old = msgspec.structs.replace(BILL, machines_at=NOW - 120, machines_error="429")
    assert "machines: as listed 2m00 ago (429)" in told(old)


def test_what_is_not_billed_is_not_counted() -> None:
    free = msgspec.structs.replace(BILL, things=(msgspec.structs.replace(MACHINE, bills=False),))
    assert unlisted_parts(msgspec.structs.replace(CALM, accounts=(free,))) == []
    assert "not billed now" in told(free)


async def test_a_platform_without_a_list_of_volumes_does_not_push_the_run_out_of_sight() -> None:
    silent = msgspec.structs.replace(
        BILL, things=(), leftovers_at=None, leftovers_error="its API does not list volumes"
    )
    state = msgspec.structs.replace(CALM, accounts=(silent,))
    section = unlisted_section(state, 90, NOW, found=True)
    assert section is None
    assert unlisted_section(state, 90, NOW, found=False) is not None
    async with running(state, size=(80, 24)) as (app, _, __):
        text = screen_text(app)
        run = state.boxes[0].runs[-1].name
        assert "does not list volumes" not in text
        assert f"run    {run}" in text
        heads = text.splitlines()[1]
        assert all(column in heads for column in ("eta", "loss", "/h"))
    async with running(state, size=(200, 50)) as (app, _, __):
        assert "does not list volumes" in screen_text(app)


async def test_the_fleet_screen_says_it_in_the_header_and_below_the_boxes() -> None:
    async with running(msgspec.structs.replace(CALM, accounts=(BILL,)), size=(120, 40)) as (
        app,
        _,
        __,
    ):
        text = screen_text(app)
        assert "2 not in your fleet" in text.splitlines()[0]
        assert "billed, not in your fleet" in text and "machine old (k3v9)" in text
    async with running(msgspec.structs.replace(CALM, accounts=(BILL,)), size=(80, 24)) as (
        app,
        _,
        __,
    ):
        assert "2 not in your fleet" in screen_text(app).splitlines()[0]
