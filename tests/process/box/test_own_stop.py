"""The call by the box's own key: what its answers prove, who it goes to, and that the key stays with it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rgt_box import secret_store
from rgt_box.autostop import own_stop
from rgt_box.autostop.own_stop import NoStopKey, OwnStop, own_key

from rgt_tui.demo import InjectedFault, LocalVast
from rgt_tui.model import BillingVerb
from rgt_tui.providers.answers import ANYWHERE, answers_of
from tests.contract.providers.conftest import exchanges_fit_the_table  # noqa: F401 (used by every test here)
from tests.contract.providers.fakes.renting_runpod import RentingRunPod
from tests.process.box.parking_box import INSTANCE, KEY, POD, serving

STOP = f"POST /v2/pods/{POD}/action"


@pytest.fixture
def runpod(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[OwnStop, RentingRunPod]]:
    monkeypatch.setenv("RUNPOD_API_KEY", KEY)
    monkeypatch.setenv("RUNPOD_POD_ID", POD)
    plane = RentingRunPod(settle_s=0)
    plane.add_pod(POD, "lab")
    plane.machine_keys[KEY] = POD
    with serving(plane):
        yield OwnStop({"kind": "runpod", "url": plane.base_url}, POD), plane


@pytest.fixture
def vast(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[OwnStop, LocalVast]]:
    monkeypatch.setenv("CONTAINER_API_KEY", KEY)
    monkeypatch.setenv("CONTAINER_ID", str(INSTANCE))
    plane = LocalVast(settle_s=0)
    plane.add_instance(INSTANCE, "lab")
    plane.machine_keys[KEY] = str(INSTANCE)
    with serving(plane):
        yield OwnStop({"kind": "vastai", "url": plane.base_url}, str(INSTANCE)), plane


@pytest.mark.parametrize("kind", ["runpod", "vastai"])
def test_an_answer_proves_here_what_it_proves_on_the_client(kind: str) -> None:
    there = {
        code: str(proof)
        for code, proof in {**ANYWHERE, **answers_of(kind)[BillingVerb.PARK]}.items()
    }
    assert there == own_stop.PROOFS[kind]


START_REFUSED = "a start of the running pod was refused (409: action 'start' is not available while pod is RUNNING)"


def test_the_proof_of_runpod_is_a_refused_start(runpod: tuple[OwnStop, RentingRunPod]) -> None:
    own, plane = runpod
    assert own_stop.prove_stop_right(own) == (
        True,
        f"its key may stop this instance: {START_REFUSED}",
    )
    assert plane.requests == [f"GET /v2/pods/{POD}", STOP]
    assert plane.bodies[-1] == b'{"action": "start"}'
    assert (plane.pods[POD].status, plane.pods[POD].changing) == ("RUNNING", None)


def test_the_proof_of_vast_sets_the_state_that_it_has(vast: tuple[OwnStop, LocalVast]) -> None:
    own, plane = vast
    proved, text = own_stop.prove_stop_right(own)
    assert (proved, text) == (
        True,
        "its key may stop this instance: setting the running instance to running was accepted",
    )
    assert plane.bodies[-1] == b'{"state": "running"}'
    assert plane.instances[INSTANCE].actual == "running"


def test_a_key_that_may_read_and_not_stop_is_no_proof(
    runpod: tuple[OwnStop, RentingRunPod], vast: tuple[OwnStop, LocalVast]
) -> None:
    for (own, plane), name in ((runpod, "RUNPOD_API_KEY"), (vast, "CONTAINER_API_KEY")):
        plane.machine_keys_read_only = True
        assert own.query_state().state == "on"
        proved, text = own_stop.prove_stop_right(own)
        assert not proved
        assert "its key may read this instance, but not stop it (403: Forbidden" in text
        assert text.endswith(f"put it here: rgt secret BOX {name}")


@pytest.mark.parametrize(
    "fault",
    [
        {"status": 200, "raw": b'{"id": "k3v9q0x1fake01", "status": "RUNNING"}'},
        {"status": 401},
        {"status": 404},
        {"status": 429},
        {"status": 500},
        {"drop": True},
        {"status": 302, "headers": {"Location": "https://elsewhere.example/"}},
    ],
)
def test_only_the_expected_refusal_is_a_proof(
    runpod: tuple[OwnStop, RentingRunPod], fault: Any
) -> None:
    own, plane = runpod
    plane.inject_faults(InjectedFault(on=STOP, **fault))
    proved, text = own_stop.prove_stop_right(own)
    assert not proved
    assert text
    assert KEY not in text


@pytest.mark.parametrize("status", ["PROVISIONING", "STARTING", "EXITED", "ERROR"])
def test_nothing_is_tried_while_a_start_could_change_something(
    runpod: tuple[OwnStop, RentingRunPod], status: str
) -> None:
    own, plane = runpod
    plane.pods[POD].status = status
    assert not own_stop.prove_stop_right(own)[0]
    assert plane.requests == [f"GET /v2/pods/{POD}"]


def test_an_instance_that_is_being_stopped_is_not_set_to_running(
    vast: tuple[OwnStop, LocalVast],
) -> None:
    own, plane = vast
    plane.instances[INSTANCE].intended = "stopped"
    proved, text = own_stop.prove_stop_right(own)
    assert (proved, "is being stopped" in text) == (False, True)
    assert [request.split()[0] for request in plane.requests] == ["GET"]


def test_cloudflares_refusal_of_a_program_is_named_and_is_not_the_keys(
    runpod: tuple[OwnStop, RentingRunPod], monkeypatch: pytest.MonkeyPatch
) -> None:
    own, _ = runpod
    assert own.query_state().state == "on", "rgt names itself"
    monkeypatch.setattr(own_stop, "USER_AGENT", "")
    proved, text = own_stop.prove_stop_right(own)
    assert not proved
    assert "Cloudflare, in front of the platform, refused this program (error code: 1010)" in text
    assert "rgt secret" not in text
    assert own.send_stop().proves == "nothing"


def test_a_key_that_a_person_put_here_is_taken_first(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("RGT_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setattr(own_stop, "_environment_of_init", dict)
    given = {"RUNPOD_API_KEY": "the pod's", "RUNPOD_POD_ID": POD}
    folder = Path(f"/dev/shm/rgt-test-{os.getpid()}")
    try:
        secret_store.store_secret(
            "RUNPOD_API_KEY", b"for cells alone\n", str(folder), secret_store.ALL_JOBS, []
        )
        assert own_key("runpod", given).secret == "the pod's"
        secret_store.store_secret("RUNPOD_API_KEY", b"my own\n", str(folder), None, [])
        assert own_key("runpod", given) == ("my own", POD)
        assert own_key("runpod", {"RUNPOD_POD_ID": POD}).secret == "my own"
        (folder / "RUNPOD_API_KEY").chmod(0o644)
        assert own_key("runpod", given).secret == "the pod's"
    finally:
        shutil.rmtree(folder)


def test_a_pod_is_read_and_stopped(runpod: tuple[OwnStop, RentingRunPod]) -> None:
    own, plane = runpod
    assert own.query_state().state == "on"
    assert own.send_stop().proves == "accepted"
    assert own.query_state().state == "off"
    assert own.send_stop() == (
        "ask",
        "answered 409: action 'stop' is not available while pod is EXITED",
    )
    assert set(plane.askers) == {POD}


def test_an_instance_of_vast_is_read_and_stopped(vast: tuple[OwnStop, LocalVast]) -> None:
    own, plane = vast
    assert own.query_state() == ("on", "it is running", "running")
    assert own.send_stop() == ("accepted", "answered 200")
    assert own.query_state() == ("off", "it is exited", "exited")
    assert plane.bodies[1] == b'{"state": "stopped"}'


@pytest.mark.parametrize(
    ("fault", "proves"),
    [
        ({"status": 401}, "nothing"),
        ({"status": 403}, "nothing"),
        ({"status": 422}, "nothing"),
        ({"status": 429}, "nothing"),
        ({"status": 404}, "ask"),
        ({"status": 409}, "ask"),
        ({"status": 500}, "maybe"),
        ({"status": 302, "headers": {"Location": "https://elsewhere.example/"}}, "maybe"),
        ({"drop": True}, "maybe"),
        ({"status": 200, "raw": b"<html>"}, "maybe"),
        ({"status": 200, "raw": b"[]"}, "maybe"),
        ({"status": 200, "raw": b'{"error": "odd"}'}, "maybe"),
        ({"cut": 3}, "maybe"),
    ],
)
def test_what_an_answer_of_runpod_proves(
    runpod: tuple[OwnStop, RentingRunPod], fault: Any, proves: str
) -> None:
    own, plane = runpod
    plane.inject_faults(InjectedFault(on=STOP, **fault))
    answer = own.send_stop()
    assert answer.proves == proves
    assert KEY not in answer.text
    assert plane.requests == [STOP]  # once, and nobody is followed elsewhere


@pytest.mark.parametrize(
    ("raw", "proves"),
    [
        (b'{"success": true}', "accepted"),
        (b'{"success": false, "error": "no_such_instance", "msg": "gone"}', "ask"),
        (b'{"success": false, "error": "odd", "msg": "?"}', "maybe"),
        (b"{}", "maybe"),
    ],
)
def test_an_error_at_200_is_none_of_success(
    vast: tuple[OwnStop, LocalVast], raw: bytes, proves: str
) -> None:
    own, plane = vast
    plane.inject_faults(InjectedFault(on="PUT ", status=200, raw=raw))
    assert own.send_stop().proves == proves


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b'{"id": "another", "status": "EXITED"}', 200),
        (b'{"id": "k3v9q0x1fake01", "status": "OF TOMORROW"}', 200),
        (b'{"id": "k3v9q0x1fake01"}', 200),
        (b'{"id": "k3v9q0x1fake01", "status": "EXITED", "success": false}', 200),
        (b"", 200),
        (b'{"id": "k3v9q0x1fake01", "status": "EXITED"}', 503),
    ],
)
def test_a_reading_that_does_not_say_it_plainly_is_unknown(
    runpod: tuple[OwnStop, RentingRunPod], raw: bytes, status: int
) -> None:
    own, plane = runpod
    plane.inject_faults(InjectedFault(on="GET ", status=status, raw=raw))
    assert own.query_state().state == "unknown"


def test_a_locked_pod_cannot_be_armed(runpod: tuple[OwnStop, RentingRunPod]) -> None:
    own, plane = runpod
    plane.pods[POD].locked = True
    assert own_stop.prove_stop_right(own) == (
        False,
        "the box's key cannot be used: the instance is locked: the platform refuses a stop; unlock it",
    )


def test_the_key_stands_in_no_message(runpod: tuple[OwnStop, RentingRunPod]) -> None:
    own, plane = runpod
    plane.inject_faults(
        InjectedFault(
            on="GET ", status=401, raw=b'{"detail": "bad key %s\\u001b[31m"}' % KEY.encode()
        )
    )
    assert own.query_state().text == "answered 401: bad key *** [31m"


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://api.runpod.io", "must begin with https"),
        ("ftp://127.0.0.1", "not the address of a platform"),
        ("https://user@127.0.0.1", "not the address of a platform"),
        ("https://", "not the address of a platform"),
    ],
)
def test_a_key_goes_to_no_odd_address(
    runpod: tuple[OwnStop, RentingRunPod], url: str, words: str
) -> None:
    with pytest.raises(NoStopKey, match=words):
        OwnStop({"kind": "runpod", "url": url}, POD)


def test_https_is_spoken_where_it_is_asked_for(runpod: tuple[OwnStop, RentingRunPod]) -> None:
    _, plane = runpod
    own = OwnStop({"kind": "runpod", "url": plane.base_url.replace("http:", "https:")}, POD)
    assert own.query_state().state == "unknown"  # this server does not
    assert plane.requests == []


def test_without_an_address_it_is_the_vendors(runpod: tuple[OwnStop, RentingRunPod]) -> None:
    assert OwnStop({"kind": "runpod"}, POD)._url == "https://api.runpod.io"


def test_whose_key_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"RUNPOD_API_KEY": " k ", "RUNPOD_POD_ID": "p1"}
    assert own_key("runpod", given) == ("k", "p1")
    for less in ({}, {"RUNPOD_API_KEY": "k"}, {"RUNPOD_POD_ID": "p1"}):
        with pytest.raises(
            NoStopKey, match="RUNPOD_API_KEY and RUNPOD_POD_ID are not in its environment"
        ):
            own_key("runpod", less)
    with pytest.raises(NoStopKey, match="is not an ID"):
        own_key("runpod", {"RUNPOD_API_KEY": "k", "RUNPOD_POD_ID": "../v2/pods/x"})
    monkeypatch.setattr(
        own_stop,
        "_environment_of_init",
        lambda: {"RUNPOD_API_KEY": "platform", "RUNPOD_POD_ID": "p2"},
    )
    assert own_key("runpod", given) == ("platform", "p2")


def program(folder: Path, text: str, mode: int = 0o755) -> str:
    path = folder / "shutdown"
    path.write_text(text)
    path.chmod(mode)
    return str(path)


def test_a_command_must_be_the_platforms_own(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("a platform's command is root's")
    here = Path("/usr/local/lib") / f"rgt-test-{os.getpid()}"
    here.mkdir()
    try:
        fine = program(here, f"#!/bin/sh\\necho done > {tmp_path}/off\\n".replace("\\n", "\n"))
        mark = [str(tmp_path)]
        own = OwnStop({"kind": "command", "command": [fine], "marks": mark}, "x")
        assert (own_stop.prove_stop_right(own)[0], own.query_state().state) == (True, "on")
        assert own.send_stop().proves == "accepted"
        assert (tmp_path / "off").exists()
        for stop, words in (
            ({"command": [fine], "marks": ["/not/there"]}, "not the platform"),
            ({"command": ["shutdown"], "marks": mark}, "full path"),
            ({"command": [], "marks": mark}, "full path"),
            ({"command": [str(here / "none")], "marks": mark}, "No such file"),
        ):
            with pytest.raises(NoStopKey, match=words):
                OwnStop({"kind": "command", **stop}, "x")
        for mode, words in (
            (0o775, "users other than root"),
            (0o757, "users other than root"),
            (0o644, "cannot be run"),
        ):
            program(here, "#!/bin/sh\nexit 3\n", mode)
            with pytest.raises(NoStopKey, match=words):
                OwnStop({"kind": "command", "command": [fine], "marks": mark}, "x")
        program(here, "#!/bin/sh\nexit 3\n")
        assert (
            OwnStop({"kind": "command", "command": [fine], "marks": mark}, "x").send_stop().proves
            == "maybe"
        )
        here.chmod(0o777)
        with pytest.raises(NoStopKey, match="everyone can write to"):
            OwnStop({"kind": "command", "command": [fine], "marks": mark}, "x")
    finally:
        for path in here.iterdir():
            path.unlink()
        here.rmdir()
