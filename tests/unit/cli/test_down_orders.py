"""``rgt down`` without box and provider: what it asks the gate for, and what it makes of an item that is not there."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rgt_tui.cli import FAILED, OK, UNREACHABLE, USAGE, gathering, main
from rgt_tui.cli.teardown import down
from rgt_tui.fleet.config import dump_fleet
from rgt_tui.model import (
    ActionReview,
    BillingVerb,
    BoxSpec,
    EvidenceItem,
    LinkState,
    Meter,
    StopPhase,
    StopProgress,
    steady_time,
)

LISTED = EvidenceItem("results", True, "no result on the box is at stake", 0.0)
STRAY = EvidenceItem("results:/data/x", False, "nobody's", 0.0, path="/data/x", ignorable=True)
UNLISTED = EvidenceItem(
    "results", False, "the files on the box are unknown: it does not answer", 0.0
)


class Gate:
    """Stands for the fleet, and keeps what it was asked."""

    def __init__(self) -> None:
        self.items: tuple[EvidenceItem, ...] = (LISTED, STRAY)
        self.link = LinkState.LIVE
        self.by_hand = False
        self.asked: list[dict[str, Any]] = []
        self.ordered: list[dict[str, Any]] = []

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    @property
    def state(self) -> Any:
        return SimpleNamespace(find_box=lambda _: SimpleNamespace(link=self.link, meter=Meter()))

    async def review_action(self, box: str, verb: BillingVerb, **given: Any) -> ActionReview:
        self.asked.append(given)
        refusals = tuple(
            item.text for item in self.items if not item.ok and item.key not in given["ignored"]
        )
        return ActionReview(
            box, verb, "Terminate", "pod1", True, 0.5, 1.0, "USD", (), (), (), self.items, refusals,
            "DELETE /pods/pod1", "running", 0.0, 0.0, by_hand=self.by_hand,
        )  # fmt: skip

    async def execute_action(
        self, box: str, verb: BillingVerb, typed: str, **given: Any
    ) -> AsyncIterator[StopProgress]:
        self.ordered.append(given)
        yield StopProgress(StopPhase.METER_OFF, 0.0, "off")

    async def find_receipt(self, box: str) -> None:
        return None


@pytest.fixture
def gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Gate:
    made = Gate()

    async def settle(fleet: object, seconds: float) -> None: ...

    monkeypatch.setattr(gathering, "make_fleet", lambda specs, **options: made)
    monkeypatch.setattr(gathering, "wait_until_settled", settle)
    fleet = tmp_path / "fleet.toml"
    fleet.write_text(dump_fleet([BoxSpec(name="lab", host="192.0.2.1")]))
    monkeypatch.setenv("RGT_FLEET", str(fleet))
    monkeypatch.setenv("HOME", str(tmp_path))
    return made


DRY = ("down", "lab", "--destroy", "--dry-run", "--json")
CALL = ("down", "lab", "--destroy", "--json", "--confirm", "lab", "--evidence", "0-0")
IGNORED = ("--ignore", STRAY.key)


def test_the_box_has_as_long_as_it_needs_for_its_list(gate: Gate) -> None:
    assert main([*DRY, *IGNORED]) == OK
    assert gate.asked[0]["patience"] is None


def test_the_digest_is_judged_by_when_the_order_was_given(gate: Gate) -> None:
    before = steady_time()
    assert main([*CALL, *IGNORED]) == OK
    (order,) = gate.ordered
    assert order["evidence_digest"] == "0-0"
    assert before <= order["ordered_at"] <= steady_time()


def test_a_key_that_no_item_has_is_a_slip(gate: Gate, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*DRY, "--ignore", "results:/data/y"]) == USAGE
    said = capsys.readouterr()
    assert said.out == ""
    assert "the evidence has no item results:/data/y; there are: results:/data/x" in said.err


def test_items_that_stand_against_it_block_and_what_to_do_is_said(
    gate: Gate, capsys: pytest.CaptureFixture[str]
) -> None:
    firm = EvidenceItem("identity", False, "another machine", 0.0)
    running = EvidenceItem("quiet:training", False, "pid 7 trains", 0.0, forfeitable=True)
    gate.items = (LISTED, STRAY, firm, running)
    assert main([word for word in DRY if word != "--json"]) == FAILED
    said = capsys.readouterr()
    states = {
        line.split()[0]
        for line in said.out.splitlines()
        if "results:/data/x" in line or "pid 7" in line
    }
    assert states == {"blocks"}
    assert "give up" not in said.out
    assert "--forfeit KEY (all that block but results:/data/x, identity)" in said.err
    assert "not results: --ignore KEY" in said.err


@pytest.mark.parametrize(
    ("link", "status"), [(LinkState.LIVE, FAILED), (LinkState.UNREACHABLE, UNREACHABLE)]
)
@pytest.mark.parametrize("words", [DRY, CALL])
def test_what_the_box_cannot_list_now_is_no_slip_but_refused_with_the_reason(
    gate: Gate,
    words: tuple[str, ...],
    link: LinkState,
    status: int,
    capsys: pytest.CaptureFixture[str],
) -> None:
    gate.items, gate.link = (UNLISTED,), link
    assert main([*words, *IGNORED]) == status
    body = json.loads(capsys.readouterr().out)
    assert (body["ok"], body["reasons"]) == (False, [UNLISTED.text])
    assert gate.ordered == []
    # A key of another kind is looked for all the same: nothing keeps that from being known.
    assert main([*DRY, "--forfeit", "quiet:training"]) == USAGE


def test_what_the_dry_run_had_and_is_gone_is_for_the_gate_to_judge(gate: Gate) -> None:
    gate.items = (LISTED,)
    assert main([*CALL, *IGNORED]) == OK
    assert len(gate.ordered) == 1, "it is there that the digest is another one"


@pytest.mark.parametrize(
    ("by_hand", "asks", "ends"),
    [
        (False, "to send it", "nothing was sent"),
        (True, "to continue to your click", "nothing was begun"),
    ],
)
def test_where_the_click_is_yours_nothing_is_said_to_be_sent(
    gate: Gate,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    by_hand: bool,
    asks: str,
    ends: str,
) -> None:
    asked: list[str] = []

    def types(phrase: str, question: str) -> bool:
        asked.append(question)
        return False

    monkeypatch.setattr(down, "is_interactive", lambda: True)
    monkeypatch.setattr(down, "confirm_phrase", types)
    gate.items, gate.by_hand = (LISTED,), by_hand
    assert main(["down", "lab", "--destroy"]) == FAILED
    (question,) = asked
    assert asks in question
    assert capsys.readouterr().err.endswith(f"rgt: {ends}\n")
    assert gate.ordered == []
