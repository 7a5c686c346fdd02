"""Each check: proved only by what proves it, and never by a box that no longer reports."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rgt_tui.health import ADVISED_AT, CHECKS, evaluate_checks
from rgt_tui.model import (
    FLEET_FILE,
    BoxState,
    CheckResult,
    CheckStatus,
    DetachedSessions,
    ExposedToken,
    Finding,
    GpuReading,
    Hello,
    Lifecycle,
    LinkState,
    LogView,
    MemoryReading,
    Meter,
    MeterKind,
    RentalTerms,
    RunResume,
    Severity,
    StreamCounters,
)
from rgt_tui.profiles import load_profile, platform_sections, run_advice
from tests.unit.triage.builders import (
    DATA,
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

PASSED, FAILED, WARN = CheckStatus.PASSED, CheckStatus.FAILED, CheckStatus.WARN
WAITING, PERSON = CheckStatus.WAITING, CheckStatus.PERSON
DONE = (
    cell("lstm-a", state="done", exit_code=0, durable="verified"),
    cell(state="done", durable="verified"),
)
H200 = GpuReading(index=0, name="H200", util=1.0)


def check(id_: str, state: BoxState, profile: str = "vastai") -> CheckResult:
    return next(
        result for result in evaluate_checks(state, load_profile(profile), NOW) if result.id == id_
    )


def box_of(**over: Any) -> BoxState:
    return box(**over)


def looked(*found: ExposedToken) -> Hello:
    return Hello(
        proto=1, agent="a", boot="b", host="h", python="3.12.1", pid=1, at=NOW, exposed=found
    )


CASES: list[tuple[str, dict[str, Any], CheckStatus]] = [
    ("0.1", {}, WAITING),
    ("0.2", {}, PASSED),
    ("0.2", {"sample": None}, WAITING),
    ("0.2", {"sample": sample(ROOT, msgspec.structs.replace(DATA, inodes_used=3276))}, PASSED),
    ("0.2", {"sample": sample(ROOT, msgspec.structs.replace(DATA, inodes_used=3277))}, WARN),
    ("0.2", {"sample": sample(ROOT, msgspec.structs.replace(DATA, inodes_used=4096))}, FAILED),
    ("0.2", {"sample": sample(msgspec.structs.replace(DATA, inodes_total=None))}, WAITING),
    ("0.2", {"sample": sample(ROOT, msgspec.structs.replace(DATA, error="timed out"))}, WARN),
    ("0.3", {}, PASSED),
    ("0.3", {"sample": sample(mem=MemoryReading(cgroup=2, used=1))}, WARN),
    ("0.3", {"sample": sample(mem=MemoryReading())}, WARN),
    ("0.4", {}, WARN),
    ("0.4", {"sample": sample(gpus=(H200,))}, PASSED),
    ("0.4", {"sample": sample(gpus=())}, FAILED),
    ("0.4", {"sample": sample(gpus=(GpuReading(index=0, name="H200", error="lost"),))}, FAILED),
    ("0.5", {}, PASSED),
    ("0.5", {"checkpoints": ()}, WAITING),
    ("0.5", {"checkpoints": (checkpoints(640, size=7_000_000_000),)}, FAILED),
    ("0.5", {"sample": sample(ROOT, msgspec.structs.replace(DATA, inodes_used=4000))}, FAILED),
    ("1.1", {}, PASSED),
    ("1.1", {"link": LinkState.REFUSED_KEY}, FAILED),
    ("1.1", {"link": LinkState.UNREACHABLE}, FAILED),
    ("1.1", {"link": LinkState.CONNECTING}, WAITING),
    ("1.2", {}, PASSED),
    ("1.2", {"hello": None}, WAITING),
    (
        "1.2",
        {
            "hello": Hello(
                proto=1,
                agent="0123",
                boot="boot-1",
                host="c1",
                python="3.8.2",
                pid=50,
                at=NOW,
                limited=("no logs",),
            )
        },
        WARN,
    ),
    ("1.3", {}, PASSED),
    ("1.3", {"clock_skew": None}, WAITING),
    ("1.3", {"clock_skew": -3.0}, WARN),
    ("1.3", {"clock_skew": 31.0}, FAILED),
    ("1.4", {}, PASSED),
    ("1.4", {"counters": StreamCounters()}, WAITING),
    ("1.4", {"counters": StreamCounters(samples=9, gaps=1)}, WARN),
    ("1.4", {"counters": StreamCounters(samples=9, duplicates=1)}, WARN),
    ("1.5", {}, PERSON),
    ("1.5", {"hello": looked()}, PERSON),
    ("1.5", {"hello": looked(ExposedToken("/root/.netrc", "a password"))}, PERSON),
    ("1.5", {"hello": looked(ExposedToken("/nfs/.env", "a key", "it is on nfs"))}, FAILED),
    ("2.1", {}, PASSED),
    ("2.1", {"queues": (), "checkpoints": (), "runs": ()}, PERSON),
    ("2.1", {"queues": (queue(cell()),)}, WAITING),
    ("2.1", {"queues": (), "runs": (run(resumes=(RunResume(640, "SIGTERM", 0),)),)}, PASSED),
    ("2.2", {}, PASSED),
    ("2.2", {"runs": (run(losses=[1.0] * 19),)}, WAITING),
    ("2.2", {"runs": (run(losses=[1.0] * 40),)}, WARN),
    ("2.2", {"runs": (run(losses=[2.0] * 30 + [math.nan]),)}, FAILED),
    ("2.3", {}, WAITING),
    ("2.3", {"runs": (run(resumes=(RunResume(640, "SIGTERM", 0),)),)}, PASSED),
    ("2.3", {"runs": (run(step=600, resumes=(RunResume(640, "SIGTERM", 0),)),)}, WAITING),
    ("3.1", {}, PASSED),
    ("3.1", {"queues": ()}, WAITING),
    ("3.1", {"queues": (queue(error="queue.txt cannot be read"),)}, FAILED),
    ("3.1", {"queues": (queue(cell("a"), cell("a")),)}, FAILED),
    ("3.1", {"queues": (queue(cell("a")), queue(cell("a"), path="/root/b/queue.txt"))}, FAILED),
    (
        "3.1",
        {"queues": (queue(cell("a")), queue(cell("a", out="/root/b/a"), path="/root/b/queue.txt"))},
        PASSED,
    ),
    ("3.2", {}, PASSED),
    ("3.2", {"queues": ()}, WAITING),
    ("3.2", {"queues": (queue(runner_alive=False),)}, FAILED),
    ("3.2", {"queues": (queue(cell(state="waiting"), runner_alive=False),)}, WAITING),
    ("3.2", {"queues": (queue(*DONE, done=True, runner_alive=False),)}, PASSED),
    ("3.3", {}, PASSED),
    ("3.3", {"runs": ()}, WAITING),
    ("3.3", {"queues": (), "runs": ()}, WAITING),
    ("3.4", {}, PASSED),
    ("3.4", {"checkpoints": ()}, WAITING),
    ("3.5", {}, PASSED),
    ("3.5", {"queues": (queue(cell(durable=None)),)}, WARN),
    ("4.1", {}, PASSED),
    ("4.1", {"logs": ()}, WARN),
    ("4.1", {"logs": (LogView(log().path, ("x",), at=NOW - 200),)}, WARN),
    ("4.1", {"queues": ()}, WAITING),
    ("4.2", {}, PASSED),
    ("4.2", {"runs": (run(progressed_at=NOW - 31),)}, WARN),
    ("4.2", {"runs": (run(progressed_at=NOW - 301),)}, FAILED),
    ("4.2", {"runs": ()}, WAITING),
    ("4.4", {}, PASSED),
    ("4.4", {"runs": (run(losses=[math.nan] + [1.0] * 50),)}, PASSED),
    ("4.4", {"runs": (run(losses=[math.nan] + [1.0] * 49),)}, FAILED),
    ("4.4", {"runs": (run(losses=[]),)}, WAITING),
    ("4.5", {}, PASSED),
    ("4.5", {"checkpoints": (checkpoints(640, name="lstm-a"),)}, WAITING),
    ("4.5", {"checkpoints": (checkpoints(-100),)}, WARN),
    ("4.6", {}, PERSON),
    ("4.7", {}, PASSED),
    ("4.8", {}, PASSED),
    ("4.8", {"sample": sample(mem=MemoryReading(cgroup=2, used=9, limit=10, oom_kills=0))}, WARN),
    (
        "4.8",
        {"sample": sample(mem=MemoryReading(cgroup=2, used=98, limit=100, oom_kills=0))},
        FAILED,
    ),
    ("4.8", {"sample": sample(mem=MemoryReading(cgroup=2, used=1, limit=10, oom_kills=1))}, WARN),
    ("4.8", {"sample": sample(mem=MemoryReading(cgroup=2, used=1, limit=10))}, WARN),
    ("5.1", {}, WAITING),
    ("5.1", {"queues": (queue(*DONE),)}, PASSED),
    ("5.1", {"queues": (queue(DONE[0], cell(state="failed")),)}, FAILED),
    ("5.2", {}, PASSED),
    ("5.2", {"queues": (queue(cell(state="done", durable="pending")),)}, WAITING),
    ("5.2", {"queues": (queue(cell(state="done", durable=None)),)}, WARN),
    ("5.2", {"queues": (queue(cell(state="done", durable="failed")),)}, FAILED),
    ("5.2", {"queues": (queue(cell()),)}, WAITING),
    ("5.3", {}, WARN),
    ("5.4", {}, WAITING),
    ("5.4", {"queues": (queue(*DONE, done=True),), "sample": sample(procs=())}, PASSED),
    ("5.4", {"queues": (queue(*DONE),), "sample": sample(procs=())}, WAITING),
    ("5.5", {}, PASSED),
    ("5.5", {"meter": Meter()}, WAITING),
    ("5.5", {"meter": Meter(MeterKind.UNKNOWN, Lifecycle.RUNNING, at=NOW)}, WARN),
    ("5.5", {"meter": msgspec.structs.replace(box().meter, at=NOW - 121)}, WARN),
    ("5.6", {}, PERSON),
]


@pytest.mark.parametrize(("id_", "over", "status"), CASES)
def test_a_check_says_what_its_evidence_proves(
    id_: str, over: dict[str, Any], status: CheckStatus
) -> None:
    found = check(id_, box_of(**over))
    assert (found.status, bool(found.evidence)) == (status, True), found.evidence


@pytest.mark.parametrize(
    ("profile", "path", "status", "said"),
    [
        ("autodl", "/root/autodl-fs/ckpt", PASSED, "shared-fs, which survives destroy"),
        ("autodl", "/root/autodl-tmp/ckpt", FAILED, "data, which destroy deletes"),
        ("runpod", "/workspace/keep", FAILED, "unless a network-volume is mounted there"),
        ("runpod", "/runpod-volume/keep", PASSED, "network-volume"),
        ("generic-ssh", "/data", FAILED, "root, which destroy deletes"),
    ],
)
def test_whether_the_durable_place_outlives_the_box(
    profile: str, path: str, status: CheckStatus, said: str
) -> None:
    found = check("5.3", box(queues=(queue(cell(durable_path=path)),)), profile)
    assert found.status is status
    assert said in found.evidence


def test_checkpoints_on_a_disk_that_a_stop_empties() -> None:
    items = msgspec.structs.replace(checkpoints(640).items[0], path="/root/out/step-640")
    state = box(checkpoints=(msgspec.structs.replace(checkpoints(640), items=(items,)),))
    assert check("3.4", state, "runpod").status is FAILED
    assert check("3.4", state, "autodl").status is PASSED
    assert check("3.4", state, "generic-ssh").status is WARN


def test_a_simulated_gpu_is_called_so() -> None:
    assert (
        check("0.4", box()).evidence
        == "SIM: 1 × RTX 4090 replayed from a trace, no real GPU was seen"
    )


@pytest.mark.parametrize(
    ("asked", "status", "said"),
    [
        (RentalTerms(gpu="H200", gpu_count=1), PASSED, "1 × H200, by "),
        (RentalTerms(gpu="A100", gpu_count=1), FAILED, "1 × H200, asked for 1 × A100"),
        (RentalTerms(gpu="H200", gpu_count=8), FAILED, "1 × H200, asked for 8 × H200"),
        (RentalTerms(spot=True), PASSED, "1 × H200, by "),
    ],
)
def test_the_gpu_is_the_one_that_was_asked_for(
    asked: RentalTerms, status: CheckStatus, said: str
) -> None:
    spec = msgspec.structs.replace(box().spec, asked=asked)
    found = check("0.4", box(spec=spec, sample=sample(gpus=(H200,))))
    assert found.status is status
    assert said in found.evidence


def test_a_profile_that_was_not_found_is_not_proved() -> None:
    assert check("0.1", box(), "generic-ssh").status is WARN


def test_a_platform_is_read_about_once_a_person_has_seen_its_page() -> None:
    profile = load_profile("vastai")
    before = next(one for one in evaluate_checks(box(), profile, NOW) if one.id == "0.1")
    assert "rgt profiles show vastai" in before.evidence
    assert profile.top_danger in before.evidence
    after = next(
        one for one in evaluate_checks(box(), profile, NOW, page_seen=True) if one.id == "0.1"
    )
    assert after.status is PASSED


def test_a_finding_fails_the_babysitting() -> None:
    bad = Finding("U7", "No inodes", Severity.FATAL, "inodes of /workspace", "x", "log")
    assert check("4.7", box(findings=(bad,))).status is FAILED
    assert check("4.7", box(findings=(msgspec.structs.replace(bad, cleared=True),))).status is WARN


def test_without_a_provider_the_meter_is_not_known() -> None:
    state = box(meter=Meter(), spec=msgspec.structs.replace(box().spec, provider=None))
    assert check("5.5", state).status is WARN


def test_a_price_that_the_person_wrote_down_is_not_read_from_a_provider() -> None:
    spec = msgspec.structs.replace(box().spec, provider=None, per_hour=0.5)
    priced = msgspec.structs.replace(box().meter, source=FLEET_FILE, per_hour=0.5)
    found = check("5.5", box(meter=priced, spec=spec))
    assert found.status is WARN
    assert found.evidence.startswith("no provider: $0.50/h is the price in the fleet file")


def test_the_newest_layer_does_not_hide_the_oldest() -> None:
    found = check("4.1", box(logs=(LogView(log().path, ("x",), at=NOW - 60),)))
    assert found.at == NOW - 60
    assert found.evidence == "session 0s, log 1m00, curve 1s, cgroup 0s"


def test_the_tmux_session_is_named() -> None:
    assert check("3.2", box()).evidence == "runner 77 is active, tmux rgt"
    bare = sample(session=DetachedSessions())
    assert check("3.2", box(sample=bare)).evidence == "runner 77 is active"


def test_checkpoint_times_are_of_the_box_and_are_turned_into_the_clients() -> None:
    assert check("4.5", box(clock_skew=100.0)).at == NOW - 2 * (900 - 640) - 100.0


@pytest.mark.parametrize("over", [{"sample_at": NOW - 4}, {"link": LinkState.UNREACHABLE}])
def test_nothing_live_is_proved_by_a_box_that_does_not_report(over: dict[str, Any]) -> None:
    live = {one.id for one in CHECKS if one.live}
    results = evaluate_checks(box(**over), load_profile("vastai"), NOW)
    assert not [result.id for result in results if result.id in live and result.status is PASSED]
    assert check("0.2", box(sample_at=NOW - 42)).evidence.endswith("(last sample 42s ago)")


def test_facts_that_stay_true_stay_proved() -> None:
    gone = box(link=LinkState.UNREACHABLE, sample_at=NOW - 900)
    assert check("5.2", gone).status is PASSED
    assert check("2.1", gone).status is PASSED


def test_what_was_measured_is_advised_at_its_check_and_changes_no_status() -> None:
    points = tuple(
        msgspec.structs.replace(checkpoints(600).items[0], step=i, at=NOW - 2400.0 * (6 - i))
        for i in range(6)
    )
    kept = msgspec.structs.replace(checkpoints(600), items=points)
    cost = log("checkpoint 800 → /x  3 MB  on disk after 2.10 s, stalled 2,000 ms")
    running = queue(cell(started=NOW - 8 * 3600))
    state = box(queues=(running,), checkpoints=(kept,), logs=(cost,), clock_skew=0.0)
    told = {
        one.id: one for one in evaluate_checks(state, load_profile("vastai"), NOW) if one.advice
    }
    assert list(told) == ["4.5"]
    assert told["4.5"].advice.startswith(
        "lstm-b: saves every 40m00; 5m38 would lose less (a save costs 2.0 s"
    )
    silent = msgspec.structs.replace(state, logs=())
    assert check("4.5", silent).status is told["4.5"].status


def test_every_advice_has_its_check() -> None:
    said = set(re.findall(r'about="(\w+)"', Path(run_advice.__file__).read_text()))
    assert said == set(ADVISED_AT) and set(ADVISED_AT.values()) <= {one.id for one in CHECKS}


@pytest.mark.parametrize(
    "profile", ["gpushare", "matpool", "paperspace-core", "lambda", "featurize"]
)
def test_a_refused_login_says_how_your_key_gets_to_the_platform(profile: str) -> None:
    state = box(link=LinkState.REFUSED_LOGIN, reason="login refused")
    found = check("1.1", state, profile)
    assert found.status is WAITING
    assert found.evidence.startswith("login refused; put your public key there: ")
    step = load_profile(profile).launch.key_step
    assert step is not None
    assert found.evidence.endswith(step)
    (shown,) = (
        row.text
        for section in platform_sections(load_profile(profile))
        for row in section.rows
        if row.label == "your public key"
    )
    assert shown == step
