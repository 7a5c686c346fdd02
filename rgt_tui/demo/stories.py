"""The three stories of the demo: what makes them happen, and how to detect that they did.

`StoryDirector` causes events, as a platform or a careless evaluation script would, and acts as the
boxes' user: every command that it runs there over SSH could be typed by hand. `TESTS` read only the
fleet's state: a story counts only once rgt itself has detected it.
"""

from __future__ import annotations

import asyncio
import io
import json
import logging
import shlex
import tarfile
from collections.abc import Callable

from rgt_tui.demo.embedded import EmbeddedFleet
from rgt_tui.demo.plan import FILL_DIR, DemoBox
from rgt_tui.demo.sandboxes import CODE
from rgt_tui.model import BoxSpec, BoxState, FleetState
from rgt_tui.ssh import (
    AgentBundle,
    BoxError,
    BoxTransport,
    build_agent,
    connect,
    deploy_agent,
    run_command,
)

COMMAND_SECONDS = 60


class CommandFailed(Exception):
    """A command on a box failed; the message has its error output."""


async def run_command_on_box(connection: BoxTransport, command: str, data: bytes = b"") -> str:
    """Run a command on a box and return its output.

    Raises:
        CommandFailed: It ended with a status other than 0.
    """
    # The product's own function: the demo has no other access to a box than rgt.
    done = await run_command(connection, command, data=data, seconds=COMMAND_SECONDS)
    if done.status != 0:
        raise CommandFailed(f"`{command}` ended with {done.status}: {done.words}")
    return done.out.decode(errors="replace")


async def write_job(connection: BoxTransport, box: DemoBox, python: str) -> None:
    """Write the job of `box`: ``job.json``, ``queue.txt`` and the configs."""
    # One connection for all files, as tar.
    command = f"mkdir -p {shlex.quote(box.job)} && tar -xf - -C {shlex.quote(box.job)}"
    await run_command_on_box(connection, command, _build_archive(job_files(box, python)))


def job_files(box: DemoBox, python: str) -> dict[str, str]:
    """Return the files of a box's job directory, by relative path."""
    # Below the dashboard, which runs on the same cores.
    nice = 15
    job = {
        "py": python,
        "out": f"{box.data}/runs/{{name}}",
        "durable": f"{box.durable}/final/{{name}}",
        "workdir": box.job,
        "retries": box.retries,
        "nice": nice,
        "env": {
            "PYTHONPATH": CODE,
            "PYTHONDONTWRITEBYTECODE": "1",
            # Three trainings share a laptop: more threads would only wait for each other.
            "OMP_NUM_THREADS": "1",
            "MKL_NUM_THREADS": "1",
        },
    }
    # Three columns of a queue: config, task, epochs.
    lines = [f"configs/{cell.name}.yaml char_lm {cell.epochs}" for cell in box.cells]
    files = {
        "job.json": json.dumps(job, indent=1),
        "queue.txt": "# cfg task epochs\n" + "\n".join(lines) + "\n",
    }
    for cell in box.cells:
        config = "".join(f"{key}: {value}\n" for key, value in cell.config.items())
        files[f"configs/{cell.name}.yaml"] = config
    return files


def _build_archive(files: dict[str, str]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, text in files.items():
            data = text.encode()
            info = tarfile.TarInfo(name)
            info.size = len(data)
            info.mode = 0o644
            archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


async def launch_queue(
    spec: BoxSpec, box: DemoBox, bundle: AgentBundle, python: str, *, prepared: bool
) -> str:
    """Launch (or relaunch) the queue of a box, detached; return the box's answer.

    Args:
        spec: The box's connection settings.
        box: Its plan.
        bundle: The agent, which also runs queues.
        python: The interpreter that has torch.
        prepared: Whether the job is already on the box.
    """
    # Its own connection, so that a story survives a reconnecting dashboard.
    connection = await connect(spec)
    try:
        deployed = await deploy_agent(connection, bundle, (python,))
        if not prepared:
            await write_job(connection, box, python)
        return await run_command_on_box(
            connection, deployed.build_command("detach", "--job", box.job)
        )
    finally:
        connection.abort()


async def run_shell(spec: BoxSpec, command: str, data: bytes = b"") -> str:
    """Run one command on a box over a separate connection."""
    connection = await connect(spec)
    try:
        return await run_command_on_box(connection, command, data)
    finally:
        connection.abort()


log = logging.getLogger("rgt.demo")

STORIES = ("queue", "resume", "inodes")

FILL_SCRIPT = """
mkdir -p {dir}
i=1
: > {dir}/sample-1.png
while true 2>/dev/null > {dir}/sample-$((i+1)).png; do
  i=$((i+1))
  [ $((i % 40)) -eq 0 ] && sleep 0.15
done
tries=300
while [ $tries -gt 0 ] && [ -e {dir}/sample-1.png ] && [ -e {dir}/sample-$i.png ]; do
  tries=$((tries-1))
  true 2>/dev/null > {dir}/sample-$((i+1)).png && i=$((i+1))
  sleep 0.1
done
"""
"""Once the disk is full, the script also takes for half a minute what the run frees by removing old
checkpoints: otherwise the next save would find space again without a user's help. It ends as soon
as its files are removed.
"""


def story_box(state: FleetState, boxes: tuple[DemoBox, ...], story: str) -> BoxState | None:
    """Return the state of the box with this story."""
    return next((state.find_box(box.name) for box in boxes if box.story == story), None)


def queue_done(box: BoxState) -> bool:
    """Return whether every cell is done, with a verified copy on the durable disk."""
    cells = [cell for queue in box.queues for cell in queue.cells]
    return bool(cells) and all(
        cell.state == "done" and cell.durable == "verified" for cell in cells
    )


def has_resumed(box: BoxState) -> bool:
    """Return whether a run resumed from a checkpoint and passed the step where it was killed."""
    for run in box.runs:
        loss = run.series.get("loss")
        if not run.resumes or loss is None:
            continue
        # The point of the resume in the series: steps before it are those of the first attempt.
        before = [step for step, _ in loss][: run.resumes[0].index]
        if before and run.step is not None and run.step > max(before):
            return True
    return False


def out_of_inodes(box: BoxState) -> bool:
    """Return whether a failed save was diagnosed: resource, log line, evidence and a fix."""
    return any(
        "inodes" in finding.resource
        and finding.where.endswith(".log")
        and finding.evidence
        and finding.fixes
        for finding in box.findings
    )


TESTS: dict[str, Callable[[BoxState], bool]] = {
    "queue": queue_done,
    "resume": has_resumed,
    "inodes": out_of_inodes,
}


class StoryTracker:
    """Remembers which stories have happened."""

    def __init__(self, boxes: tuple[DemoBox, ...]) -> None:
        self._boxes = boxes
        self.seen = dict.fromkeys(STORIES, False)

    def check_state(self, state: FleetState) -> list[str]:
        """Check a new state; return the stories that have just happened."""
        new = []
        # Each counts once: a run that resumed keeps training.
        for story, test in TESTS.items():
            box = story_box(state, self._boxes, story)
            if not self.seen[story] and box is not None and test(box):
                self.seen[story] = True
                new.append(story)
        return new

    @property
    def missing_stories(self) -> list[str]:
        """The stories that have not happened yet."""
        return [story for story, seen in self.seen.items() if not seen]


class StoryDirector:
    """Launches the queues and makes the stories happen."""

    def __init__(
        self,
        embedded: EmbeddedFleet,
        state: Callable[[], FleetState],
        *,
        follow_advice: bool = False,
    ) -> None:
        """Prepare the stories.

        Args:
            embedded: The running boxes.
            state: Reads the fleet's newest state.
            follow_advice: Remove the files that fill the disk once rgt has reported them; otherwise
                the user has to.
        """
        self._embedded = embedded
        self._state = state
        self._follow_advice = follow_advice
        self._bundle: AgentBundle | None = None

    async def run(self) -> None:
        """Launch everything and direct the stories until all of them have happened."""
        self._bundle = await asyncio.to_thread(build_agent)
        async with asyncio.TaskGroup() as group:
            for box in self._embedded.boxes:
                # In parallel: a story that hangs must not delay the others.
                group.create_task(self._run_story(box), name=f"story:{box.name}")

    async def _run_story(self, box: DemoBox) -> None:
        try:
            await self._launch_queue(box, prepared=False)
            if box.story == "resume":
                await self._preempt_box(box)
            elif box.story == "inodes":
                await self._fill_disk(box)
        except (BoxError, CommandFailed, OSError) as error:
            # A box that a person has destroyed in the demo is no error.
            if box.name not in self._embedded.stopped:
                log.error("%s: %s", box.name, error)

    async def _launch_queue(self, box: DemoBox, *, prepared: bool) -> None:
        assert self._bundle is not None
        spec = self._embedded.find_box_spec(box.name)
        assert spec.python is not None
        said = await launch_queue(spec, box, self._bundle, spec.python, prepared=prepared)
        log.info("%s: launched %s", box.name, said.strip())

    async def _preempt_box(self, box: DemoBox) -> None:
        preempt_at_step = 130
        await self._wait_until(box, lambda state: _newest_step(state) >= preempt_at_step)
        grace_seconds = 4.0
        log.info(
            "%s: the platform takes the box back: SIGTERM, and %g s later SIGKILL",
            box.name,
            grace_seconds,
        )
        spec = self._embedded.find_box_spec(box.name)
        # [p]: the pattern must not match the shell that runs this command.
        await run_shell(spec, "pkill -TERM -f '[p]ython.* -m rgt_train' || true")
        await asyncio.sleep(grace_seconds)
        await self._embedded.cut_power(box.name)
        away_seconds = 6.0
        await asyncio.sleep(away_seconds)
        await self._embedded.boot_again(box.name)
        log.info("%s: back; the identical launch command", box.name)
        await self._launch_queue(box, prepared=True)

    async def _fill_disk(self, box: DemoBox) -> None:
        fill_at_step = 60
        await self._wait_until(box, lambda state: _newest_step(state) >= fill_at_step)
        spec = self._embedded.find_box_spec(box.name)
        log.info("%s: an evaluation writes one file per sample into %s", box.name, FILL_DIR)
        script = FILL_SCRIPT.format(dir=FILL_DIR)
        # Detached from the connection, as a careless script would be.
        start = (
            "cat > /root/dump_samples.sh; nohup sh /root/dump_samples.sh >/dev/null 2>&1 "
            "</dev/null &"
        )
        await run_shell(spec, start, script.encode())
        if self._follow_advice:
            await self._wait_until(box, out_of_inodes)
            log.info("%s: following the advice by hand", box.name)
            await run_shell(spec, f"rm -rf -- {FILL_DIR}")

    async def _wait_until(self, box: DemoBox, test: Callable[[BoxState], bool]) -> None:
        poll_seconds = 0.25
        while True:
            state = self._state().find_box(box.name)
            if state is not None and test(state):
                return
            await asyncio.sleep(poll_seconds)


def _newest_step(state: BoxState) -> int:
    return max((run.step or 0 for run in state.runs), default=0)
