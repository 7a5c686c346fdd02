"""Full disks, from the first line to the save that says it is over."""

from __future__ import annotations

import shlex

import msgspec
import pytest

from rgt_tui.health import diagnose_box
from rgt_tui.model import (
    BoxState,
    DiskReading,
    Finding,
    FoundRun,
    InodeHog,
    RunResume,
    Severity,
    TrainingPause,
)
from tests.unit.triage.builders import (
    DATA,
    FULL,
    LOG,
    NOW,
    ROOT,
    box,
    cell,
    checkpoints,
    log,
    queue,
    run,
    sample,
)

ERROR = "OSError: [Errno 28] No space left on device: '/workspace/runs/lstm-b/checkpoints/.tmp-812-1/model.pt'"
SAID = (
    "checkpoint save failed at step 812: no inodes left on /workspace (4,096 of 4,096 used; bytes 3%); "
    "last good checkpoint is step 800"
)
STEP = "step 813  epoch 1  loss 1.2840  lr 2.9e-04"
AGAIN = "checkpoint saved again at step 820"


def sick(*lines: str, disk: DiskReading = FULL, **over: object) -> BoxState:
    base = box(sample=sample(ROOT, disk), logs=(log(*lines),), checkpoints=(checkpoints(780, 800),))
    return msgspec.structs.replace(base, **over)


def only(found: tuple[Finding, ...]) -> Finding:
    assert len(found) == 1, found
    return found[0]


def test_the_finding_says_all_that_is_needed_at_3_a_m() -> None:
    found = only(diagnose_box(sick(STEP, ERROR, SAID), NOW, ()))
    assert (found.gotcha, found.resource, found.run, found.step) == (
        "U7",
        "inodes of /workspace",
        "lstm-b",
        812,
    )
    assert found.evidence == ERROR
    assert found.where == LOG
    assert found.reading == "4,096 of 4,096 inodes used (bytes 3%)"
    assert found.since == NOW
    assert not found.cleared
    assert found.never is not None


def test_the_fix_is_concrete_and_looks_first() -> None:
    found = only(diagnose_box(sick(ERROR, SAID), NOW, ()))
    commands = [fix.command for fix in found.fixes]
    assert commands == [
        "df -i -- '/workspace'",
        "ls -A -- '/workspace/.cache/viz' | head",
        "rm -rf -- '/workspace/.cache/viz'",
    ]
    assert found.fixes[-1].text == (
        "3,900 files in /workspace/.cache/viz can be recreated: remove them, "
        "the run then saves again"
    )


@pytest.mark.parametrize(
    ("over", "says"),
    [
        (
            {"runs": (run(wait=TrainingPause(what="disk", step=812, unsaved=81)),)},
            "saves from memory and continues",
        ),
        (
            {"queues": (queue(cell(state="failed", exit_code=74)),)},
            "resumes from its last good checkpoint (step 800)",
        ),
        (
            {"queues": (queue(cell(state="failed", exit_code=74)),), "checkpoints": ()},
            "or from the start if it has none",
        ),
    ],
)
@pytest.mark.parametrize(
    "disk", [FULL, msgspec.structs.replace(DATA, bytes_used=20_000, bytes_free=0)]
)
def test_what_happens_once_there_is_room_is_said_as_it_is(
    over: dict[str, object], says: str, disk: DiskReading
) -> None:
    lines = [
        line.replace("no inodes", "no bytes") if disk is not FULL else line
        for line in (ERROR, SAID)
    ]
    if "checkpoints" in over:
        lines = [line.replace("; last good checkpoint is step 800", "") for line in lines]
    found = only(diagnose_box(sick(*lines, disk=disk, **over), NOW, ()))
    assert says in found.fixes[-1].text


def test_the_readings_alone_are_a_finding() -> None:
    found = only(diagnose_box(sick(STEP), NOW, ()))
    assert (found.gotcha, found.where, found.run) == ("U7", "sample", None)
    assert found.evidence == "/workspace: 4,096 of 4,096 inodes used (bytes 3%)"


@pytest.mark.parametrize(("used", "ids"), [(3891, []), (3892, ["U7"])])
def test_inodes_count_from_95_percent(used: int, ids: list[str]) -> None:
    found = diagnose_box(sick(STEP, disk=msgspec.structs.replace(FULL, inodes_used=used)), NOW, ())
    assert [finding.gotcha for finding in found] == ids


@pytest.mark.parametrize(("used", "ids"), [(18_999, []), (19_000, ["U6"])])
def test_bytes_count_from_95_percent_as_well(used: int, ids: list[str]) -> None:
    disk = msgspec.structs.replace(DATA, bytes_used=used, bytes_free=20_000 - used)
    found = diagnose_box(sick(STEP, disk=disk), NOW, ())
    assert [finding.gotcha for finding in found] == ids
    assert [finding.title for finding in found] == ["The disk is nearly full"] * len(ids)


@pytest.mark.parametrize(("used", "held"), [(18_400, True), (18_399, False)])
def test_a_finding_of_a_reading_clears_where_its_alert_clears(used: int, held: bool) -> None:
    first = diagnose_box(
        sick(STEP, disk=msgspec.structs.replace(DATA, bytes_used=19_100, bytes_free=900)), NOW, ()
    )
    later = sick(
        STEP, disk=msgspec.structs.replace(DATA, bytes_used=used, bytes_free=20_000 - used)
    )
    assert bool(diagnose_box(later, NOW + 5, first)) is held


def test_a_full_read_only_mount_is_no_trouble() -> None:
    assert (
        diagnose_box(sick(STEP, disk=msgspec.structs.replace(FULL, read_only=True)), NOW, ()) == ()
    )


def test_bytes_that_are_used_up_are_called_bytes() -> None:
    disk = msgspec.structs.replace(DATA, bytes_used=20_000_000_000, bytes_free=0)
    found = only(
        diagnose_box(
            sick("OSError: [Errno 28] No space left on device: '/workspace/a'", disk=disk), NOW, ()
        )
    )
    assert found.resource == "bytes of /workspace"
    assert found.reading == "20.0 GB of 20.0 GB used, 0 B free (inodes 4%)"


def test_a_failed_save_without_bytes_is_u6() -> None:
    disk = msgspec.structs.replace(DATA, bytes_used=20_000_000_000, bytes_free=0)
    line = "checkpoint save failed at step 812: no bytes left on /workspace (needs 40 MB, 0 B free)"
    assert only(diagnose_box(sick(line, disk=disk), NOW, ())).gotcha == "U6"


def test_too_little_for_one_more_checkpoint_is_short_as_well() -> None:
    disk = msgspec.structs.replace(DATA, bytes_used=19_000_000_000, bytes_free=39_000_000)
    found = only(
        diagnose_box(sick("PytorchStreamWriter failed writing file data/1", disk=disk), NOW, ())
    )
    assert (found.resource, found.cleared) == ("bytes of /workspace", False)


def test_the_path_in_the_line_names_the_mount() -> None:
    full_root = msgspec.structs.replace(ROOT, bytes_used=50_000_000_000, bytes_free=0)
    both = sick(
        "OSError: [Errno 28] No space left on device: '/tmp/x'", sample=sample(full_root, DATA)
    )
    assert only(diagnose_box(both, NOW, ())).resource == "bytes of /"


def test_without_a_path_the_full_mount_is_taken() -> None:
    full_root = msgspec.structs.replace(ROOT, bytes_used=50_000_000_000, bytes_free=0)
    both = sick("OSError: [Errno 28] No space left on device", sample=sample(full_root, DATA))
    assert only(diagnose_box(both, NOW, ())).resource == "bytes of /"


def test_a_quota_is_not_judged_by_the_mount() -> None:
    found = only(
        diagnose_box(
            sick("OSError: [Errno 122] Disk quota exceeded: '/workspace/a'", disk=DATA), NOW, ()
        )
    )
    assert (found.resource, found.cleared) == ("quota of /workspace", False)


def test_room_again_but_not_saved_yet() -> None:
    first = diagnose_box(sick(ERROR, SAID), NOW, ())
    found = only(diagnose_box(sick(ERROR, SAID, disk=DATA), NOW + 5, first))
    assert found.cleared
    assert found.resource == "inodes of /workspace"
    assert found.since == NOW
    assert found.reading == "180 of 4,096 inodes used (bytes 3%)"


def test_steps_alone_do_not_end_it_while_checkpoints_can_be_seen() -> None:
    later = sick(ERROR, SAID, STEP, disk=DATA, runs=(run(step=850),))
    assert only(diagnose_box(later, NOW, ())).cleared


@pytest.mark.parametrize(
    "over",
    [
        {"logs": (log(ERROR, SAID, AGAIN),)},
        {
            "logs": (
                log(
                    ERROR,
                    SAID,
                    "checkpoint 820 → /workspace/runs/lstm-b/checkpoints/step-00000820  38.0 MB",
                ),
            )
        },
        {"checkpoints": (checkpoints(800, 820),)},
        {"checkpoints": (), "runs": (run(step=813),)},
        {"queues": (queue(cell(state="done", exit_code=0)),)},
    ],
)
def test_a_save_ends_it(over: dict[str, object]) -> None:
    first = diagnose_box(sick(ERROR, SAID), NOW, ())
    assert diagnose_box(sick(ERROR, SAID, disk=DATA, **over), NOW + 9, first) == ()


def test_a_save_overcomes_it_although_the_mount_stays_full() -> None:
    """It said "no file can be made", with rm -rf as the way out, for minutes of good saves."""
    first = diagnose_box(sick(ERROR, SAID), NOW - 600, ())
    assert only(first).severity is Severity.FATAL
    saved = (checkpoints(800, 880),)
    now = only(diagnose_box(sick(ERROR, SAID, AGAIN, checkpoints=saved), NOW, first))
    assert (now.resource, now.run, now.severity) == (
        "inodes of /workspace",
        None,
        Severity.DEGRADING,
    )
    assert now.title == "Nearly all inodes are used: soon no file can be created"
    assert "step 880 was still saved" in now.evidence
    worse = (ERROR, SAID, AGAIN, ERROR, SAID.replace("812", "890"))
    again = only(diagnose_box(sick(*worse, checkpoints=saved), NOW + 9, (now,)))
    assert (again.severity, again.run) == (Severity.FATAL, "lstm-b")


def test_steps_alone_prove_no_save_while_the_mount_is_full() -> None:
    first = diagnose_box(sick(ERROR, SAID), NOW, ())
    later = only(
        diagnose_box(sick(ERROR, SAID, STEP, checkpoints=(), runs=(run(step=900),)), NOW + 9, first)
    )
    assert (later.severity, later.cleared) == (Severity.FATAL, False)


def test_a_second_failure_after_a_save_counts() -> None:
    found = only(
        diagnose_box(
            sick(ERROR, SAID, AGAIN, ERROR, SAID.replace("812", "830"), disk=DATA), NOW, ()
        )
    )
    assert (found.step, found.cleared) == (830, True)


def test_a_crashed_cell_that_starts_again_has_to_save_again() -> None:
    first = diagnose_box(
        sick(ERROR, SAID, queues=(queue(cell(state="failed", exit_code=1)),)), NOW, ()
    )
    resumed = (
        ERROR,
        SAID,
        "resume: at step 800 of 2400 from /x; attempt 2, the last one ended by: unknown",
    )
    again = run(step=805, resumes=(RunResume(800, "crash", 0),))
    waiting = only(diagnose_box(sick(*resumed, STEP, disk=DATA, runs=(again,)), NOW + 1, first))
    assert waiting.cleared
    saved = sick(*resumed, STEP, disk=DATA, runs=(again,), checkpoints=(checkpoints(800, 806),))
    assert diagnose_box(saved, NOW + 2, (waiting,)) == ()


def test_the_cause_is_gone_only_some_way_below_the_limit() -> None:
    first = diagnose_box(sick(ERROR, SAID), NOW, ())
    for used, cleared in ((3800, False), (3600, True)):
        disk = msgspec.structs.replace(FULL, inodes_used=used)
        assert only(diagnose_box(sick(ERROR, SAID, disk=disk), NOW, first)).cleared is cleared


def test_the_finding_outlives_its_line_in_the_log() -> None:
    many = tuple(f"step {n}  loss 1.28" for n in range(820, 900))
    first = diagnose_box(sick(ERROR, SAID), NOW, ())
    still = only(diagnose_box(sick(ERROR, SAID, *many), NOW + 60, first))
    assert (still.evidence, still.run, still.cleared, still.since) == (ERROR, "lstm-b", False, NOW)
    freed = only(diagnose_box(sick(ERROR, SAID, *many, disk=DATA), NOW + 61, (still,)))
    assert (freed.cleared, freed.reading) == (True, "180 of 4,096 inodes used (bytes 3%)")
    saved = sick(ERROR, SAID, *many, disk=DATA, checkpoints=(checkpoints(800, 900),))
    assert diagnose_box(saved, NOW + 62, (freed,)) == ()


def test_a_run_that_holds_is_found_by_that_line_too() -> None:
    line = "holding at step 1012: 212 steps are not saved (limit 200); waiting up to 3600 s until / takes 40 MB"
    found = only(diagnose_box(sick(line), NOW, ()))
    assert (found.gotcha, found.step) == ("U7", 1012)


def test_since_is_kept_when_the_line_follows_the_reading() -> None:
    first = diagnose_box(sick(STEP), NOW, ())
    assert only(diagnose_box(sick(STEP, ERROR, SAID), NOW + 30, first)).since == NOW


def test_reading_findings_go_with_a_margin() -> None:
    first = diagnose_box(sick(STEP), NOW, ())
    a_bit = msgspec.structs.replace(FULL, inodes_used=3800)
    assert only(diagnose_box(sick(STEP, disk=a_bit), NOW, first)).resource == "inodes of /workspace"
    assert diagnose_box(sick(STEP, disk=DATA), NOW, first) == ()


@pytest.mark.parametrize(
    "path",
    [
        "/workspace",
        "/workspace/runs",
        "/workspace/runs/lstm-b/cache",
        "/workspace/data",
        "relative/cache",
        "/workspace/../cache",
        "/workspace/.cache/a\nb",
        "/cache",
        "/workspace/cache/../runs",
    ],
)
def test_nothing_is_offered_for_removal_that_may_be_needed(path: str) -> None:
    disk = msgspec.structs.replace(FULL, hogs=(InodeHog(path=path, inodes=3900, bytes=1),))
    found = only(diagnose_box(sick(ERROR, SAID, disk=disk), NOW, ()))
    assert not [fix.command for fix in found.fixes if fix.command and fix.command.startswith("rm")]


def removals(state: BoxState) -> list[str]:
    found = diagnose_box(state, NOW, ())
    commands = [fix.command for finding in found for fix in finding.fixes if fix.command]
    return [command for command in commands if command.startswith("rm")]


def full_of(path: str, **over: object) -> BoxState:
    disk = msgspec.structs.replace(FULL, hogs=(InodeHog(path=path, inodes=3900, bytes=1),))
    bare = box(sample=sample(ROOT, disk), queues=(), runs=(), checkpoints=(), logs=())
    return msgspec.structs.replace(bare, **over)


def training(cwd: str | None = None, **over: object) -> FoundRun:
    base = FoundRun(name="exp/train", pid=9, started=NOW - 60, command="python train.py", cwd=cwd)
    return msgspec.structs.replace(base, **over)


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("/workspace/tmp/exp/outputs", training("/workspace/tmp/exp")),
        ("/workspace/tmp/exp", training("/workspace/tmp/exp")),
        ("/workspace/tmp", training("/workspace/tmp/exp")),
        ("/workspace/tmp/exp", training("/workspace/tmp/exp", alive=False, ended=NOW - 5)),
        ("/workspace/tmp/a/ckpt", training(sources=("/workspace/tmp/a/metrics.csv",))),
        (
            "/workspace/tmp",
            training(log="/workspace/tmp/a/train.log", logs=("/workspace/tmp/a/train.log",)),
        ),
        ("/workspace/cache/b/states", training(logs=("/workspace/cache/b/train.log",))),
    ],
)
def test_the_results_of_a_found_training_are_not_offered_for_removal(
    path: str, found: FoundRun
) -> None:
    """Most trainings have no queue: what a directory of the way is called says nothing about what they save."""
    assert removals(full_of(path)) == [f"rm -rf -- '{path}'"]
    assert removals(full_of(path, found=(found,))) == []


@pytest.mark.parametrize(
    "path", ["/workspace/exp/.cache/viz", "/workspace/exp/tmp", "/workspace/.cache/pip"]
)
def test_a_cache_beside_a_found_training_is_still_offered(path: str) -> None:
    found = training(
        "/workspace/exp", log="tmux:%1", sources=("/workspace/exp/runs/a/metrics.csv",)
    )
    assert removals(full_of(path, found=(found,))) == [f"rm -rf -- '{path}'"]


@pytest.mark.parametrize(
    ("key", "path"),
    [
        ("results", "/workspace/tmp/keep"),
        ("results", "/workspace/tmp/*/keep"),
        ("runs", "/workspace/tmp/run[12]"),
        ("runs", "/workspace/tmp/keep/"),
    ],
)
def test_what_the_fleet_file_names_is_not_offered_for_removal(key: str, path: str) -> None:
    state = full_of("/workspace/tmp/keep")
    spec = msgspec.structs.replace(state.spec, **{key: (path,)})
    assert removals(state) and removals(msgspec.structs.replace(state, spec=spec)) == []


@pytest.mark.parametrize(
    ("user", "home"), [(None, "/root"), ("root", "/root"), ("ann", "/home/ann"), ("ann", "/root")]
)
@pytest.mark.parametrize("key", ["runs", "jobs"])
def test_a_home_of_the_box_in_the_fleet_file_is_understood(
    key: str, user: str | None, home: str
) -> None:
    state = full_of(f"{home}/tmp/keep/a")
    spec = msgspec.structs.replace(state.spec, user=user, **{key: ("~/tmp/keep",)})
    assert removals(state) and removals(msgspec.structs.replace(state, spec=spec)) == []


@pytest.mark.parametrize("name", ["it's", "a b", "$(reboot)", "`x`", "-rf", "ä"])
def test_a_path_is_one_word_of_the_command(name: str) -> None:
    path = f"/workspace/.cache/{name}"
    disk = msgspec.structs.replace(FULL, hogs=(InodeHog(path=path, inodes=3900, bytes=1),))
    cure = only(diagnose_box(sick(ERROR, SAID, disk=disk), NOW, ())).fixes[-1]
    assert cure.command is not None
    assert shlex.split(cure.command) == ["rm", "-rf", "--", path]


@pytest.mark.parametrize(
    "name",
    [
        "a\u200bb",
        "a\u009db",
        "a\u202egpj",
        "\u2066b",
        "\ufeffb",
        "a\nb",
        "a\tb",
        "a\x1b[1mb",
        "a\u00a0b",
        "a?",
        "a\ufffd",
        "\u00adb",
    ],
)
@pytest.mark.parametrize("kind", ["hog", "mount"])
def test_no_command_names_what_cannot_be_shown_to_the_byte(kind: str, name: str) -> None:
    hog, mount = (
        ("/workspace/.cache/x", f"/work{name}")
        if kind == "mount"
        else (f"/workspace/.cache/{name}", "/workspace")
    )
    disk = msgspec.structs.replace(
        FULL, mount=mount, hogs=(InodeHog(path=hog, inodes=3900, bytes=1),)
    )
    for short in (disk, msgspec.structs.replace(disk, inodes_used=1, bytes_used=disk.bytes_total)):
        for found in diagnose_box(sick(disk=short), NOW, ()):
            commands = [fix.command for fix in found.fixes if fix.command]
            assert all(command.isprintable() for command in commands), commands
            assert not any(name in command for command in commands), commands
            assert not any("rm" in command and kind == "hog" for command in commands), commands


def test_a_directory_whose_name_cannot_be_shown_is_looked_at_by_the_one_above_it() -> None:
    disk = msgspec.structs.replace(
        FULL, hogs=(InodeHog(path="/workspace/.cache/vi\u200bz", inodes=3900, bytes=1),)
    )
    found = only(diagnose_box(sick(ERROR, SAID, disk=disk), NOW, ()))
    assert [fix.command for fix in found.fixes] == [
        "df -i -- '/workspace'",
        "ls -lAb -- '/workspace/.cache'",
        None,
    ]
    assert "cannot be shown" in found.fixes[1].text


def test_a_directory_that_holds_another_mount_is_not_offered() -> None:
    held = msgspec.structs.replace(DATA, mount="/workspace/.cache/viz/keep")
    state = msgspec.structs.replace(sick(ERROR, SAID), sample=sample(ROOT, FULL, held))
    found = next(f for f in diagnose_box(state, NOW, ()) if f.gotcha == "U7")
    assert not any((fix.command or "").startswith("rm") for fix in found.fixes)


def test_a_durable_path_that_cannot_be_shown_has_no_command() -> None:
    for path, shown in (
        ("/d/x", "ls -l -- '/d/x'"),
        ("/d/\u200bx", None),
        ("s3://b/x", None),
        ("-x", None),
    ):
        kept = cell(durable="failed", durable_path=path)
        found = next(
            f for f in diagnose_box(box(queues=(queue(kept),)), NOW, ()) if f.gotcha == "U33"
        )
        assert [fix.command for fix in found.fixes if fix.text.startswith("Check the durable")] == [
            shown
        ]


def test_a_durable_directory_is_never_offered() -> None:
    kept = cell(durable_path="/workspace/.cache/viz/keep")
    found = only(diagnose_box(sick(ERROR, SAID, queues=(queue(kept),)), NOW, ()))
    assert not any((fix.command or "").startswith("rm") for fix in found.fixes)


def test_a_run_that_holds_for_another_reason_is_not_short_of_space() -> None:
    lines = (
        "checkpoint save failed at step 812: /workspace is read-only; last good checkpoint is step 800",
        *(f"step {n}  loss 1.28" for n in range(813, 830)),
        "holding at step 829: 29 steps are not saved (limit 20); waiting up to 3600 s until / takes 40 MB",
    )
    found = only(diagnose_box(sick(*lines, disk=DATA), NOW, ()))
    assert (found.gotcha, found.evidence) == ("CKPT1", lines[0])
    assert (
        diagnose_box(sick(*lines, "checkpoint saved again at step 829", disk=DATA), NOW, (found,))
        == ()
    )
