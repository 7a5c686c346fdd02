"""A preemption is seen on the box: the vendors' documented exchanges, on a local server."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from rgt_box.recorder import preemption

from rgt_tui.model import BoxEvent, Sample
from tests.process.box.harness import Agent, make_job, until

NEVER = 4102444800.0


class MetadataServer:
    """A metadata service that answers as the vendors document it."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str]] = []
        self.token_ttl: list[str] = []
        self.action: dict[str, str] | None = None
        self.preempted = "FALSE"
        self.maintenance = "NONE"
        self.events: list[dict[str, Any]] = []
        self.valid_token = "token-1"
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_PUT(self) -> None:
                outer.requests.append(("PUT", self.path))
                outer.token_ttl.append(self.headers["X-aws-ec2-metadata-token-ttl-seconds"])
                self.reply(200, outer.valid_token)

            def do_GET(self) -> None:
                outer.requests.append(("GET", self.path))
                path = self.path.partition("?")[0]
                if path == "/latest/meta-data/spot/instance-action":
                    if self.headers["X-aws-ec2-metadata-token"] != outer.valid_token:
                        self.reply(401, "")
                    elif outer.action is None:
                        self.reply(404, "<?xml version='1.0'?>")
                    else:
                        self.reply(200, json.dumps(outer.action))
                elif path.startswith("/computeMetadata/v1/instance/"):
                    if self.headers["Metadata-Flavor"] != "Google":
                        self.reply(403, "")
                    elif path.endswith("/maintenance-event"):
                        self.reply(200, outer.maintenance)
                    else:
                        self.wait_for_change()
                        self.reply(200, outer.preempted)
                elif self.headers["Metadata"] != "true":
                    self.reply(400, "")
                elif path == "/metadata/instance/compute/name":
                    self.reply(200, "Trainer_1")
                elif path == "/metadata/scheduledevents":
                    self.reply(200, json.dumps({"DocumentIncarnation": 1, "Events": outer.events}))
                else:
                    self.reply(404, "")

            def wait_for_change(self) -> None:
                if "wait_for_change=true" in self.path:
                    deadline = time.monotonic() + 0.1  # the vendor's takes timeout_sec
                    while f"last_etag=e{outer.preempted}" in self.path:
                        if time.monotonic() > deadline:
                            return
                        time.sleep(0.01)

            def reply(self, status: int, text: str) -> None:
                self.send_response(status)
                self.send_header("ETag", f"e{outer.preempted}")
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, *values: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self.server.server_port}"
        Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()


@pytest.fixture
def metadata() -> Iterator[MetadataServer]:
    served = MetadataServer()
    yield served
    served.server.shutdown()
    served.server.server_close()


def ec2_time(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + seconds))


def test_ec2_is_read_with_a_token_that_is_renewed(metadata: MetadataServer) -> None:
    service = preemption.MetadataService(preemption.EC2, metadata.address)
    assert service.read_notice() is None
    assert service.read_notice() is None
    assert [method for method, _ in metadata.requests] == ["PUT", "GET", "GET"]
    assert metadata.token_ttl == ["21600"]
    metadata.valid_token = "token-2"
    metadata.action = {"action": "stop", "time": "2026-09-18T08:22:00Z"}
    notice = service.read_notice()
    assert notice is not None
    assert (notice["source"], notice["action"], notice["ends"]) == ("EC2", "stop", 1789719720)


def test_google_is_waited_for_and_its_maintenance_has_an_hour(metadata: MetadataServer) -> None:
    service = preemption.MetadataService(preemption.GCE, metadata.address)
    assert service.read_notice() is None
    metadata.maintenance = "TERMINATE_ON_HOST_MAINTENANCE"
    notice = service.read_notice()
    assert notice is not None and notice["action"] == "host maintenance"
    assert 3500 < notice["ends"] - time.time() <= 3600
    metadata.maintenance = "MIGRATE_ON_HOST_MAINTENANCE"
    assert service.read_notice() is None, "a live migration ends nothing"
    metadata.preempted = "TRUE"
    notice = service.read_notice()
    assert notice is not None and notice["action"] == "preempted"
    assert "wait_for_change=true" in metadata.requests[-1][1]


def azure_event(kind: str, resource: str, not_before: str) -> dict[str, Any]:
    return {
        "EventId": "602d9444-d2cd-49c7-8624-8643e7171297",
        "EventType": kind,
        "ResourceType": "VirtualMachine",
        "Resources": [resource],
        "EventStatus": "Scheduled",
        "NotBefore": not_before,
    }


def test_azure_events_of_other_machines_and_pauses_are_none(metadata: MetadataServer) -> None:
    service = preemption.MetadataService(preemption.AZURE, metadata.address)
    assert service.read_notice() is None
    metadata.events = [
        azure_event("Preempt", "trainer_2", formatdate(NEVER, usegmt=True)),
        azure_event("Freeze", "trainer_1", formatdate(NEVER, usegmt=True)),
    ]
    assert service.read_notice() is None
    metadata.events.append(azure_event("Preempt", "trainer_1", formatdate(NEVER, usegmt=True)))
    notice = service.read_notice()
    assert notice is not None
    assert (notice["source"], notice["action"], notice["ends"]) == ("Azure", "preempt", NEVER)


@pytest.mark.parametrize("name", [preemption.EC2, preemption.GCE, preemption.AZURE])
def test_a_service_that_answers_otherwise_is_an_error_not_a_notice(
    metadata: MetadataServer, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        preemption.MetadataService, "_send_request", lambda *args, **named: (500, "<html>", {})
    )
    with pytest.raises(OSError, match="status 500"):
        preemption.MetadataService(name, metadata.address).read_notice()


def test_only_a_machine_of_the_platform_polls_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """169.254.169.254 may be anything on other machines."""
    monkeypatch.delenv("RGT_METADATA", raising=False)
    allowed = [preemption.EC2, preemption.GCE, preemption.AZURE, "of a later rgt"]
    (tmp_path / "sys_vendor").write_text("QEMU\n")
    assert preemption.applicable_sources(allowed, str(tmp_path)) == {}
    (tmp_path / "sys_vendor").write_text("Amazon EC2\n")
    found = preemption.applicable_sources(allowed, str(tmp_path))
    assert found == {preemption.EC2: "169.254.169.254"}
    assert preemption.applicable_sources([], str(tmp_path)) == {}
    (tmp_path / "sys_vendor").write_text("Microsoft Corporation\n")
    (tmp_path / "chassis_asset_tag").write_text("7783-7084-3265-9085-8269-3286-77\n")
    assert list(preemption.applicable_sources(allowed, str(tmp_path))) == [preemption.AZURE]
    (tmp_path / "product_name").write_text("Google Compute Engine\n")
    assert preemption.GCE in preemption.applicable_sources(allowed, str(tmp_path))


SAVES = "trap 'echo saved; exit 75' TERM; echo up; while :; do sleep 0.05; done"


def is_notice(frame: Any) -> bool:
    return isinstance(frame, Sample) and frame.notice is not None


def start_cell(agent: Agent, job: Path, script: str, **settings: Any) -> Callable[[], str]:
    make_job(job, ["/bin/sh", "-c", script], ["a"], **settings)
    agent.start("queue", "run", "--job", str(job))
    log = job / "logs" / "a.log"
    until(lambda: log.exists() and "up" in log.read_text(), "the cell's start")
    return log.read_text


def test_a_notice_reaches_the_client_and_the_run_saves_once(
    agent: Agent, metadata: MetadataServer, tmp_path: Path
) -> None:
    agent.env["RGT_METADATA"] = f"ec2={metadata.address}"
    agent.env["HOME"] = str(tmp_path)
    saved = start_cell(agent, tmp_path / "job", SAVES, on_sigterm="saves")
    unsaved = start_cell(agent, tmp_path / "other", "echo up; exec sleep 1000")
    channel = agent.watch(jobs=[str(tmp_path / "job"), str(tmp_path / "other")], notices=["ec2"])
    until(lambda: metadata.requests, "the first request")
    metadata.action = {"action": "terminate", "time": ec2_time(118)}
    event = channel.expect(lambda frame: isinstance(frame, BoxEvent) and frame.kind == "preemption")
    assert event.level == "error"
    assert event.text.startswith("EC2 takes this machine away (terminate) at ")
    assert "asked to save: a; not asked, because" in event.text
    notice = channel.expect(is_notice, "a sample with the notice").notice
    assert (notice.source, notice.asked, notice.unasked) == ("EC2", ("a",), ("a",))
    assert 60 < notice.ends - time.time() <= 118
    until(lambda: "saved" in saved(), "the save")
    assert unsaved() == "up\n"
    # Another recorder asks nobody again.
    agent.stop_recorder()
    second = start_cell(agent, tmp_path / "third", SAVES, on_sigterm="saves")
    seen = len(metadata.requests)
    channel = agent.watch(jobs=[str(tmp_path / "third")], notices=["ec2"])
    channel.expect(is_notice)
    until(lambda: len(metadata.requests) > seen + 4, "several polls")
    assert second() == "up\n"
    # A notice that is withdrawn is gone.
    metadata.action = None
    gone = channel.expect(
        lambda frame: isinstance(frame, BoxEvent) and frame.kind == "preemption-withdrawn"
    )
    assert gone.text == "EC2 no longer takes this machine away (terminate)"
    channel.expect(lambda frame: isinstance(frame, Sample) and frame.notice is None)


def test_a_cell_that_runs_the_trainer_or_its_callbacks_is_asked(
    agent: Agent, metadata: MetadataServer, tmp_path: Path
) -> None:
    """Only the job of ``rgt push --trainer`` names the trainer as its command; `rgt run` does not."""
    agent.env.update(RGT_METADATA=f"ec2={metadata.address}", HOME=str(tmp_path))
    program = tmp_path / "rgt-train-0123456789abcdef.pyz"
    program.write_text(SAVES)
    callbacks = f'mkdir "$RGT_OUT"; echo "{{\\"last\\": {{\\"time\\": $(date +%s)}}}}" > "$RGT_OUT/run.json"; {SAVES}'
    jobs = {
        "trainer": f"exec /bin/sh {program}",
        "callbacks": callbacks,
        "handler": SAVES,
    }
    logs = {name: start_cell(agent, tmp_path / name, script) for name, script in jobs.items()}
    channel = agent.watch(jobs=[str(tmp_path / name) for name in jobs], notices=["ec2"])
    metadata.action = {"action": "terminate", "time": ec2_time(118)}
    channel.expect(is_notice, "a sample with the notice")
    until(lambda: "saved" in logs["trainer"](), "the trainer's save")
    until(lambda: "saved" in logs["callbacks"](), "the save of the callbacks")
    # A handler alone may do anything.
    assert "saved" not in logs["handler"]()


def test_with_an_hour_left_runs_work_on(
    agent: Agent, metadata: MetadataServer, tmp_path: Path
) -> None:
    agent.env["RGT_METADATA"] = f"azure={metadata.address}"
    agent.env["HOME"] = str(tmp_path)
    output = start_cell(agent, tmp_path / "job", SAVES, on_sigterm="saves")
    metadata.events = [
        azure_event("Reboot", "trainer_1", formatdate(time.time() + 3600, usegmt=True))
    ]
    channel = agent.watch(jobs=[str(tmp_path / "job")], notices=["azure"])
    notice = channel.expect(is_notice).notice
    assert (notice.action, notice.asked) == ("reboot", None)
    metadata.events[0]["NotBefore"] = ""  # it has started
    asked = channel.expect(lambda frame: is_notice(frame) and frame.notice.asked)
    assert asked.notice.asked == ("a",)
    until(lambda: "saved" in output(), "the save")


def test_a_platform_that_the_profile_does_not_name_is_not_asked(
    agent: Agent, metadata: MetadataServer
) -> None:
    agent.env["RGT_METADATA"] = f"ec2={metadata.address}"
    channel = agent.watch(notices=["gce"])
    channel.expect(lambda frame: isinstance(frame, Sample) and frame.seq > 2)
    assert metadata.requests == []


def test_a_hook_announces_a_signal_and_the_machines_own_signal_kills_no_save(
    agent: Agent, tmp_path: Path
) -> None:
    """The platform's shutdown sends SIGTERM to all: a second one would have killed the cell."""
    agent.env["HOME"] = str(tmp_path)
    slow = (
        "trap 'touch $HOME/saving; while [ ! -e $HOME/go ]; do sleep 0.05; done; echo saved; "
        "exit 75' TERM; echo up; while :; do sleep 0.05; done"
    )
    job = make_job(tmp_path / "jobs" / "job", ["/bin/sh", "-c", slow], ["a"], on_sigterm="saves")
    runner = agent.start("queue", "run", "--job", str(job))
    log = job / "logs" / "a.log"
    until(lambda: log.exists() and "up" in log.read_text(), "the cell's start")
    done = agent.run("record", "--taken-away", "RunPod", "--in", "5")
    assert done.returncode == 0, done.stderr
    assert b"RunPod takes this machine away (signal)" in done.stdout
    assert b"asked to save: a" in done.stdout
    until((tmp_path / "saving").exists, "the save begins")
    runner.terminate()
    again = agent.run("record", "--taken-away", "RunPod", "--in", "5")
    assert again.returncode == 0, again.stderr
    (tmp_path / "go").touch()
    runner.wait(60)
    assert log.read_text() == "up\nsaved\n"
    channel = agent.watch()
    event = channel.expect(lambda frame: isinstance(frame, BoxEvent) and frame.kind == "preemption")
    assert "asked to save: a" in event.text
