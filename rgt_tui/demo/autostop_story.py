"""The autostop story: a box that stops itself, with the same commands that a user types.

One box trains its queue to the end and is armed to park itself when idle. The rgt that watches it
is killed. The box detects that it is idle, seals itself, and parks with its pod's own key; the
local provider stops billing. A new rgt reports this. After the box is started again with a new
system disk, it reports what happened from its record on the disk that survived.
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
from collections.abc import Callable, Sequence
from typing import Any, cast

import httpx
import msgspec
from rgt_wire import USER_AGENT

from rgt_tui.demo.embedded import KEY_ENV, EmbeddedFleet
from rgt_tui.demo.local_runpod import LocalRunPod
from rgt_tui.demo.plan import BOXES, DemoBox
from rgt_tui.demo.stories import launch_queue
from rgt_tui.demo.teardown_story import CommandResult, StoryFailed
from rgt_tui.fleet.config.editing import dump_fleet
from rgt_tui.health.autostop_words import UNDONE
from rgt_tui.ssh import build_agent

IDLE = "8s"
"""The idle limit that the box is armed with; a real one would be 45m."""
PACE = "0.2"
"""Factor for the box's waits between the steps of its stop."""
COMMAND_SECONDS = 60.0
KILLED = -signal.SIGKILL


def idle_box() -> DemoBox:
    """Return the story's box: RunPod's, with little to train."""
    (box,) = (box for box in BOXES if box.profile == "runpod")
    epochs = 6
    # At 50 ms each, 36 seconds in all: the box is still training when `rgt autostop --dry-run` has
    # listed all its files.
    steps = 120
    cells = tuple(
        msgspec.structs.replace(
            cell, epochs=epochs, config={**cell.config, "steps_per_epoch": steps}
        )
        for cell in box.cells
    )
    environment = {**box.environment, "RGT_AUTOSTOP_PACE": PACE}
    return msgspec.structs.replace(box, cells=cells, story="autostop", environment=environment)


class AutostopStory:
    """Runs the story.

    Args:
        embedded: The running box.
        say: Called with a text for each step.
        note: Called with each step: ``step``, ``exit``, ``seconds``, ``text``.
    """

    def __init__(
        self,
        embedded: EmbeddedFleet,
        say: Callable[[str], None],
        note: Callable[[dict[str, Any]], None],
    ) -> None:
        assert embedded.workspace is not None
        (self._box,) = embedded.boxes
        self._embedded = embedded
        self._say = say
        self._note_step = note
        self._folder = embedded.workspace.path
        self._fleet_file = self._folder / "fleet.toml"
        self._began = time.monotonic()

    async def run_story(self) -> None:
        """Run all steps.

        Raises:
            StoryFailed: A step did not end as expected.
        """
        self._fleet_file.write_text(dump_fleet(self._embedded.specs))
        name = self._box.name
        spec = self._embedded.find_box_spec(name)
        assert spec.python is not None
        await launch_queue(
            spec, self._box, await asyncio.to_thread(build_agent), spec.python, prepared=False
        )
        # A real process that can be killed: the story is about a laptop that is gone.
        watching = WatchProcess(await self._start_command("watch", name, "--json"))
        training_seconds = 150.0
        try:
            # The dry run comes while it trains: only then does the box have something that blocks.
            await watching.wait_for_line(_is_training, training_seconds)
            seen = await self._run_command("autostop", name, "--idle", IDLE, "--dry-run", "--json")
            self._record_step(
                "while it trains: what arming would mean",
                seen,
                "; ".join(seen.last_object["would_block"]),
            )
            self._record_step(
                "its own key is proved by a refused start",
                seen,
                str(seen.last_object["key"]["text"]),
            )
            # Not armed before: the idle limit is shorter than the pauses of a training that starts.
            line = await watching.wait_for_line(_is_done, training_seconds)
            self._record_step("the queue is done, and rgt watches", None, str(line.get("reason")))
            armed = await self._run_command(
                "autostop", name, "--idle", IDLE, "--confirm", name, "--json"
            )
            self._record_step(
                "armed with the typed name", armed, str(armed.last_object.get("boot"))
            )
            line = await watching.wait_for_line(
                lambda line: bool(_read_autostop_clock(line)), COMMAND_SECONDS
            )
            self._record_step(
                "the rgt that watches shows its clock", None, str(line.get("autostop"))
            )
        finally:
            await watching.kill()
        self._record_step(
            "the laptop's rgt is killed", None, f"exit {watching.status}", status=KILLED
        )
        await self._wait_until_parked()
        seen = await self._run_command("status", name, "--json", ok=(0, 1, 3))
        line = self._find_status_line(seen)
        # The new rgt was not there when it parked: it has to conclude it from the provider and the
        # ledger.
        if line["self_stop"]["off_at"] is None or line["state"] != "stopped":
            raise StoryFailed(f"the next rgt does not say that it parked: {seen.out[-2000:]}")
        self._record_step("the next rgt: off, as armed", seen, str(line["reason"]))
        await self._start_pod()
        await self._check_self_stop_record()
        audit = await self._run_command("audit", "--json")
        events = [
            json.loads(line).get("event") for line in audit.out.splitlines() if line.startswith("{")
        ]
        # In this order: a request is recorded before it is sent.
        if events[:2] != ["requested", "armed"]:
            raise StoryFailed(f"the audit log has {events}")
        self._record_step("the audit log has the arming", audit, ", ".join(events))

    async def _wait_until_parked(self) -> None:
        """Wait until the provider stops billing, and check who requested it."""
        plane = self._control_plane
        pod = plane.pods[self._box.instance]
        park_seconds = 90.0
        try:
            async with asyncio.timeout(park_seconds):
                # Seen at the provider, because rgt itself is dead at this point.
                while pod.is_on:  # noqa: ASYNC110 (it is the server that knows)
                    await asyncio.sleep(0.1)
        except TimeoutError:
            raise StoryFailed(
                f"the box did not park itself within {park_seconds:g} s: {self._list_requests()}"
            ) from None
        stops = [
            who
            for (_, who), body in zip(
                self._list_requests(), self._control_plane.bodies, strict=True
            )
            if b'"stop"' in body
        ]
        # Once, and by the pod's key: a stop with the account's key would prove nothing.
        if stops != [self._box.instance]:
            raise StoryFailed(f"the stop was asked for by {stops}, not once by the pod's own key")
        self._record_step(
            "the box has parked itself, with its own key",
            None,
            f"the provider says {pod.status}: meter off",
        )

    def _list_requests(self) -> list[tuple[str, str]]:
        return list(zip(self._control_plane.requests, self._control_plane.askers, strict=True))

    async def _start_pod(self) -> None:
        """Start the pod again, as a user does on the console."""
        plane = self._control_plane
        async with httpx.AsyncClient() as client:
            answer = await client.post(
                f"{plane.base_url}/v2/pods/{self._box.instance}/action",
                json={"action": "start"},
                headers={
                    "Authorization": f"Bearer {self._embedded.env[KEY_ENV]}",
                    "User-Agent": USER_AGENT,
                },
            )
        if answer.status_code != 200:
            raise StoryFailed(f"the pod cannot be started again: {answer.text}")
        await plane.wait_settled()
        self._record_step(
            "started again on the console",
            None,
            f"the provider says {plane.pods[self._box.instance].status}",
        )

    async def _check_self_stop_record(self) -> None:
        """Query the box with a new rgt for the record that survived the stop."""
        name = self._box.name
        # The agent comes up with the box, so the first status may be too early for its record.
        for _ in range(5):
            seen = await self._run_command("status", name, "--json", ok=(0, 1, 3))
            line = self._find_status_line(seen)
            known = line["self_stop"]
            if known["told_at"] is not None:
                break
        else:
            raise StoryFailed(f"the box did not tell its story: {seen.out[-2000:]}")
        words = str(line["autostop"])
        events = [event["event"] for event in known["story"]]
        stopped = {"sealed", "mirrored", "intent"} <= set(events) and events[-1] not in UNDONE
        if not stopped:
            raise StoryFailed(f"it told something else: {words}; {events}")
        self._record_step("the next rgt tells the story", seen, words)
        for event in known["story"]:
            self._say(f"  {event['event']}: {event['text']}")

    @property
    def _control_plane(self) -> LocalRunPod:
        return cast(LocalRunPod, self._embedded.find_control_plane(self._box.name))

    async def _start_command(self, command: str, *words: str) -> asyncio.subprocess.Process:
        own = {name: str(self._folder / "state") for name in ("XDG_STATE_HOME", "XDG_DATA_HOME")}
        return await asyncio.create_subprocess_exec(
            sys.executable, "-m", "rgt_tui", command, "--fleet", str(self._fleet_file), *words,
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            # Its own state: the person's audit log and history must not learn of a demo.
            env={**os.environ, **self._embedded.env, **own, "RGT_HISTORY": "off"},
        )  # fmt: skip

    async def _run_command(
        self, command: str, *words: str, ok: Sequence[int] = (0,)
    ) -> CommandResult:
        process = await self._start_command(command, *words)
        line = shlex.join(("rgt", command, *words))
        try:
            out, err = await asyncio.wait_for(process.communicate(), COMMAND_SECONDS)
        except TimeoutError:
            # A hang would else outlive the story, and hold the sandbox's disks.
            process.kill()
            await process.wait()
            raise StoryFailed(f"`{line}` took more than {COMMAND_SECONDS:g} s") from None
        assert process.returncode is not None
        ended = CommandResult(
            process.returncode, out.decode(errors="replace"), err.decode(errors="replace")
        )
        if ended.status not in ok:
            raise StoryFailed(
                f"`{line}` ended with {ended.status}: {(ended.out + ended.err)[-2000:]}"
            )
        return ended

    def _find_status_line(self, ended: CommandResult) -> dict[str, Any]:
        """Return the box's status line, with what rgt remembers of it."""
        for raw in ended.out.splitlines():
            line: dict[str, Any] = json.loads(raw)
            if line.get("box") == self._box.name and line.get("self_stop"):
                return line
        raise StoryFailed(f"rgt status remembers nothing of the box: {ended.out[-2000:]}")

    def _record_step(
        self, what: str, ended: CommandResult | None, text: str, status: int = 0
    ) -> None:
        if ended is None:
            code = status
        else:
            code = ended.status
        self._note_step(
            {
                "step": what,
                "exit": code,
                "seconds": round(time.monotonic() - self._began, 1),
                "text": text,
            }
        )
        self._say(f"{what}: {text[:300]}")


class WatchProcess:
    """A running `rgt watch --json`: its newest line, until it is killed."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.status: int | None = None

    async def wait_for_line(
        self, wanted: Callable[[dict[str, Any]], bool], seconds: float
    ) -> dict[str, Any]:
        """Return the first line that satisfies `wanted`.

        Raises:
            StoryFailed: No such line in time.
        """
        assert self._process.stdout is not None
        line: dict[str, Any] = {}
        try:
            async with asyncio.timeout(seconds):
                while raw := await self._process.stdout.readline():
                    line = json.loads(raw)
                    if wanted(line):
                        return line
        except TimeoutError:
            pass
        raise StoryFailed(
            f"rgt watch did not show it within {seconds:g} s; its last line: "
            f"{json.dumps(line)[:2000]}"
        )

    async def kill(self) -> None:
        """Kill it, like a laptop whose battery is empty."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self._process.communicate()
        self.status = self._process.returncode


def _is_training(line: dict[str, Any]) -> bool:
    return any(run.get("state") == "running" for run in line.get("runs") or ())


def _is_done(line: dict[str, Any]) -> bool:
    runs = line.get("runs") or ()
    # The runner ends a moment after its last cell; until then it would block the arming.
    still = (line.get("sample") or {}).get("procs")
    done = all(run.get("state") == "done" and run.get("durable") == "verified" for run in runs)
    return bool(runs) and not still and done


def _read_autostop_clock(line: dict[str, Any]) -> Any:
    return (line.get("sample") or {}).get("autostop")
