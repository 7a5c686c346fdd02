"""How far an action came is on the disk before it goes further: a crash at any moment is understood by the next rgt."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rgt_tui.gate import (
    SETTLED,
    ActionState,
    InstanceLocked,
    InstanceTarget,
    Journal,
    JournalFailed,
    OpenAction,
    describe_open_action,
    read_boot_id,
)
from rgt_tui.gate.journal import FOLLOWS
from rgt_tui.model import BillingVerb

POD = InstanceTarget(kind="runpod", account="default@vendor", instance="k3v9")
CALL = "DELETE /v2/pods/k3v9"
COURSE = [ActionState.SENT, ActionState.ANSWERED, ActionState.CONFIRMED, ActionState.OFF]


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "rgt" / "journal")


def the_file(journal: Journal) -> Path:
    (path,) = journal.folder.glob("*.jsonl")
    return path


def states(journal: Journal) -> list[str]:
    return [json.loads(line)["state"] for line in the_file(journal).read_text().splitlines()]


def only_open(journal: Journal) -> OpenAction:
    (action,), problems = journal.open_actions()
    assert problems == ()
    return action


def test_a_whole_action_leaves_nothing_open(journal: Journal) -> None:
    with journal.lock_instance(POD, "lab", BillingVerb.DESTROY) as action:
        assert action.earlier is None
        action.record_intent("review", evidence="e", seal="s", audit="a")
        for state in COURSE:
            action.record_state(state, "words")
    assert states(journal) == ["intent", "sent", "answered", "confirmed", "off"]
    assert journal.open_actions() == ((), ())
    (record,) = journal.iterate_audited()
    assert (record.evidence, record.seal, record.audit, record.target) == ("e", "s", "a", POD)
    assert stat.S_IMODE(the_file(journal).stat().st_mode) == 0o600
    assert stat.S_IMODE(journal.folder.stat().st_mode) == 0o700


@pytest.mark.parametrize("last", [ActionState.INTENT, *COURSE], ids=str)
def test_killed_at_any_state_the_next_one_knows(journal: Journal, last: ActionState) -> None:
    code = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from rgt_tui.gate import Journal, InstanceTarget, ActionState\n"
        "from rgt_tui.model.evidence import BillingVerb\n"
        "pod = InstanceTarget(kind='runpod', account='default@vendor', instance='k3v9')\n"
        "with Journal(Path(sys.argv[1])).lock_instance(pod, 'lab', BillingVerb.DESTROY) as action:\n"
        "    action.record_intent('x')\n"
        "    for state in sys.argv[2:]: action.record_state(ActionState(state), 'x')\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = [state.value for state in COURSE[: COURSE.index(last) + 1]] if last in COURSE else []
    died = subprocess.run([sys.executable, "-c", code, journal.folder, *done], check=False)
    assert died.returncode == -signal.SIGKILL
    if last is ActionState.OFF:
        assert journal.open_actions() == ((), ())
        return
    assert only_open(journal).last.state is last
    with journal.lock_instance(
        POD, "lab", BillingVerb.DESTROY
    ) as action:  # the lock went with the process
        if last is ActionState.INTENT:
            assert action.earlier is None, "the lock is free and nothing was sent: that is certain"
            action.record_intent("again")
            assert states(journal) == ["intent", "refused", "intent"]
            return
        assert action.earlier is not None
        with pytest.raises(JournalFailed, match="settle that first; nothing was sent"):
            action.record_intent("again")
        action.settle_earlier(ActionState.OFF, "404 and not in the list")
        action.record_intent("a new one")
    assert states(journal)[-2:] == ["off", "intent"]


def test_nothing_leads_to_a_second_call(journal: Journal) -> None:
    assert {state for state, later in FOLLOWS.items() if ActionState.SENT in later} == {
        ActionState.INTENT
    }
    assert {ActionState.OFF, ActionState.LISTED, ActionState.REFUSED, ActionState.FAILED} == SETTLED
    with journal.lock_instance(POD, "lab", BillingVerb.DESTROY) as action:
        with pytest.raises(JournalFailed, match="begins with its intent"):
            action.record_sent(CALL)
        action.record_intent("x")
        with pytest.raises(JournalFailed, match="already started"):
            action.record_intent("x")
        action.record_sent(CALL)
        for state in (ActionState.SENT, ActionState.INTENT):
            with pytest.raises(JournalFailed, match="nothing is sent twice"):
                action.record_state(state)
        action.record_state(ActionState.UNKNOWN, "cut")
        with pytest.raises(JournalFailed, match="nothing is sent twice"):
            action.record_sent(CALL)
    assert states(journal) == ["intent", "sent", "unknown"]


def test_another_process_is_told_who_holds_the_instance(journal: Journal) -> None:
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from rgt_tui.gate import Journal, InstanceTarget\n"
        "from rgt_tui.model.evidence import BillingVerb\n"
        "pod = InstanceTarget(kind='runpod', account='default@vendor', instance='k3v9')\n"
        "with Journal(Path(sys.argv[1])).lock_instance(pod, 'lab', BillingVerb.PARK):\n"
        "    print('held', flush=True)\n"
        "    sys.stdin.read()\n"
    )
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", code, journal.folder], **pipes) as other:
        assert other.stdin is not None and other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(InstanceLocked, match=f"process {other.pid} of .* k3v9 .*park of lab"):
            journal.lock_instance(POD, "lab", BillingVerb.DESTROY).__enter__()
        for one in (
            InstanceTarget(kind="vast", account="default@vendor", instance="k3v9"),
            InstanceTarget(kind="runpod", account="OTHER@vendor", instance="k3v9"),
            InstanceTarget(kind="runpod", account="default@vendor", instance="../k3v9"),
        ):
            with journal.lock_instance(one, "lab", BillingVerb.PARK):
                pass
        other.stdin.close()
        other.wait(60)
    with journal.lock_instance(POD, "lab", BillingVerb.DESTROY):
        pass


def test_the_same_process_cannot_act_twice_at_once_either(journal: Journal) -> None:
    with journal.lock_instance(POD, "lab", BillingVerb.PARK), pytest.raises(InstanceLocked):
        journal.lock_instance(POD, "lab", BillingVerb.PARK).__enter__()


def test_a_state_is_on_the_disk_before_it_is_said(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []

    def watched(name: str, said: Callable[..., str]) -> None:
        real = getattr(os, name)

        def call(*args: Any) -> Any:
            done.append(said(*args))
            return real(*args)

        monkeypatch.setattr(os, name, call)

    with journal.lock_instance(POD, "lab", BillingVerb.PARK) as action:
        watched("write", lambda fd, data: json.loads(data)["state"])
        watched(
            "fsync", lambda fd: "sync folder" if stat.S_ISDIR(os.fstat(fd).st_mode) else "sync file"
        )
        action.record_intent("x")
        assert done == ["intent", "sync file", "sync folder", "sync folder"]
        done.clear()
        action.record_sent(CALL)
        assert done == ["sent", "sync file"]


def test_half_a_line_announces_nothing(journal: Journal) -> None:
    with journal.lock_instance(POD, "lab", BillingVerb.PARK) as action:
        action.record_intent("x")
    with the_file(journal).open("ab") as file:
        file.write(b'{"action":"x","state":"se')
    assert only_open(journal).last.state is ActionState.INTENT
    with journal.lock_instance(POD, "lab", BillingVerb.PARK) as action:
        action.record_intent("y")
        action.record_sent(CALL)
    assert states(journal) == ["intent", "refused", "intent", "sent"]


def test_a_damaged_journal_refuses_and_names_the_line(journal: Journal) -> None:
    with journal.lock_instance(POD, "lab", BillingVerb.PARK) as action:
        action.record_intent("x")
        action.record_sent(CALL)
    path = the_file(journal)
    path.write_bytes(path.read_bytes().replace(b'"sent"', b'"dent"'))
    with pytest.raises(
        JournalFailed, match=r"line 2 of the journal .* check the provider's console"
    ):
        journal.lock_instance(POD, "lab", BillingVerb.PARK).__enter__()
    actions, (problem,) = journal.open_actions()
    assert actions == () and str(path) in problem


def test_a_disk_that_does_not_take_it_refuses(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    with journal.lock_instance(POD, "lab", BillingVerb.PARK) as action:
        action.record_intent("x")
        before = the_file(journal).read_bytes()

        def fails(fd: int) -> None:
            raise OSError(errno.EIO, "Input/output error")

        monkeypatch.setattr(os, "fsync", fails)
        with pytest.raises(JournalFailed, match="Input/output error"):
            action.record_sent(CALL)
        assert the_file(journal).read_bytes() == before
        assert action.state is ActionState.INTENT


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    if os.getuid() != 0:
        pytest.skip("mounting a tmpfs needs root")
    mount = tmp_path / "small"
    mount.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", mount], check=False)
    if made.returncode:
        pytest.skip("no right to mount a tmpfs here")
    yield mount
    subprocess.run(["umount", "-l", mount], check=True)


def test_without_room_for_the_answer_nothing_begins(full_disk: Path) -> None:
    journal = Journal(full_disk / "journal")
    (full_disk / "ballast").write_bytes(b"x" * 80 * 1024)
    with (
        journal.lock_instance(POD, "lab", BillingVerb.PARK) as action,
        pytest.raises(JournalFailed, match="No space left"),
    ):
        action.record_intent("x")
    assert journal.open_actions() == ((), ())


@pytest.mark.parametrize("what", ["folder", "link"])
def test_a_place_that_cannot_be_written_refuses(
    journal: Journal, tmp_path: Path, what: str
) -> None:
    if what == "folder":
        journal.folder.parent.mkdir(parents=True)
        journal.folder.write_text("a file")
    else:
        journal.folder.mkdir(parents=True)
        (tmp_path / "victim").write_text("mine")
        (journal.folder / f"{POD.file_name}.jsonl").symlink_to(tmp_path / "victim")
    with (
        pytest.raises(JournalFailed, match="cannot be"),
        journal.lock_instance(POD, "lab", BillingVerb.PARK) as action,
    ):
        action.record_intent("x")
    if what == "link":
        assert (tmp_path / "victim").read_text() == "mine"


def test_the_age_of_what_is_open_is_by_a_clock_that_nobody_sets(journal: Journal) -> None:
    with journal.lock_instance(POD, "lab", BillingVerb.PARK) as action:
        action.record_intent("x")
        action.record_sent(CALL)
    one = only_open(journal)
    assert one.last.boot == read_boot_id()
    assert one.seconds_since_state(
        one.last.at - 9e9, one.last.steady + 5, read_boot_id()
    ) == pytest.approx(5)
    assert one.seconds_since_state(one.last.at + 7, 0.0, "another start") == pytest.approx(7)
    assert one.seconds_since_state(one.last.at - 7, 0.0, "another start") == 0.0


def test_what_a_wrong_clock_wrote_is_older_than_this_start_of_the_computer(tmp_path: Path) -> None:
    """Or what was not done would stay open, and forbid every other action, until that date has come."""
    journal = Journal(tmp_path / "journal", clock=lambda: 9e9)
    with journal.lock_instance(POD, "lab", BillingVerb.PARK) as action:
        action.record_intent("x")
        action.record_sent(CALL)
    one = only_open(journal)
    assert one.seconds_since_state(1.8e9, 200.0, "another start") == pytest.approx(200)
    # Where the system names no start, its clock that began anew tells the same.
    assert one.seconds_since_state(1.8e9, one.last.steady - 1, one.last.boot) == pytest.approx(
        one.last.steady - 1
    )
    elsewhere = msgspec.structs.replace(
        one, last=msgspec.structs.replace(one.last, who="me@elsewhere")
    )
    assert elsewhere.seconds_since_state(1.8e9, 200.0, "another start") == 0.0, (
        "of another computer's start nothing is known"
    )


@pytest.mark.parametrize("at", [1e18, -1e18, 1e300])
def test_a_date_that_is_none_is_shown_as_it_stands(tmp_path: Path, at: float) -> None:
    journal = Journal(tmp_path / "journal", clock=lambda: at)
    with journal.lock_instance(POD, "lab", BillingVerb.PARK) as action:
        action.record_intent("x")
        action.record_sent(CALL)
        with (
            pytest.raises(InstanceLocked, match=re.escape(f"since {at:g}")),
            journal.lock_instance(POD, "lab", BillingVerb.PARK),
        ):
            pass
    assert f"since {at:g}" in describe_open_action(only_open(journal))


def test_each_state_can_name_its_line_of_the_record(journal: Journal) -> None:
    with journal.lock_instance(POD, "lab", BillingVerb.PARK) as action:
        action.record_intent("x", audit="a")
        action.record_sent(CALL)
        action.record_state(ActionState.ANSWERED, audit="b")
    with journal.lock_instance(POD, "lab", BillingVerb.PARK) as action:
        action.settle_earlier(ActionState.OFF, "seen", audit="c")
    assert [record.audit for record in journal.iterate_audited()] == ["a", "b", "c"]
