"""The table: every row has a view, names what is there, and says itself what a finding of it stands for."""

from __future__ import annotations

import pytest

from rgt_tui.health import (
    ALERTS,
    CHECKS,
    HANDBOOK,
    all_conditions,
    covered_alert_ids,
    ids_referring_to,
)
from rgt_tui.model import Finding, Severity


def test_every_row_has_a_view_and_an_id_of_its_own() -> None:
    assert len({row.id for row in all_conditions()}) == len(all_conditions())
    for row in all_conditions():
        assert row.rungs or row.findings or row.checks, row.id
        assert bool(row.rungs) == bool(row.word and row.advice), row.id
        assert row.findings or row.covered is None, row.id


def test_every_finding_and_every_check_is_in_the_table() -> None:
    assert {id_ for row in all_conditions() for id_ in row.findings} == set(HANDBOOK)
    assert sorted(check.id for row in all_conditions() for check in row.checks) == [
        check.id for check in CHECKS
    ]


@pytest.mark.parametrize(
    ("gotcha", "resource", "run", "ids"),
    [
        ("U6", "bytes of /data", "a", {"bytes:/data"}),
        ("U7", "bytes of /data", None, {"bytes:/data"}),
        ("U7", "inodes of /data of mine", None, {"inodes:/data of mine"}),
        ("U7", "quota of /data", "a", set()),
        ("U7", "space", "a", set()),
        ("P8", "the loss", "a", {"loss-nan:a"}),
        ("P10", "the loss scale", "a", {"loss-nan:a"}),
        ("P8", "the loss", None, set()),
        ("U22", "GPU 3", None, {"gpu-error:3"}),
        ("U22", "the GPU", "a", set()),
        ("U9", "memory of the container", "a", set()),
        ("new-one", "bytes of /data", "a", set()),
    ],
)
def test_what_a_finding_stands_for(
    gotcha: str, resource: str, run: str | None, ids: set[str]
) -> None:
    finding = Finding(gotcha, "t", Severity.FATAL, resource, "e", "log", run=run)
    assert covered_alert_ids((finding,)) == ids
    assert {id_.partition(":")[0] for id_ in ids} <= {row.id for row in ALERTS}


def test_a_page_knows_which_alerts_and_checks_name_it() -> None:
    assert ids_referring_to("U7") == (
        ("holding", "bytes", "inodes", "filling"),
        ("0.2", "0.5", "4.3"),
    )
    assert ids_referring_to("U43") == (("no-step", "held-back"), ("3.3",))
    assert ids_referring_to("M19") == ((), ())
    for row in ALERTS:
        for page in row.findings:
            assert row.id in ids_referring_to(page)[0]
