"""The teardown story: from results on a rented box to its end, with commands that a user types.

One box trains its queue to the end; `rgt pull` and `rgt verify` bring the results home; `rgt down
--destroy` refuses while anything could be lost, and is allowed once nothing can. On the way a copy
is damaged, a newer checkpoint appears on the box, and rgt is killed between the request and its
answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shlex
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from rgt_tui.demo.embedded import EmbeddedFleet
from rgt_tui.demo.local_server import InjectedFault
from rgt_tui.demo.plan import BOXES, DemoBox
from rgt_tui.demo.stories import launch_queue, queue_done, run_shell
from rgt_tui.fleet import Fleet
from rgt_tui.fleet.config.editing import dump_fleet
from rgt_tui.model import FrozenStruct
from rgt_tui.ssh import build_agent

EPOCHS = 2
COMMAND_SECONDS = 180.0
TRAINING_SECONDS = 240.0
KILLED = -signal.SIGKILL


def story_box() -> DemoBox:
    """Return the story's box: RunPod's, with less to train, and no disk that outlives it."""
    (box,) = (box for box in BOXES if box.profile == "runpod")
    cells = tuple(msgspec.structs.replace(cell, epochs=EPOCHS) for cell in box.cells)
    # Nothing survives a destroy, so that only the pulled copy can open the gate.
    return msgspec.structs.replace(box, cells=cells, durable=f"{box.data}/final", story="teardown")


class StoryFailed(Exception):
    """A step did not end as expected; the message says which, and what happened instead."""


class CommandResult(FrozenStruct):
    """Result of a finished command."""

    status: int
    out: str
    err: str

    @property
    def last_object(self) -> dict[str, Any]:
        """The last JSON object that it printed, or {}."""
        for line in reversed(self.out.splitlines()):
            with contextlib.suppress(ValueError):
                found = json.loads(line)
                if isinstance(found, dict):
                    return found
        return {}


class TeardownStory:
    """Runs the story; `steps` lists the finished steps.

    Args:
        embedded: The running box.
        say: Called with a text for each step.
    """

    def __init__(self, embedded: EmbeddedFleet, say: Callable[[str], None]) -> None:
        assert embedded.workspace is not None
        (self._box,) = embedded.boxes
        self._embedded = embedded
        self._say = say
        self._folder = embedded.workspace.path
        self._copy = self._folder / "pulled"
        self._fleet_file = self._folder / "fleet.toml"
        self.steps: list[dict[str, Any]] = []

    async def run_story(self) -> None:
        """Run all steps.

        Raises:
            StoryFailed: A step did not end as expected.
        """
        self._fleet_file.write_text(dump_fleet(self._embedded.specs))
        await self._train_queue()
        await self._expect_status(
            "shut before anything was pulled", self._build_down_command("--dry-run"), 1
        )
        await self._pull_results()
        await self._expect_status("open", self._build_down_command("--dry-run"), 0)
        # Largest file, middle byte: neither its size nor its head shows the damage.
        damaged = self._flip_byte()
        shut = await self._expect_status(
            "shut: a byte of a copy flipped", self._build_down_command("--dry-run"), 1
        )
        self._check_names_file(shut, damaged.name)
        await self._pull_results()
        # Complete copies of old files do not make a newer one safe.
        newer = await self._add_checkpoint()
        shut = await self._expect_status(
            "shut: a checkpoint newer than the copy", self._build_down_command("--dry-run"), 1
        )
        self._check_names_file(shut, newer)
        await self._pull_results()
        seen = await self._expect_status("open again", self._build_down_command("--dry-run"), 0)
        # The worst moment: the provider has acted, and rgt cannot know.
        await self._killed_in_the_midst(seen.last_object)
        if not await self._list_open_actions("the record names what is open"):
            raise StoryFailed(
                "the record does not say that a call went out of which nobody knows how it ended"
            )
        await self._embedded.find_control_plane(
            self._box.name
        ).wait_settled()  # the pod ends seconds after the request
        await self._expect_status(
            "a second start asks the provider", self._build_command("status", "--json"), 0, 1, 3
        )
        await self._check_settled()

    async def _train_queue(self) -> None:
        """Run the queue to its end, with a verified copy on the durable disk."""
        spec = self._embedded.find_box_spec(self._box.name)
        assert spec.python is not None
        fleet = Fleet(
            self._embedded.specs, audit=self._folder / "watching.jsonl", env=self._embedded.env
        )
        done = asyncio.Event()

        def watch_state(state: Any) -> None:
            box = state.find_box(self._box.name)
            if box is not None and queue_done(box):
                done.set()

        fleet.subscribe(watch_state)
        await fleet.start()
        try:
            bundle = await asyncio.to_thread(build_agent)
            await launch_queue(spec, self._box, bundle, spec.python, prepared=False)
            async with asyncio.timeout(TRAINING_SECONDS):
                await done.wait()
        except TimeoutError:
            raise StoryFailed(f"the queue was not done after {TRAINING_SECONDS:g} s") from None
        finally:
            await fleet.stop()
        self._record_step("trained: every cell is done", 0, "")

    async def _pull_results(self) -> None:
        await self._expect_status(
            "pulled",
            self._build_command("pull", self._box.name, "--dest", str(self._copy), "--json"),
            0,
        )
        await self._expect_status(
            "verified: every checkpoint loads",
            self._build_command("verify", str(self._copy), "--json"),
            0,
        )

    def _flip_byte(self) -> Path:
        """Flip one byte in the middle of the largest file that would be lost with the box."""
        files = [
            path
            for path in Path(f"{self._copy}{self._box.data}").rglob("*")
            if path.is_file() and not path.is_symlink()
        ]
        path = max(files, key=lambda path: path.stat().st_size)
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 0x40
        path.write_bytes(data)
        return path

    async def _add_checkpoint(self) -> str:
        """Add one more checkpoint to the box after the pull, like a manually started training."""
        name = "late.safetensors"
        runs = f"{self._box.data}/runs"
        target = shlex.quote(f"{runs}/{self._box.cells[0].name}/{name}")
        script = f"""cp "$(find {shlex.quote(runs)} -name '*.safetensors' | head -1)" {target}"""
        await run_shell(self._embedded.find_box_spec(self._box.name), script)
        return name

    async def _killed_in_the_midst(self, seen: dict[str, Any]) -> None:
        """Confirm, and kill rgt with -9 between the provider's receipt and its answer."""
        provider = self._embedded.find_control_plane(self._box.name)
        # Carried out and never answered, as when a connection breaks.
        provider.inject_faults(InjectedFault(on="DELETE ", act=True, hang=True))
        words = self._build_down_command("--confirm", seen["phrase"], "--evidence", seen["digest"])
        process = await self._start_command(*words)
        try:
            async with asyncio.timeout(COMMAND_SECONDS):
                while not self.delete_count and process.returncode is None:  # noqa: ASYNC110 (it is the server that knows)
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise StoryFailed("the request never reached the provider") from None
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
        out, err = await process.communicate()
        if process.returncode != KILLED:
            told = (out + err).decode(errors="replace")[-500:]
            raise StoryFailed(f"rgt down ended by itself with {process.returncode}: {told}")
        self._record_step("killed between request and answer", KILLED, "")

    async def _check_settled(self) -> None:
        """Check that no action is open, one DELETE was sent, and the record is complete."""
        if left := await self._list_open_actions("the record has nothing open"):
            raise StoryFailed(f"still open after the second start: {left}")
        # The point of the story: the second start asked and did not send again.
        if self.delete_count != 1:
            raise StoryFailed(f"{self.delete_count} DELETE requests reached the provider")
        await self._expect_status(
            "the record is complete", self._build_command("audit", "--verify"), 0
        )
        self._record_step("meter off, with one DELETE", 0, "")

    async def _list_open_actions(self, what: str) -> list[dict[str, Any]]:
        """Return the actions whose end is not in the record."""
        audit = await self._expect_status(what, self._build_command("audit", "--json"), 0)
        lines = [json.loads(line) for line in audit.out.splitlines() if line.startswith("{")]
        return [line for line in lines if line.get("event") == "open"]

    @property
    def delete_count(self) -> int:
        """Number of requests to end a machine that have reached the provider."""
        return sum(
            request.startswith("DELETE ")
            for request in self._embedded.find_control_plane(self._box.name).requests
        )

    def _build_down_command(self, *words: str) -> tuple[str, ...]:
        return (
            "down",
            "--fleet",
            str(self._fleet_file),
            self._box.name,
            "--destroy",
            "--json",
            *words,
        )

    def _build_command(self, command: str, *words: str) -> tuple[str, ...]:
        if command != "verify":
            return (command, "--fleet", str(self._fleet_file), *words)
        return (command, *words)

    async def _start_command(self, *words: str) -> asyncio.subprocess.Process:
        own = {name: str(self._folder / "state") for name in ("XDG_STATE_HOME", "XDG_DATA_HOME")}
        return await asyncio.create_subprocess_exec(
            sys.executable, "-m", "rgt_tui", *words,
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, **self._embedded.env, **own, "RGT_HISTORY": "off"},
        )  # fmt: skip

    async def _expect_status(
        self, what: str, words: tuple[str, ...], *statuses: int
    ) -> CommandResult:
        """Run a command that must end with one of these exit statuses."""
        began = time.monotonic()
        process = await self._start_command(*words)
        try:
            out, err = await asyncio.wait_for(process.communicate(), COMMAND_SECONDS)
        except TimeoutError:
            process.kill()
            await process.wait()
            raise StoryFailed(
                f"{what}: `rgt {shlex.join(words)}` took more than {COMMAND_SECONDS:g} s"
            ) from None
        assert process.returncode is not None
        ended = CommandResult(
            process.returncode, out.decode(errors="replace"), err.decode(errors="replace")
        )
        if ended.status not in statuses:
            told = (ended.out + ended.err)[-2000:]
            raise StoryFailed(
                f"{what}: `rgt {shlex.join(words)}` ended with {ended.status}: {told}"
            )
        reasons = ended.last_object.get("reasons") or ()
        self._record_step(
            what, ended.status, "; ".join(map(str, reasons)), round(time.monotonic() - began, 1)
        )
        return ended

    def _check_names_file(self, shut: CommandResult, name: str) -> None:
        if not any(name in str(reason) for reason in shut.last_object.get("reasons", ())):
            raise StoryFailed(f"{name} is not named: {shut.last_object.get('reasons')}")

    def _record_step(self, what: str, status: int, text: str, seconds: float = 0.0) -> None:
        self.steps.append({"step": what, "exit": status, "text": text, "seconds": seconds})
        self._say(f"{what}{f': {text[:200]}' if text else ''}")
