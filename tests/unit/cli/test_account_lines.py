"""The line of an account in `rgt status`: what it is billed for that no box names, and what nobody knows of it."""

from __future__ import annotations

import msgspec

from rgt_tui.cli import account_line, account_text
from rgt_tui.model import MACHINE, AccountBill, UnlistedItem

replace = msgspec.structs.replace
POD = UnlistedItem(
    kind="runpod", what=MACHINE, id="pod9", name="old\x1b[31m", per_hour=1.0, status="RUNNING"
)
VOLUME = UnlistedItem(kind="runpod", what="volume", id="vol1", per_hour=0.01, used_by=("pod9",))
BILL = AccountBill(kind="runpod", account="default@vendor", machines_at=100.0, leftovers_at=90.0)


def test_nothing_unseen_is_no_line() -> None:
    assert account_text(BILL) == ""


def test_what_is_there_is_named_with_its_price_and_adds_up() -> None:
    text = account_text(replace(BILL, things=(POD, VOLUME)))
    assert text.startswith("runpod           unlisted    $1.00/h    machine old")
    assert "volume vol1, on pod9: $0.01/h, $7.30 a month" in text
    assert text.endswith("rgt import --from runpod adds machines to the fleet")
    assert "\x1b" not in text
    many = replace(BILL, things=(POD,) * 9)
    assert "5 more (--json has them)" in account_text(many)


def test_what_is_not_known_is_never_left_out() -> None:
    unpriced = replace(BILL, things=(replace(POD, per_hour=None),))
    assert "unlisted    ?          machine" in account_text(
        unpriced
    ) and "price unknown" in account_text(unpriced)
    late = replace(BILL, things=(POD,), leftovers_at=None, leftovers_error="403")
    assert "≥ $1.00/h" in account_text(late)
    assert "volumes, addresses and snapshots: unknown (403)" in account_text(late)
    old = replace(BILL, machines_error="500")
    assert account_text(old).endswith("machines: maybe incomplete (500)")
    none = replace(
        BILL, machines_at=None, leftovers_at=None, machines_error="no API", leftovers_error="no API"
    )
    assert account_text(none).endswith(
        "unknown     -          machines, volumes and the like: unknown (no API)"
    )


def test_what_no_list_has_is_named_beside_what_bills() -> None:
    gaps = ("load balancers", "Kubernetes clusters (the key may not list them)")
    text = account_text(replace(BILL, things=(POD,), gaps=gaps))
    assert "not listed: load balancers, Kubernetes clusters (the key may not list them)" in text
    assert account_text(replace(BILL, gaps=gaps)) == "", "what never changes is no news"
    assert account_line(replace(BILL, gaps=gaps), 101.5).not_listed == gaps


def test_scripts_have_all_of_it() -> None:
    line = account_line(replace(BILL, things=(POD, VOLUME)), 101.5)
    assert (line.account, line.key, line.machines_age_s, line.leftovers_age_s) == (
        "runpod",
        "default@vendor",
        1.5,
        11.5,
    )
    assert [(one.value, one.currency, one.at_least) for one in line.per_hour] == [
        (1.0, "USD", False)
    ]
    assert len(line.unlisted) == 2
