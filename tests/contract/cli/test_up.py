"""``rgt up`` as a person and a script use it: a real sshd behind a market on the loopback, the real command."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rgt_tui.cli import FAILED, INTERRUPTED, OK, UNCONFIRMED, UNREACHABLE, USAGE
from rgt_tui.demo import InjectedFault, MachineChange
from rgt_tui.fleet.config import load_fleet
from rgt_tui.gate import Journal
from rgt_tui.model import BoxSpec, ProviderRef, RentalTerms
from tests.contract.cli.conftest import PATIENCE, Rgt
from tests.contract.providers.fakes.renting_runpod import LocalGpu, RentingRunPod
from tests.contract.ssh.conftest import RealSshd
from tests.pseudo_terminal import PseudoTerminal

KEY, A100, CREATE = "RGT_TEST_KEY", "NVIDIA A100 80GB PCIe", "POST /v2/pods"


@dataclass
class Up:
    """A fleet file that names one account, and a market in which every machine is a real sshd."""

    rgt: Rgt
    server: RentingRunPod
    key: Path
    boots: Callable[[MachineChange], None]
    """What becomes of a machine when it is created."""

    async def __call__(self, *words: str) -> subprocess.CompletedProcess[str]:
        return await asyncio.to_thread(self.rgt.on, "up", *words)

    def words(self, *more: str) -> list[str]:
        return [
            "train-a",
            "--gpu",
            "A100",
            "--disk",
            "50",
            "--key",
            str(self.key),
            "--no-check",
            *more,
        ]

    async def json(self, *more: str) -> tuple[int, dict[str, Any]]:
        done = await self(*self.words(*more), "--json", "--accept-new-host-key")
        assert done.stdout, done.stderr
        return done.returncode, json.loads(done.stdout)

    def created(self) -> int:
        return self.server.requests.count(CREATE)

    def box(self, name: str = "train-a") -> BoxSpec | None:
        return next((spec for spec in load_fleet(self.rgt.fleet) if spec.name == name), None)

    def journal(self) -> Journal:
        return Journal(self.rgt.folder / ".local/state/rgt/journal")


@pytest.fixture
async def up(rgt: Rgt, real_sshd: RealSshd) -> AsyncIterator[Up]:
    def boots(change: MachineChange) -> None:
        pod = server.pods[change.machine]
        pod.host, pod.port = "127.0.0.1", real_sshd.port

    def changed(change: MachineChange) -> None:
        if change.action == "create":
            made.boots(change)

    server = RentingRunPod(settle_s=0.0, on_change=changed)
    await server.start()
    stock = {("SECURE", "EU-1"): "HIGH"}
    server.add_gpu(LocalGpu(A100, "A100 PCIe", 80, 1.64, 1.19, stock=stock))
    rgt.env[KEY] = server.key
    ref = ProviderRef("runpod", "pod1", base_url=server.base_url, key_env=KEY)
    rgt.describe([BoxSpec(name="lab", host="lab.invalid", profile="runpod", provider=ref)])
    made = Up(rgt, server, real_sshd.folder / "id.pub", boots)
    yield made
    await server.stop()


async def test_a_script_rents_exactly_what_the_dry_run_showed(up: Up) -> None:
    code, shown = await up.json("--dry-run", "--max-price", "2")
    assert (code, shown["ok"], up.created()) == (OK, True, 0), shown
    assert shown["costs"][0] == f"compute: $1.64/h for 1 × {A100}, on-demand"
    assert (shown["phrase"], shown["offer"]["gpu"], len(shown["candidates"])) == (
        "train-a",
        A100,
        1,
    )
    confirm = ("--max-price", "2", "--confirm", "train-a", "--evidence")
    code, refused = await up.json(*confirm, "0" * 64 + "-1")
    assert (code, refused["ok"], up.created()) == (FAILED, False, 0)
    code, done = await up.json(*confirm, shown["digest"])
    assert (code, done["ok"], up.created()) == (OK, True, 1), done
    (pod,) = up.server.pods.values()
    assert done["token"] == pod.name and re.fullmatch(r"rgt-train-a-[0-9a-f]{16}", pod.name)
    spec = up.box()
    assert spec is not None and spec.provider is not None
    assert (spec.provider.instance, spec.profile, spec.port) == (pod.id, "runpod", pod.port)
    assert spec.asked == RentalTerms(spot=False, max_per_hour=2.0, gpu="A100", gpu_count=1)
    assert spec.identity == str(up.key.with_suffix(""))
    assert up.journal().open_actions() == ((), ())
    again = await up(*up.words("--dry-run"))
    assert (again.returncode, up.created()) == (FAILED, 1)
    assert "boxes.train-a already exists" in again.stderr


async def test_a_job_file_names_gpu_disk_and_providers(up: Up) -> None:
    job = up.rgt.folder / "train-a.toml"
    text = (
        'run = "python train.py"\ncandidates = ["kaggle", "autodl", "runpod"]\n[resources]\n'
        'gpu = { name = "A100", memory = "40GB+" }\ndisk = "50GB"\n'
    )
    job.write_text(text)
    words = ("--job", str(job), "--key", str(up.key), "--no-check", "--dry-run", "--json")
    done = await up(*words)
    assert done.returncode == OK, done.stderr
    shown = json.loads(done.stdout)
    assert (shown["phrase"], shown["offer"]["gpu"]) == ("train-a", A100)
    assert "kaggle: rgt cannot rent there" in done.stderr
    assert "autodl: " in done.stderr, "why it is left out"
    _, plain = await up.json("--dry-run")
    assert shown["costs"] == plain["costs"], "50 GB of disk, as there"
    job.write_text(text.replace("40GB+", "96GB+"))
    assert "'A100 96GB+'" in (await up(*words)).stderr
    job.write_text(text.replace(', "autodl", "runpod"', ""))
    none = await up(*words)
    assert none.returncode == USAGE and "rgt can rent at none of them" in none.stderr
    assert (await up("--gpu", "A100", "--dry-run")).returncode == USAGE
    assert up.created() == 0


async def test_an_image_by_its_tag_is_said_to_move(up: Up) -> None:
    """A registry that does not answer stops nothing: the person decides."""
    tag = "127.0.0.1:1/lab/torch:v1"
    done = await up(*up.words("--dry-run", "--json", "--image", tag))
    image = json.loads(done.stdout)["image"]
    assert (done.returncode, image["image"], image["by_digest"]) == (OK, tag, "")
    assert f"image: {tag} is a tag, which may name another image later" in done.stderr
    pinned = f"lab/torch@sha256:{'ab' * 32}"
    done = await up(*up.words("--dry-run", "--json", "--image", pinned))
    assert json.loads(done.stdout)["image"]["by_digest"] == pinned
    assert "may name another" not in done.stderr
    _, plain = await up.json("--dry-run")
    assert plain["image"] is None


async def test_a_lost_answer_ends_with_the_box_all_the_same(up: Up) -> None:
    _, shown = await up.json("--dry-run")
    up.server.inject_faults(InjectedFault(on=CREATE, act=True, status=500))
    code, done = await up.json("--confirm", "train-a", "--evidence", shown["digest"])
    assert (code, up.created(), len(up.server.pods)) == (OK, 1, 1), done
    assert up.box() is not None


async def test_killed_right_after_the_call_the_next_one_goes_on_and_sends_nothing(up: Up) -> None:
    _, shown = await up.json("--dry-run")
    up.server.inject_faults(InjectedFault(on=CREATE, act=True, hang=True))
    process = up.rgt.start(
        "up",
        *up.words("--confirm", "train-a", "--evidence", shown["digest"], "--accept-new-host-key"),
    )
    async with asyncio.timeout(PATIENCE):
        while not up.created():  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    process.kill()
    await asyncio.to_thread(process.communicate)
    (open_,), _ = up.journal().open_actions()
    assert open_.last.state == "sent"
    done = await up(
        "train-a", "--key", str(up.key), "--json", "--accept-new-host-key", "--written-off", "none"
    )
    assert (done.returncode, "is open" in done.stderr) == (FAILED, True)
    code, body = await up.json("--confirm", "train-a", "--evidence", "x")
    assert (code, up.created(), len(up.server.pods)) == (OK, 1, 1), body
    assert up.box() is not None
    assert up.journal().open_actions() == ((), ())


async def test_what_is_never_found_is_4_until_a_person_writes_it_off(up: Up) -> None:
    _, shown = await up.json("--dry-run")
    up.server.inject_faults(InjectedFault(on=CREATE, hang=True))
    process = up.rgt.start("up", *up.words("--confirm", "train-a", "--evidence", shown["digest"]))
    async with asyncio.timeout(PATIENCE):
        while not up.created():  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    process.kill()
    await asyncio.to_thread(process.communicate)
    code, body = await up.json("--confirm", "train-a", "--evidence", "x", "--find", "0.1")
    assert (code, up.created(), body["ok"]) == (UNCONFIRMED, 1, False)
    assert "but lists lag" in body["reasons"][0]
    audit = await asyncio.to_thread(up.rgt, "audit")
    assert "OPEN: renting train-a at runpod" in audit.stdout
    done = await up("train-a", "--written-off", body["token"])
    assert (done.returncode, up.created()) == (OK, 1), done.stderr
    assert up.journal().open_actions() == ((), ())
    code, _ = await up.json("--dry-run")
    assert code == OK


@pytest.mark.parametrize(
    ("change", "status", "says"),
    [
        (lambda up: up.server.gpus[A100].stock.clear(), FAILED, "nothing that fits"),
        (
            lambda up: setattr(up.server.gpus[A100], "secure", 1.7),
            FAILED,
            "has changed since the dry run",
        ),
        (
            lambda up: up.server.inject_faults(InjectedFault(on=CREATE, status=400)),
            FAILED,
            "injected fault",
        ),
        (
            lambda up: up.server.inject_faults(InjectedFault(status=500, times=-1)),
            UNREACHABLE,
            "no answer from runpod",
        ),
    ],
    ids=["no stock", "another price", "no capacity", "no market"],
)
async def test_what_cannot_be_rented_is_said_and_leaves_nothing_open(
    up: Up, change: Callable[[Up], None], status: int, says: str
) -> None:
    _, shown = await up.json("--dry-run")
    change(up)
    code, body = await up.json("--confirm", "train-a", "--evidence", shown["digest"])
    assert (code, len(up.server.pods)) == (status, 0)
    assert any(says in reason for reason in body["reasons"]), body["reasons"]
    assert up.journal().open_actions() == ((), ())


async def test_that_nobody_was_asked_is_no_answer(up: Up) -> None:
    up.rgt.env.pop(KEY)
    code, body = await up.json("--dry-run")
    assert (code, body["exit"]) == (UNREACHABLE, UNREACHABLE)
    assert [
        why
        for why in body["reasons"]
        if why.startswith("no provider was queried: no API key for runpod")
    ]
    assert not any("nothing that fits" in why for why in body["reasons"])
    up.rgt.describe([BoxSpec(name="lab", host="lab.invalid")])
    code, body = await up.json("--dry-run")
    assert code == UNREACHABLE
    assert "runpod" in body["reasons"][0], body["reasons"]
    assert "vastai" in body["reasons"][0], body["reasons"]


async def test_a_machine_without_ssh_is_a_box_that_bills_and_says_so(up: Up) -> None:
    up.boots = lambda change: None
    _, shown = await up.json("--dry-run")
    code, body = await up.json(
        "--confirm", "train-a", "--evidence", shown["digest"], "--timeout", "0.1"
    )
    assert (code, up.created()) == (UNREACHABLE, 1)
    assert "no SSH after" in body["reasons"][0]
    spec = up.box()
    assert spec is not None and spec.host.endswith(".invalid")


def at_a_terminal(rgt: Rgt, answers: Sequence[tuple[str, str]], *words: str) -> tuple[int, str]:
    """Answer the prompts of `rgt up` in their order, where ``{}`` is what it wants typed; return status and screen."""
    command = rgt.command("up", "--fleet", str(rgt.fleet), *words)
    with PseudoTerminal(
        command, cwd=rgt.folder, env=rgt.environment() | {"TERM": "xterm"}
    ) as person:
        for prompt, answer in answers:
            person.until(prompt)
            wanted = re.findall(r'type "([^"]+)"', person.text)
            person.type(answer.format(*wanted[-1:]) + "\n")
        return person.ended(), person.text


async def test_a_person_sees_the_price_types_the_name_and_accepts_the_host_key(up: Up) -> None:
    code, shown = await asyncio.to_thread(
        at_a_terminal, up.rgt, [("to rent it", "train")], *up.words("--max-price", "2")
    )
    assert (code, up.created()) == (FAILED, 0), shown
    code, shown = await asyncio.to_thread(
        at_a_terminal,
        up.rgt,
        [("to rent it", "train-a"), ("type yes to accept it", "yes")],
        *up.words(),
    )
    assert (code, up.created()) == (OK, 1), shown
    assert "together: $1." in shown and "will send" in shown and "SHA256:" in shown
    assert "train-a answers" in shown and "what survives" in shown
    assert up.box() is not None


async def test_ctrl_c_at_the_prompt_ends_it_at_once_and_rents_nothing(up: Up) -> None:
    code, shown = await asyncio.to_thread(
        at_a_terminal, up.rgt, [("to rent it", "\x03")], *up.words()
    )
    assert (code, up.created()) == (INTERRUPTED, 0), shown


async def test_what_is_not_as_agreed_is_said_loudly_and_can_be_ended_at_once(up: Up) -> None:
    def dearer(change: MachineChange) -> None:
        up.server.pods[change.machine].cost = 3.28

    up.boots = dearer
    code, text = await asyncio.to_thread(
        at_a_terminal,
        up.rgt,
        [("to rent it", "train-a"), ("to destroy it", "{}"), ("to send it", "{}")],
        *up.words("--timeout", "0.1"),
    )
    assert "NOT AS AGREED: it costs $3." in text, text
    assert "agreed: $1." in text
    (pod,) = up.server.pods.values()
    assert (code, up.created(), pod.status) == (FAILED, 1, "TERMINATED"), text


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("train a", "--gpu", "A100", "--dry-run"), "not a valid box name"),
        (("train-a", "--gpu", "A100"), "cannot prompt here"),
        (("train-a", "--dry-run"), "name the GPU"),
        (("train-a", "--gpu", "A100", "--confirm", "train-a"), "are used together"),
        (
            ("train-a", "--gpu", "A100", "--dry-run"),
            "cannot be read: the machine needs your public key",
        ),
        (("train-a", "--gpu", "A100", "--dry-run", "--on", "runpood"), "no provider 'runpood'"),
    ],
)
async def test_a_command_line_that_makes_no_sense_asks_nobody(
    up: Up, words: Sequence[str], says: str
) -> None:
    done = await up(*words)
    assert (done.returncode, up.server.requests) == (USAGE, [])
    assert says in done.stderr
    done = await up(*up.words("--dry-run", "--gpu", "B300"))
    assert done.returncode in (FAILED, UNREACHABLE)


async def test_a_machine_without_the_gpu_that_was_asked_for_is_refused_before_money_runs(
    up: Up,
) -> None:
    _, shown = await up.json("--dry-run")
    words = [word for word in up.words("--json", "--accept-new-host-key") if word != "--no-check"]
    done = await up(*words, "--confirm", "train-a", "--evidence", shown["digest"])
    reason = json.loads(done.stdout)["reasons"][0]
    assert (done.returncode, up.created()) == (UNCONFIRMED, 1), done.stderr
    assert "no GPU" in reason and "requested 1 × A100" in reason
    assert "it is billed: rgt down train-a --destroy ends it" in done.stderr
