"""`rgt audit`, run as a person does: who did what when, what is open, and whether the record is whole."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from rgt_tui.gate import (
    ActionState,
    AuditEntry,
    AuditEvent,
    AuditLog,
    InstanceTarget,
    Journal,
    Receipt,
    ReceiptBook,
)
from rgt_tui.model import BillingVerb
from tests import warm_rgt

Run = Callable[..., subprocess.CompletedProcess[str]]
POD = InstanceTarget(kind="runpod", account="default@vendor", instance="k3v9")


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state" / "rgt"


@pytest.fixture
def rgt(tmp_path: Path) -> Run:
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("RGT_", "XDG_"))}
    env = {**kept, "HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "state")}

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return warm_rgt.rgt("audit", *words, cwd=tmp_path, env=env)

    return run


def recorded(state: Path, *states: ActionState) -> None:
    """Record a refused action of one box, and one of another that came as far as its last state."""
    log, journal = AuditLog(state / "audit.jsonl"), Journal(state / "journal")

    def line(event: AuditEvent, box: str, text: str) -> str:
        return log.record_entry(
            AuditEntry(
                at=1.7e9, event=event, box=box, verb=BillingVerb.DESTROY, instance="k3v9", text=text
            )
        )

    line(AuditEvent.REFUSED, "other", "training\x1b[2J goes on")
    with journal.lock_instance(POD, "lab", BillingVerb.DESTROY) as action:
        action.record_intent("x", audit=line(AuditEvent.REQUESTED, "lab", "DELETE /v2/pods/k3v9"))
        for one in states:
            action.record_state(one, audit=line(AuditEvent.ANSWER, "lab", one))


def test_without_a_record_there_is_nothing_to_say(rgt: Run) -> None:
    assert (rgt().returncode, rgt().stdout) == (0, "")
    done = rgt("--verify")
    assert (done.returncode, "no line yet" in done.stdout) == (0, True)


def test_it_prints_who_did_what_and_what_is_open(rgt: Run, state: Path) -> None:
    recorded(state, ActionState.SENT)
    done = rgt()
    assert (done.returncode, done.stderr) == (0, "")
    refused, requested, answer, still = done.stdout.splitlines()
    assert "other  destroy  k3v9  refused  training goes on" in refused
    assert "lab  destroy  k3v9  requested  DELETE /v2/pods/k3v9" in requested
    assert answer.endswith("answer  sent")
    assert (
        still.startswith("OPEN: destroy of lab (k3v9) is open since")
        and "sends nothing again" in still
    )
    assert len(rgt("--box", "other").stdout.splitlines()) == 1
    objects = [json.loads(row) for row in rgt("--json").stdout.splitlines()]
    assert [one["event"] for one in objects] == ["refused", "requested", "answer", "open"]
    assert [one.get("line") for one in objects] == [1, 2, 3, None]
    assert (objects[-1]["state"], objects[-1]["account"]) == ("sent", "default@vendor")


def test_what_has_ended_is_not_open(rgt: Run, state: Path) -> None:
    recorded(state, ActionState.SENT, ActionState.OFF)
    assert "OPEN" not in rgt().stdout


def test_a_whole_record_is_whole(rgt: Run, state: Path) -> None:
    recorded(state, ActionState.SENT, ActionState.OFF)
    done = rgt("--verify")
    assert (done.returncode, done.stdout) == (0, f"{state}/audit.jsonl: complete, 4 lines\n")
    (found,) = [json.loads(row) for row in rgt("--verify", "--json").stdout.splitlines()]
    assert (found["ok"], found["lines"], found["begins"], found["broken"]) == (True, 4, 1, None)


@pytest.mark.parametrize(
    ("keep", "at"),
    [
        (lambda rows: rows[1:], 1),
        (lambda rows: rows[:1], 2),
        (lambda rows: rows[:-1], 4),
        (lambda rows: [], 1),
        (lambda rows: [*rows[:-1], rows[-1].replace('"off"', '"on!"')], 5),
    ],
)
def test_what_was_taken_out_is_named(
    rgt: Run, state: Path, keep: Callable[[list[str]], list[str]], at: int
) -> None:
    """The end too, since the journal knows of the line, as it was written; and the whole file."""
    recorded(state, ActionState.SENT, ActionState.OFF)
    path = state / "audit.jsonl"
    path.write_text("".join(keep(path.read_text().splitlines(keepends=True))))
    done = rgt("--verify")
    assert done.returncode == 1
    assert f"BROKEN at line {at}" in done.stdout
    assert json.loads(rgt("--verify", "--json").stdout)["broken"] == at


def test_a_record_of_before_is_said_to_be_older(rgt: Run, state: Path) -> None:
    state.mkdir(parents=True)
    old = '{"at":1.0,"event":"refused","box":"a","verb":"park","instance":"i"}\n'
    (state / "audit.jsonl").write_text(old)
    assert "without hashes: written by an older rgt" in rgt("--verify").stdout
    recorded(state, ActionState.SENT)
    assert "the chain begins at line 2" in rgt("--verify").stdout
    assert len(rgt().stdout.splitlines()) == 5


@pytest.mark.parametrize("what", ["audit.jsonl", "journal"])
def test_what_cannot_be_read_ends_with_2(rgt: Run, state: Path, what: str) -> None:
    recorded(state, ActionState.SENT)
    if what == "journal":
        for path in (state / what).glob("*.jsonl"):
            path.write_text("?\n")
    else:
        (state / what).unlink()
        (state / what).mkdir()
    for words in ((), ("--verify",)):
        done = rgt(*words)
        assert done.returncode == 2
        assert "cannot be read" in done.stderr


@pytest.mark.parametrize(("seen", "state_then"), [("off", "off"), ("on", "failed")])
def test_what_no_reading_can_tell_a_person_settles_by_what_the_console_shows(
    rgt: Run, state: Path, seen: str, state_then: str
) -> None:
    recorded(state, ActionState.SENT, ActionState.UNKNOWN)
    done = rgt("--box", "lab", "--seen", seen)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"{state_then}, seen on the console by a person: it is {seen}" in done.stdout
    assert Journal(state / "journal").open_actions() == ((), ())
    assert f"answer  {state_then}, seen on the console by a person" in rgt().stdout.splitlines()[-1]
    assert rgt("--verify").returncode == 0
    again = rgt("--box", "lab", "--seen", seen)
    assert (again.returncode, "lab has no open action" in again.stderr) == (1, True)


def test_a_journal_that_cannot_be_read_is_not_one_in_which_nothing_is_open(
    rgt: Run, state: Path
) -> None:
    recorded(state, ActionState.SENT)
    (path,) = (state / "journal").glob("*.jsonl")
    path.write_text("?\n")
    done = rgt("--box", "lab", "--seen", "off")
    assert (done.returncode, done.stdout) == (2, "")
    assert "cannot be read, so open actions are unknown" in done.stderr
    assert "lab has no open action" not in done.stderr


def test_a_person_s_word_is_about_one_box_that_nobody_acts_on(rgt: Run, state: Path) -> None:
    recorded(state, ActionState.SENT)
    assert rgt("--seen", "off").returncode == 2
    assert rgt("--box", "other", "--seen", "off").returncode == 1
    with Journal(state / "journal").lock_instance(POD, "lab", BillingVerb.DESTROY):
        done = rgt("--box", "lab", "--seen", "off")
    assert (done.returncode, done.stdout) == (1, "")
    assert len(Journal(state / "journal").open_actions()[0]) == 1


def test_a_receipt_is_printed_as_markdown_and_all_are_listed(tmp_path: Path, state: Path) -> None:
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("RGT_", "XDG_"))}
    env = {**kept, "HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "state")}
    receipt = Receipt(
        action="a1",
        box="lab",
        verb=BillingVerb.PARK,
        label="Stop",
        platform="Vast.ai",
        instance="9",
        who="han@desk",
        begun_at=1.7e9,
        call="PUT",
        state=ActionState.OFF,
    )
    ReceiptBook(state / "receipts").save_receipt(receipt)

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return warm_rgt.rgt("receipt", *words, cwd=tmp_path, env=env)

    assert "lab: parked, by han@desk" in run().stdout
    assert run("lab", "--markdown").stdout.startswith("# lab: parked\n")
    assert json.loads(run("lab", "--json").stdout)["action"] == "a1"
    assert run("other").returncode == 1
