"""The receipt of a stop or destroy: what ran, for how long, what it cost, and what still bills."""

from __future__ import annotations

from pathlib import Path

import msgspec

from rgt_tui.gate import (
    ActionState,
    KeptResults,
    Receipt,
    ReceiptBook,
    list_run_receipts,
    receipt_markdown,
    receipt_of_self_stop,
    receipt_rows,
)
from rgt_tui.model import (
    BillingVerb,
    BoxSpec,
    BoxState,
    Meter,
    MoneyAmount,
    QueueCell,
    QueueState,
    RunState,
)
from rgt_tui.profiles import load_profile

HOUR = 3600.0
RUNS = (
    RunState("lstm-a", step=2400, total_steps=2400, best=0.4213),
    RunState("lstm|b", step=800, best=None),
)
BOX = BoxState(
    BoxSpec("lab", "127.0.0.1", profile="vastai"),
    runs=RUNS,
    queues=(
        QueueState(
            path="/q",
            at=0.0,
            cells=(QueueCell(name="lstm-a", cfg="", task="", state="done", durable="verified"),),
        ),
    ),
    meter=Meter(started=100.0, storage_per_hour=0.01, spent=1.11),
)
KEPT = (
    KeptResults(path="/w/a", owner="cell lstm-a", files=3, by="copy", where="/p", sha256="e" * 64),
    KeptResults(path="/w/b", owner="run lstm|b", files=1, by="lost"),
)


def park_receipt(**changes: object) -> Receipt:
    """Return the receipt of a park after two hours, a quarter of them idle."""
    made = Receipt(
        action="a1",
        box="lab",
        verb=BillingVerb.PARK,
        label="Stop",
        platform="Vast.ai",
        instance="9",
        who="han@desk",
        begun_at=100.0 + 2 * HOUR,
        call="PUT /instances/9/",
        state=ActionState.OFF,
        ended_at=100.0 + 2 * HOUR,
        started_at=100.0,
        watched=(MoneyAmount(2.0, "USD"),),
        idle=(MoneyAmount(0.5, "USD"),),
        runs=list_run_receipts(BOX, KEPT),
        kept=KEPT,
        keeps_billing=("storage",),
        still_per_hour=0.01,
        to_end="destroy it: rgt down lab --destroy",
    )
    return msgspec.structs.replace(made, **changes)


def rows_of(made: Receipt) -> dict[str, str]:
    """Return the rows, with those that continue a label joined to it."""
    found: dict[str, str] = {}
    label = ""
    for name, text in receipt_rows(made):
        label = name or label
        found[label] = f"{found.get(label, '')} {text}".strip()
    return found


def test_it_says_how_long_which_share_was_idle_and_what_each_run_reached() -> None:
    rows = rows_of(park_receipt())
    assert rows["on for"].startswith("2h00, since ")
    assert rows["idle"] == "25%: $0.50 of $2.00 while rgt watched"
    assert "lstm-a: step 2,400 of 2,400, best loss 0.4213, done, results pulled" in rows["runs"]
    assert "lstm|b: step 800, best loss unknown, results given up" in rows["runs"]


def test_what_still_bills_has_its_price_a_month_and_the_way_to_end_it() -> None:
    rows = rows_of(park_receipt())
    assert "$7.30 a month" in rows["still bills"]
    assert rows["to end that"] == "destroy it: rgt down lab --destroy"
    priced = park_receipt(keeps_billing=("volume 1, $1.50 a month",))
    assert "7.30" not in rows_of(priced)["still bills"], "the provider's own price counts once"


def test_unknown_stays_unknown() -> None:
    rows = rows_of(park_receipt(started_at=None, watched=(), idle=(), runs=()))
    assert rows["on for"].startswith("unknown")
    assert rows["idle"] == "unknown"
    assert rows["runs"] == "none were seen"


def test_as_markdown_a_name_cannot_break_the_table(tmp_path: Path) -> None:
    ReceiptBook(tmp_path).save_receipt(park_receipt())
    page = (tmp_path / "a1.md").read_text()
    assert page == receipt_markdown(park_receipt())
    table = [line for line in page.splitlines() if line.startswith("| ")]
    assert len(table) == 3
    assert r"| lstm\|b | step 800 |" in table[2]
    assert "e" * 64 in table[1]
    assert [one.box for one in ReceiptBook(tmp_path).list_receipts()] == ["lab"]


def test_a_newer_sum_of_zero_replaces_the_older_one_and_none_keeps_it(tmp_path: Path) -> None:
    book = ReceiptBook(tmp_path)
    book.save_receipt(park_receipt(spent=1.5))
    kept = book.finish_receipt("a1", ActionState.OFF, 9.0, "off", None)
    assert kept is not None and kept.spent == 1.5
    free = book.finish_receipt("a1", ActionState.OFF, 9.0, "off", 0.0)
    assert free is not None and free.spent == 0.0


def test_a_box_that_parked_itself_has_one_too() -> None:
    made = receipt_of_self_stop(BOX, load_profile("vastai"), 100.0 + HOUR)
    assert made.is_settled
    rows = rows_of(made)
    assert "by lab itself" in rows["begun"]
    assert rows["on for"].startswith("1h00")
    assert "results verified durable copy" in rows["runs"]
    assert rows["to end that"] == "destroy it: rgt down lab --destroy"
