"""What the evidence says of a box: quiet, queue, storage, provider, name."""

from __future__ import annotations

import msgspec
import pytest
from rgt_box.sampling.gpu import FOREIGN, SILENT

from rgt_tui.model.box import BoxState, Link
from rgt_tui.model.evidence import Verb
from rgt_tui.model.money import Meter
from rgt_tui.model.protocol import (
    Checkpoint,
    Checkpoints,
    Gpu,
    Hello,
    Proc,
    QueueState,
    Sample,
)
from rgt_tui.model.run import RunState
from tests.unit.gate.builders import METER, NOW, PROFILE, box, cell, evidence, held, text

replace = msgspec.structs.replace


def training(**proc: object) -> BoxState:
    one = replace(Proc(pid=231, started=NOW - 60, cmd="python -m rgt_train", state="R"), **proc)
    return box(
        cell("gpt-b", state="running"),
        sample=Sample(boot="b", seq=2, at=NOW, procs=(one,)),
        runs=(RunState("gpt-b", step=655, progressed_at=NOW - 1),),
    )


def test_training_is_named_with_pid_step_and_age() -> None:
    found = evidence(training())
    assert text(found, "quiet") == "gpt-b is training: pid 231, step 655, advanced 1 s ago"
    assert not held(found, "quiet")
    assert not held(found, "queue")
    assert not held(evidence(training(), Verb.PARK), "queue")


def test_a_process_without_a_known_run_is_named_by_its_command() -> None:
    state = replace(training(), queues=(), runs=())
    assert text(evidence(state), "quiet") == "a training process is alive: pid 231, python -m rgt_train"


def test_a_zombie_is_not_training() -> None:
    state = replace(training(state="Z"), queues=box().queues, runs=())
    assert held(evidence(state), "quiet")


def test_a_step_that_just_advanced_is_training_even_without_a_process() -> None:
    state = box(runs=(RunState("other", step=9, progressed_at=NOW - 3),))
    assert text(evidence(state), "quiet") == "other advanced to step 9 3 s ago"
    done = box(runs=(RunState("gpt-a", step=9, progressed_at=NOW - 3),))
    assert held(evidence(done), "quiet")


def test_a_busy_gpu_without_a_process_refuses_unless_replayed() -> None:
    sample = box().sample
    assert sample is not None
    busy = replace(sample, gpus=(Gpu(index=0, name="RTX", util=93.0),))
    assert "GPU 0 93 %" in text(evidence(box(sample=busy)), "quiet")
    assert held(
        evidence(box(sample=replace(sample, gpus=(Gpu(index=0, name="RTX", util=93.0, sim=True),)))), "quiet"
    )


def test_a_live_runner_refuses() -> None:
    queue = QueueState(
        path="/j", at=NOW, cells=(cell(), cell("b", state="waiting")), runner_pid=7, runner_alive=True
    )
    assert (
        text(evidence(box(queues=(queue,))), "quiet") == "the queue runner is alive (pid 7), 1 cells waiting"
    )


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"sample": None, "reason": "ssh: timed out"}, "no reading of the box (ssh: timed out)"),
        ({"link": Link.UNREACHABLE, "reason": "ssh"}, "unreachable (ssh)"),
        ({"sample_at": NOW - 10.5}, "10 s old"),
        ({"sample_at": NOW + 30}, "-30 s old"),
        ({"sample": Sample(boot="b", seq=2, at=NOW, unseen="no processes")}, "no processes"),
    ],
)
def test_a_box_that_cannot_be_seen_refuses(fields: dict[str, object], why: str) -> None:
    found = evidence(box(**fields))
    assert not held(found, "quiet")
    assert why in text(found, "quiet")


@pytest.mark.parametrize("limited", [FOREIGN, SILENT])
def test_what_else_an_agent_cannot_tell_keeps_no_meter_running(limited: str) -> None:
    """Of a container's GPUs the driver seldom tells who uses them: the box's own processes are all seen."""
    told = Hello(proto=1, agent="a", boot="b", host="h", python="-", pid=1, at=NOW, limited=(limited,))
    assert held(evidence(box(hello=told)), "quiet")


def test_waiting_cells_let_a_park_pass_and_hold_a_destroy() -> None:
    state = box(cell(), cell("gpt-b", state="waiting", durable=None))
    assert held(evidence(state, Verb.PARK), "queue")
    assert text(evidence(state, Verb.PARK), "queue") == "1 of 2 cells go on after a start: gpt-b (waiting)"
    assert text(evidence(state), "queue") == "1 of 2 cells not done: gpt-b (waiting)"
    assert not held(evidence(state), "queue")


def test_an_unreadable_or_unknown_queue_holds_a_destroy() -> None:
    assert not held(evidence(box(queues=())), "queue")
    assert held(evidence(box(queues=()), Verb.PARK), "queue")
    broken = QueueState(path="/j", at=NOW, error="state.json: not JSON")
    assert not held(evidence(box(queues=(broken,))), "queue")
    assert held(evidence(box(queues=(QueueState(path="/j", at=NOW),))), "queue")


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"durable": "pending"}, "no verified durable copy (pending)"),
        ({"durable": None}, "the job names no durable directory"),
        ({"durable_path": None}, "no verified durable copy"),
        ({"durable_path": "/workspace/safe"}, "/workspace/safe (volume-disk) is erased with the box"),
        ({"durable_path": "/net/../workspace/x"}, "no known storage tier"),
        ({"durable_path": "net/x"}, "no known storage tier"),
        ({"durable_path": "/network/x"}, "(container-disk) is erased"),
        ({"durable_path": "/odd/x"}, "nothing says"),
    ],
)
def test_a_destroy_wants_a_verified_copy_where_it_survives(fields: dict[str, object], why: str) -> None:
    found = evidence(box(replace(cell(), **fields)))
    assert not held(found, "durable")
    assert why in text(found, "durable")


def test_the_provider_decides_which_of_two_tiers_is_mounted() -> None:
    both = tuple(
        replace(t, mounts=("/workspace",)) if t.name == "network-volume" else t for t in PROFILE.tiers
    )
    profile = replace(PROFILE, tiers=both)
    state = box(cell(durable_path="/workspace/x"))
    assert not held(evidence(state, profile=profile), "durable")
    assert held(evidence(state, profile=profile, known_tiers={"/workspace": "network-volume"}), "durable")
    assert not held(evidence(state, profile=profile, known_tiers={"/workspace": "volume-disk"}), "durable")
    assert not held(evidence(state, profile=profile, known_tiers={"/workspace": "unheard-of"}), "durable")


def test_an_unknown_profile_refuses_both() -> None:
    for verb in Verb:
        found = evidence(verb=verb, profile=None)
        assert text(found, "durable").startswith("the platform's profile is unknown")
        assert not held(found, "durable")


def test_checkpoints_that_no_done_cell_accounts_for_hold_a_destroy() -> None:
    lone = Checkpoints(
        run="own-run", at=NOW, items=(Checkpoint(path="/workspace/own/step-1", step=1, bytes=10, at=NOW),)
    )
    found = evidence(box(checkpoints=(lone,)))
    assert text(found, "durable") == "what own-run has at /workspace/own/step-1 is erased by it"


def test_a_park_keeps_what_lies_on_a_tier_that_survives_a_stop() -> None:
    undone = cell("gpt-b", state="interrupted", durable=None, durable_path=None)
    assert held(evidence(box(undone), Verb.PARK), "durable")
    on_root = replace(undone, out="/root/gpt-b")
    found = evidence(box(on_root), Verb.PARK)
    assert text(found, "durable") == "what gpt-b has at /root/gpt-b is erased by it"
    unsaid = evidence(box(replace(undone, out="/odd/gpt-b")), Verb.PARK)
    assert "may be erased" in text(unsaid, "durable")
    assert not held(unsaid, "durable")


@pytest.mark.parametrize(
    ("meter", "why"),
    [
        (replace(METER, error="timed out"), "could not be read: timed out"),
        (replace(METER, at=NOW - 16), "read 16 s ago"),
        (replace(METER, at=None), "at an unknown time"),
        (
            replace(METER, native_status="EXITED", actions=("start",)),
            "does not accept terminate now (accepts: start)",
        ),
        (Meter(at=NOW), "accepts: nothing"),
    ],
)
def test_the_provider_must_have_said_just_now_that_it_would(meter: Meter, why: str) -> None:
    found = evidence(meter=meter)
    assert not held(found, "provider")
    assert why in text(found, "provider")


def test_a_platform_without_the_verb_refuses_it() -> None:
    only_destroy = replace(PROFILE, billing=PROFILE.billing[1:])
    assert "has no action that would park" in text(evidence(verb=Verb.PARK, profile=only_destroy), "provider")
    off = replace(PROFILE.billing[0], stops_gpu_meter=False)
    still_bills = replace(PROFILE, billing=(off,))
    assert "does not surely stop" in text(evidence(verb=Verb.PARK, profile=still_bills), "provider")


@pytest.mark.parametrize(
    ("typed", "why"),
    [
        ("", "not typed yet"),
        ("autodl-demo ", "a blank before or after"),
        ("\tautodl-demo", "a blank before or after"),
        ("AutoDL-demo", "upper and lower case"),
        ("autodl-dem\N{CYRILLIC SMALL LETTER O}", "only look like"),
        ("autodl\N{NON-BREAKING HYPHEN}demo", "only look like"),
        ("autodl-demo\N{ZERO WIDTH SPACE}", "only look like"),
        ("autodl-dem", "not the box's name"),
    ],
)
def test_the_name_is_compared_character_by_character(typed: str, why: str) -> None:
    found = evidence(typed=typed)
    assert not held(found, "name")
    assert why in text(found, "name")


def test_a_name_in_another_normal_form_is_another_name() -> None:
    spec = replace(box().spec, name="caf\N{LATIN SMALL LETTER E WITH ACUTE}")
    assert not held(evidence(box(spec=spec), typed="cafe\N{COMBINING ACUTE ACCENT}"), "name")
    assert held(evidence(box(spec=spec), typed=spec.name), "name")
