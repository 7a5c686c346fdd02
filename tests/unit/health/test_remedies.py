"""A step is ticked by readings that show its condition to be over, and by nothing less."""

from __future__ import annotations

import msgspec

from rgt_tui.health import Remedy, list_remedies
from rgt_tui.model import Alert, BoxState, Finding, LinkState
from tests.ui.boxes import NOW, cell, disk, inode_finding, queue, run, sample, trouble_box

replace = msgspec.structs.replace


def box(*findings: Finding, alerts: tuple[Alert, ...] = (), **changes: object) -> BoxState:
    return replace(trouble_box(), findings=findings, alerts=alerts, alerts_kept=True, **changes)


def one(found: tuple[Remedy, ...]) -> Remedy:
    (only,) = found
    return only


FULL = inode_finding()
READ = replace(FULL, where="sample", run=None, step=None)


def test_steps_stand_open_while_their_condition_holds() -> None:
    made = one(list_remedies((), box(FULL), NOW))
    assert (made.title, made.is_done, made.doubt, len(made.steps)) == (
        "inodes of /workspace",
        False,
        "",
        3,
    )
    assert one(list_remedies((made,), box(FULL), NOW + 60)) == made


def test_a_cause_that_the_judge_calls_gone_ticks_its_steps_and_stays_ticked_since_then() -> None:
    open_ = list_remedies((), box(FULL), NOW)
    done = list_remedies(open_, box(replace(FULL, cleared=True)), NOW + 10)
    assert one(done).over_at == NOW + 10
    assert one(list_remedies(done, box(replace(FULL, cleared=True)), NOW + 50)).over_at == NOW + 10
    back = one(list_remedies(done, box(FULL), NOW + 60))
    assert not back.is_done, "full again is not done"


def test_a_reading_that_is_gone_while_the_box_tells_is_over_and_one_of_a_silent_box_is_not() -> (
    None
):
    before = list_remedies((), box(READ), NOW)
    assert one(list_remedies(before, box(sample_at=NOW + 5), NOW + 5)).over_at == NOW + 5
    silent = one(list_remedies(before, box(sample_at=NOW), NOW + 500))
    assert not silent.is_done and "does not report it" in silent.doubt
    cut = one(list_remedies(before, box(link=LinkState.UNREACHABLE), NOW + 1))
    assert not cut.is_done and cut.doubt
    blind = replace(sample(), unseen="no permission")
    assert not one(list_remedies(before, box(sample=blind), NOW + 1)).is_done
    assert one(list_remedies((silent,), box(sample_at=NOW + 505), NOW + 505)).is_done, (
        "once it tells again, it is known"
    )


def test_a_line_that_scrolled_out_of_the_log_ticks_nothing_until_the_run_got_past_it() -> None:
    before = list_remedies((), box(FULL), NOW)
    assert FULL.step == 812 and FULL.where != "sample"
    gone = one(list_remedies(before, box(sample_at=NOW + 5), NOW + 5))
    assert not gone.is_done and "no longer in the log" in gone.doubt
    on = box(runs=(run("lstm-b", 813),), sample_at=NOW + 6)
    assert one(list_remedies((gone,), on, NOW + 6)).over_at == NOW + 6
    ended = box(queues=(queue(cell("lstm-b", "done", exit_code=0)),), runs=(), sample_at=NOW + 7)
    assert one(list_remedies(before, ended, NOW + 7)).is_done
    failed = box(queues=(queue(cell("lstm-b", "failed", exit_code=1)),), runs=(), sample_at=NOW + 7)
    assert not one(list_remedies(before, failed, NOW + 7)).is_done


def test_an_alert_that_is_muted_or_told_by_a_finding_is_not_over() -> None:
    alert = Alert("inodes:/workspace", "error", "inodes of /workspace 100%")
    before = list_remedies((), box(alerts=(alert,)), NOW)
    assert one(before).steps[0].text.startswith("Remove directories")
    assert list_remedies(before, box(alerts=(replace(alert, muted=True),)), NOW + 1) == ()
    later = Alert("of-a-newer-rgt:x", "warn", "something")
    assert one(list_remedies((), box(alerts=(later,)), NOW)).steps == (), (
        "nothing is made up for it"
    )
    told = list_remedies(before, box(FULL), NOW + 1)
    assert [made.is_done for made in told] == [False], "the finding stands in the alert's place"
    assert one(list_remedies(before, box(sample_at=NOW + 1), NOW + 1)).is_done


def test_another_name_for_what_broke_is_no_end_of_it() -> None:
    before = list_remedies((), box(READ), NOW)
    renamed = list_remedies(before, box(replace(READ, gotcha="U6", run="lstm-b")), NOW + 1)
    assert [(made.finding is not None, made.is_done) for made in renamed] == [(True, False)]


def test_what_is_over_is_shown_for_a_while_and_what_is_remembered_is_bounded() -> None:
    done = list_remedies(list_remedies((), box(READ), NOW), box(), NOW + 1)
    assert one(list_remedies(done, box(sample_at=NOW + 1700), NOW + 1700)).is_done
    assert list_remedies(done, box(sample_at=NOW + 1900), NOW + 1900) == ()
    many = tuple(replace(READ, resource=f"inodes of /{i}") for i in range(300))
    assert len(list_remedies((), box(*many), NOW)) == 40


def test_a_box_that_nobody_watches_is_judged_by_its_readings() -> None:
    full = replace(trouble_box(), findings=(), sample=sample(disks=(disk("/w", 10, 97),)))
    made = [row.title for row in list_remedies((), full, NOW)]
    assert any("inodes" in title for title in made)
