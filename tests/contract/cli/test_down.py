"""``rgt down`` as a person and a script use it: a real box, a control plane on the loopback, the real command."""

from __future__ import annotations

import asyncio
import json
import shlex
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from rgt_tui.cli import FAILED, OK, UNCONFIRMED, UNREACHABLE, USAGE
from rgt_tui.cli.teardown.down import status_of
from rgt_tui.demo import LocalRunPod
from rgt_tui.model import BoxSpec, ProviderRef, StopPhase, StopProgress
from tests.contract.cli.conftest import Rgt
from tests.contract.ssh.conftest import RealSshd, fresh_sshd
from tests.pseudo_terminal import PseudoTerminal

KEY = "RGT_TEST_KEY"
POD = "pod1"


@dataclass
class Down:
    """A fleet of one quiet box with a pod behind it."""

    rgt: Rgt
    server: LocalRunPod
    spec: BoxSpec

    async def __call__(self, *words: str) -> subprocess.CompletedProcess[str]:
        return await asyncio.to_thread(self.rgt.on, "down", *words)

    async def json(self, *words: str) -> tuple[int, dict[str, Any]]:
        done = await self("lab", *words, "--json")
        assert done.stdout, done.stderr
        return done.returncode, json.loads(done.stdout.splitlines()[-1])

    def sent(self) -> list[str]:
        return [what for what in self.server.requests if not what.startswith("GET ")]

    def describe(self, **changes: object) -> None:
        self.rgt.describe([msgspec.structs.replace(self.spec, **changes)])


@pytest.fixture
async def down(rgt: Rgt, real_sshd: RealSshd) -> AsyncIterator[Down]:
    server = LocalRunPod(settle_s=0.0)
    await server.start()
    # Made after every file of this machine, which others change meanwhile: all of them came with its image.
    created = time.time() + 86_400.0
    server.add_pod(POD, "lab", cost=0.5, mount="/workspace", persistent=10.0, created=created)
    rgt.env[KEY] = server.key
    spec = msgspec.structs.replace(
        real_sshd.spec,
        name="lab",
        profile="runpod",
        pattern="^no such training$",
        provider=ProviderRef("runpod", POD, base_url=server.base_url, key_env=KEY),
    )
    made = Down(rgt, server, spec)
    made.describe()
    yield made
    await server.stop()


def every_forfeit(body: dict[str, Any]) -> list[str]:
    """Give up whatever stands and may be given up; what this box holds is the test's own."""
    stand = [item for item in body["items"] if not item["ok"] and item["forfeitable"]]
    return [word for item in stand for word in ("--forfeit", item["key"])]


async def test_a_script_confirms_exactly_what_the_dry_run_showed(down: Down) -> None:
    code, body = await down.json("--park", "--dry-run")
    given = every_forfeit(body)
    if given:
        code, body = await down.json("--park", "--dry-run", *given)
    assert (code, body["ok"], body["reasons"], down.sent()) == (OK, True, [], [])
    assert body["request"].startswith("POST ") and len(body["digest"].partition("-")[0]) == 64
    confirm = ("--park", *given, "--confirm", body["phrase"], "--evidence")
    code, refused = await down.json(*confirm, "0" * 64)
    assert (code, refused["ok"], down.sent()) == (FAILED, False, [])
    assert refused["reasons"]
    code, done = await down.json(*confirm, body["digest"])
    assert (code, done["ok"], done["steps"][-1]["phase"]) == (OK, True, "meter-off"), done
    assert "keeps billing" in done["steps"][-1]["text"]
    assert down.sent() == [f"POST /v2/pods/{POD}/action"]


async def test_what_stands_against_it_is_printed_and_nothing_is_sent(down: Down) -> None:
    done = await down("lab", "--destroy", "--confirm", "lab", "--evidence", "0" * 64)
    assert done.returncode == FAILED
    assert "no proof that this machine is pod1" in done.stdout + done.stderr
    assert done.stderr.endswith("rgt: nothing was sent\n")
    assert down.sent() == []


async def test_readonly_refuses_what_would_pass(down: Down) -> None:
    _, body = await down.json("--park", "--dry-run")
    given = every_forfeit(body)
    code, body = await down.json("--park", "--dry-run", "--readonly", *given)
    assert code == FAILED
    assert body["reasons"] == ["rgt was started with --readonly: it sends no billing action"]
    done = await asyncio.to_thread(
        down.rgt, "--readonly", "--fleet", str(down.rgt.fleet), "down", "lab", "--park", *given,
        "--confirm", body["phrase"], "--evidence", body["digest"],
    )  # fmt: skip
    assert done.returncode == FAILED
    assert down.sent() == []


async def test_the_dry_run_names_the_price_the_platform_s_note_and_its_own_ways(down: Down) -> None:
    _, body = await down.json("--park", "--dry-run")
    assert (body["currency"], body["at_least"]) == ("USD", False)
    assert body["per_hour"] == pytest.approx(0.5 + (10 + 40) * 0.10 / 730)
    assert "costs twice as much" in body["note"]
    assert "console: Stop" in body["how"]


@pytest.fixture
def down_alone(down: Down, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Down]:
    """On a box of its own: a person clicks while the seal is in force, so it stays after the test."""
    with fresh_sshd(tmp_path_factory.mktemp("alone")) as own:
        described = {"name": "lab", "pattern": "^no such training$", "provider": down.spec.provider}
        yield Down(down.rgt, down.server, msgspec.structs.replace(own.spec, **described))


@pytest.mark.parametrize(
    ("provider", "profile"), [(None, "autodl"), (ProviderRef("gpushare", "instance-7"), "gpushare")]
)
async def test_a_box_whose_provider_has_no_api_is_judged_as_any_other_and_clicked_by_the_person(
    down_alone: Down, provider: ProviderRef | None, profile: str
) -> None:
    down = down_alone
    down.describe(provider=provider, profile=profile)
    _, body = await down.json("--park", "--dry-run")
    kinds = {item["key"].partition(":")[0] for item in body["items"]}
    assert {"identity", "quiet", "queue", "results", "provider", "seal", "name"} <= kinds
    assert body["request"].startswith("nothing; you do it: console: 关机 (stop)")
    given = every_forfeit(body)
    code, body = await down.json("--park", "--dry-run", *given)
    assert code == OK, body["reasons"]
    code, body = await down.json(
        "--park", *given, "--confirm", body["phrase"], "--evidence", body["digest"]
    )
    assert (code, [step["phase"] for step in body["steps"]]) == (UNCONFIRMED, ["yours"]), body[
        "reasons"
    ]
    code, body = await down.json("--done")
    assert (code, down.sent()) == (FAILED, [])
    assert "still answers over SSH" in body["reasons"][0]
    code, body = await down.json("--done", "--readonly")
    assert (code, body["reasons"]) == (
        FAILED,
        ["rgt was started with --readonly: it does not record your confirmation"],
    )


async def test_on_a_platform_without_an_api_the_gate_judges_and_a_person_clicks(down: Down) -> None:
    down.describe(
        provider=ProviderRef("gpushare", "instance-7"),
        profile="gpushare",
        per_hour=1.98,
        currency="CNY",
    )
    code, body = await down.json("--destroy", "--dry-run", "--forfeit", "identity")
    assert body["request"].startswith(
        "nothing; you do it: console: 释放 (release) (instance-7, https://gpushare.com)"
    )
    assert (body["per_hour"], body["currency"]) == (1.98, "CNY")
    states = {item["key"]: item["ok"] for item in body["items"]}
    assert states["provider"] is True, body["items"]
    assert (code, body["reasons"]) == (OK, [])


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("lab",), "cannot prompt here"),
        (("lab", "--dry-run"), "--park stops it and keeps its disks"),
        (("lab", "--park", "--confirm", "lab"), "are used together"),
        (
            ("lab", "--park", "--dry-run", "--confirm", "lab", "--evidence", "x"),
            "nothing to confirm",
        ),
        (("nobody", "--park", "--dry-run"), "no box 'nobody'"),
        (("lab", "--park", "--destroy"), "not allowed with"),
        (("lab", "--done", "--ignore", "results:/data"), "takes no other option"),
        (("lab", "--done", "--unprotect", "lab"), "takes no other option"),
        (
            ("lab", "--park", "--dry-run", "--forfeit", "everything"),
            "the evidence has no item everything",
        ),
    ],
)
async def test_a_command_line_that_makes_no_sense_sends_nothing(
    down: Down, words: Sequence[str], says: str
) -> None:
    done = await down(*words)
    assert (done.returncode, down.sent()) == (USAGE, [])
    assert says in done.stderr


async def test_a_box_that_cannot_be_reached_is_no_refusal(down: Down) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        down.describe(host="127.0.0.1", port=closed.getsockname()[1])
        code, body = await down.json("--destroy", "--dry-run")
    assert (code, body["ok"], down.sent()) == (UNREACHABLE, False, [])


async def test_a_word_for_which_nothing_waits_is_refused(down: Down) -> None:
    down.describe(provider=None)
    code, body = await down.json("--done")
    assert (code, body["reasons"]) == (FAILED, ["lab has no action that waits for a click"])


def on_a_terminal(rgt: Rgt, typed: str, *words: str) -> tuple[int, str]:
    """Answer the prompt of `rgt down` on a terminal; return its exit status and all that it showed."""
    return answer_prompt(rgt, rgt.command("down", "--fleet", str(rgt.fleet), *words), typed)


def answer_prompt(rgt: Rgt, command: Sequence[str], typed: str) -> tuple[int, str]:
    """Answer the prompt of a command that has a terminal; return its exit status and all that it showed."""
    with PseudoTerminal(
        command, cwd=rgt.folder, env=rgt.environment() | {"TERM": "xterm"}
    ) as person:
        person.until("anything else to cancel")
        person.type(f"{typed}\n")
        return person.ended(), person.text


async def test_a_person_types_the_phrase_or_nothing_is_sent(down: Down) -> None:
    _, body = await down.json("--park", "--dry-run")
    given = every_forfeit(body)
    _, body = await down.json("--park", "--dry-run", *given)
    for wrong in ("lab ",):  # the unit tests of the phrase have the others
        code, shown = await asyncio.to_thread(
            on_a_terminal, down.rgt, wrong, "lab", "--park", *given
        )
        assert (code, down.sent()) == (FAILED, []), shown
        assert "nothing was sent" in shown
    code, shown = await asyncio.to_thread(
        on_a_terminal, down.rgt, body["phrase"], "lab", "--park", *given
    )
    assert (code, down.sent()) == (OK, [f"POST /v2/pods/{POD}/action"]), shown
    assert "will send" in shown and "meter-off" in shown


async def test_a_script_that_a_person_answers_reads_one_object(down: Down) -> None:
    """Standard output is a pipe, while the question goes to the terminal that standard error is."""
    _, body = await down.json("--park", "--dry-run")
    given = every_forfeit(body)
    _, body = await down.json("--park", "--dry-run", *given)
    out = down.rgt.folder / "out.json"
    command = shlex.join(
        down.rgt.command("down", "--fleet", str(down.rgt.fleet), "lab", "--park", "--json", *given)
    )
    for typed, code, ok in (("lab ", FAILED, False), (body["phrase"], OK, True)):
        ended, shown = await asyncio.to_thread(
            answer_prompt, down.rgt, ["sh", "-c", f"{command} > {out}"], typed
        )
        found = json.loads(out.read_text())  # one document: two would not be JSON
        assert (ended, found["exit"], found["ok"]) == (code, code, ok), shown
        assert "will send" in shown


def test_what_went_out_and_is_not_confirmed_is_never_a_plain_failure() -> None:
    def steps(*phases: StopPhase) -> list[StopProgress]:
        return [StopProgress(phase=phase, at=0.0, text="") for phase in phases]

    sent, off = StopPhase.REQUESTED, StopPhase.METER_OFF
    assert status_of(steps(sent, StopPhase.CONFIRMED, off)) == OK
    assert status_of(steps(StopPhase.FAILED)) == FAILED
    assert status_of(steps(sent, StopPhase.FAILED)) == UNCONFIRMED
    assert status_of(steps(sent, StopPhase.UNCONFIRMED)) == UNCONFIRMED
    assert status_of(steps(sent)) == UNCONFIRMED
