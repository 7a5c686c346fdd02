"""The checks of ``rgt doctor`` on a box: the connection, the agent, and one sample."""

from __future__ import annotations

import asyncio
import shlex
import socket
import time
from collections.abc import Callable, Sequence

import asyncssh
import msgspec

from rgt_tui.cli.set_up.doctor_here import BOX_CHECKS, Finding, Status, box_id
from rgt_tui.fleet import elsewhere, provider_word, says
from rgt_tui.gate import GENERIC, SAID, recognised, recognised_words
from rgt_tui.model import BoxSpec, Disk, Profile, Sample, clean, cleaned
from rgt_tui.profiles import byte_pct, inode_pct, load_profile, pct, watched_mounts
from rgt_tui.ssh import (
    AuthFailed,
    BoxError,
    CommandFailed,
    Deadline,
    Deployed,
    DeployFailed,
    Elsewhere,
    Host,
    HostKeyRefused,
    NoCommands,
    NoPython,
    Policy,
    build_agent,
    connect,
    deploy,
    hops,
    record,
    run,
)

Judged = tuple[Status, str, str]
"""Status, finding, and advice."""

FULL_PCT, NEARLY_PCT = 97.0, 90.0
SKEW_WARN_S, SKEW_FAIL_S = 5.0, 300.0


WHERE = (
    r"n='\(" + r"\|".join(sorted({name for names in SAID.values() for name in names})) + r"\)'; "
    r"{ tr '\000' '\n' </proc/1/environ; env; } 2>/dev/null | sed -n 's/^'$n'=..*/\1/p'; "
    "cut -d' ' -f2 /proc/mounts 2>/dev/null; true"
)
"""Prints the names of variables that a platform sets, without values, and all mount points."""
LONG_UNWATCHED_S = 3600.0
"""Shorter than this without a client, a recorder may belong to another computer that will
reconnect."""
MOST_NAMED = 5


def judge(
    sample: Sample, spec: BoxSpec, named: tuple[str, ...], before: float, after: float
) -> dict[str, Judged]:
    """Return the results of the checks of a sample.

    Args:
        sample: The sample.
        spec: The box.
        named: The expected mount points.
        before: Client clock when the sample was requested.
        after: Client clock when it arrived.
    """
    return {
        "disk": disk(sample.disks),
        "clock-skew": clock(sample.at, before, after),
        "mounts": mounts(sample.disks, named, bool(spec.mounts)),
        "gpu": gpu(sample),
    }


def disk(disks: tuple[Disk, ...]) -> Judged:
    """Check the bytes and inodes of every writable file system."""
    shares = [
        (share, f"{disk.mount} {pct(share)} of its {what}")
        for disk in disks
        if not disk.read_only and disk.error is None
        for share, what in ((byte_pct(disk), "bytes"), (inode_pct(disk), "inodes"))
        if share is not None
    ]
    if not shares:
        return Status.WARN, "no file system could be read", ""
    worst, text = max(shares)
    if worst >= FULL_PCT:
        return (
            Status.FAIL,
            f"{text} used",
            "free some space, or enlarge it: a checkpoint would not fit",
        )
    if worst >= NEARLY_PCT:
        return Status.WARN, f"{text} used", "free some space before the next run"
    return Status.OK, f"fullest: {text} used", ""


def clock(at: float, before: float, after: float) -> Judged:
    """Check the box's clock, as precisely as the round trip allows."""
    if before <= at <= after:
        skew = 0.0
    else:
        skew = at - (before if at < before else after)
    if abs(skew) >= SKEW_FAIL_S:
        return (
            Status.FAIL,
            f"{skew:+.0f} s against this machine",
            "set the box's clock (chrony), or this machine's",
        )
    if abs(skew) >= SKEW_WARN_S:
        return (
            Status.WARN,
            f"{skew:+.1f} s against this machine",
            "rgt corrects ages for it; TLS and Slurm do not",
        )
    return Status.OK, f"{skew:+.1f} s", ""


def mounts(disks: tuple[Disk, ...], named: tuple[str, ...], by_person: bool) -> Judged:
    """Check the expected mount points; a missing one fails only if the fleet file names it."""
    found = {disk.mount: disk for disk in disks}
    missing = [mount for mount in named if mount not in found or found[mount].error is not None]
    if not missing:
        return Status.OK, ", ".join(named) or "none named", ""
    reasons = [
        f"{mount}: {found[mount].error if mount in found else 'not there'}" for mount in missing
    ]
    if by_person:
        return Status.FAIL, "; ".join(reasons), "mount it, or correct `mounts` for this box"
    return (
        Status.WARN,
        "; ".join(reasons),
        "the profile expects it; set `mounts` to the mount points that exist",
    )


def gpu(sample: Sample) -> Judged:
    """Check the GPUs."""
    if not sample.gpus:
        return Status.WARN, "no GPU found", "is this a box without a GPU, or is the driver missing?"
    broken = [f"GPU {gpu.index}: {gpu.error}" for gpu in sample.gpus if gpu.error]
    names = ", ".join(dict.fromkeys(gpu.name for gpu in sample.gpus))
    text = f"{len(sample.gpus)} × {names}" + (
        " (replayed from a trace)" if sample.gpus[0].sim else ""
    )
    if broken:
        return (
            Status.FAIL,
            f"{text}; {'; '.join(broken)}",
            "run `nvidia-smi` on the box; it may need a reset, or you may need another box",
        )
    return Status.OK, text, ""


STEP_SECONDS = 10.0
COMMAND_SECONDS = 20.0
MOST_BYTES = 64 << 10
LIST_RECORDERS = ("record", "--list")
BEGIN = "RGT-BEGIN"
"""Printed before a command's output, to skip the output of the login shell's start-up files."""


class BoxDoctor:
    """Checks one box.

    Args:
        spec: The box.
        policy: How to treat an unknown host key.
    """

    def __init__(self, spec: BoxSpec, policy: Policy) -> None:
        self._spec = spec
        self._policy = policy
        self._profile: Profile = load_profile(spec.profile)
        self._found: dict[str, Finding] = {}
        self._elsewhere: Elsewhere | None = None

    async def check(self, seconds: float) -> list[Finding]:
        """Return a finding for each check, in their order, within `seconds`."""
        try:
            async with Deadline(seconds):
                await self._examine()
        except TimeoutError:
            self._broke_off(f"no result within {seconds:g} s", "try again with a longer --timeout")
        except (asyncssh.Error, OSError, BoxError) as error:
            self._broke_off(
                str(error) or type(error).__name__, "try again; the connection was lost here"
            )
        except Exception as error:  # a failure on one box must not hide the findings of the others
            self._broke_off(
                f"rgt: {type(error).__name__}: {error}",
                "this is a bug in rgt; please report this line",
            )
        for check in BOX_CHECKS:
            if check not in self._found:
                self._put(check, Status.SKIP, "not checked: an earlier check failed")
        return [self._found[check] for check in BOX_CHECKS]

    def _broke_off(self, text: str, advice: str) -> None:
        first = next((check for check in BOX_CHECKS if check not in self._found), None)
        if first is not None:
            self._put(first, Status.FAIL, text, advice)

    def _put(self, check: str, status: Status, text: str, advice: str = "") -> None:
        name = self._spec.name
        self._found[check] = Finding(box_id(name, check), status, clean(text), advice, box=name)

    async def _examine(self) -> None:
        try:
            steps = await asyncio.to_thread(hops, self._spec, self._profile.launch.user)
        except BoxError as error:
            self._put(
                "dns",
                Status.FAIL,
                str(error),
                "correct the entry in ssh_config or in the fleet file",
            )
            return
        if not await self._way(steps[0].host, alone=len(steps) == 1):
            return
        connection = await self._login()
        if connection is None:
            return
        try:
            deployed = await self._agent(connection)
            if deployed is not None:
                await self._sample(connection, deployed)
                await self._tmux(connection)
                await self._recorders(connection, deployed)
                await self._platform(connection)
        finally:
            connection.abort()

    async def _way(self, first: Host, *, alone: bool) -> bool:
        """Check name and port of the first hop; return whether to continue.

        `alone`: The first hop is the box itself.
        """
        if first.proxy_command is not None:
            for check in ("dns", "tcp"):
                self._put(check, Status.SKIP, "reached through a ProxyCommand")
            return True
        where = f"{first.host}:{first.port}"
        try:
            async with asyncio.timeout(STEP_SECONDS):
                found = await asyncio.get_running_loop().getaddrinfo(
                    first.host, first.port, type=socket.SOCK_STREAM
                )
        except (OSError, TimeoutError, UnicodeError) as error:
            words = getattr(error, "strerror", None) or f"no answer within {STEP_SECONDS:g} s"
            advice = "check the spelling; an alias needs an entry in ~/.ssh/config"
            return await self._not_there("dns", f"{first.host}: {words}", advice, alone)
        self._put("dns", Status.OK, f"{first.host} is {found[0][4][0]}")
        try:
            async with asyncio.timeout(STEP_SECONDS):
                await self._banner(first, where)
        except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
            words = getattr(error, "strerror", None) or f"no answer within {STEP_SECONDS:g} s"
            advice = "is the box running, and is this still its port? See the provider's console"
            return await self._not_there("tcp", f"{where}: {words}", advice, alone)
        return True

    async def _not_there(self, check: str, text: str, advice: str, alone: bool) -> bool:
        """Record that the described address fails.

        Return whether the provider reports another one.
        """
        meter = await provider_word(self._spec) if alone else None
        self._elsewhere = None if meter is None else elsewhere(self._spec, meter)
        if meter is None or self._elsewhere is None:
            told = "" if meter is None or meter.error is not None else f"; {says(meter)}"
            self._put(check, Status.FAIL, text + told, advice)
            return False
        place = f"{self._elsewhere.host}:{self._elsewhere.port}"
        text = f"{text}; {meter.source} reports that it is now at {place}"
        self._put(
            check,
            Status.WARN,
            text,
            "rgt finds it there; put that host and port into the fleet file",
        )
        if check == "dns":
            self._put("tcp", Status.SKIP, f"trying {place} instead")
        return True

    async def _banner(self, first: Host, where: str) -> None:
        reader, writer = await asyncio.open_connection(first.host, first.port)
        try:
            greeting = (await reader.read(255)).decode("ascii", "replace").splitlines()
        finally:
            writer.transport.abort()
        if greeting and greeting[0].startswith("SSH-"):
            self._put("tcp", Status.OK, f"{where} answers: {greeting[0]}")
        else:
            advice = "something else listens there; check the SSH port"
            self._put("tcp", Status.WARN, f"{where} does not answer as an SSH server", advice)

    async def _login(self) -> asyncssh.SSHClientConnection | None:
        try:
            connection = await connect(
                self._spec,
                policy=self._policy,
                default_user=self._profile.launch.user,
                elsewhere=self._elsewhere,
            )
        except HostKeyRefused as error:
            advice = "compare the fingerprint with the provider's; for a first contact: --accept-new-host-key"
            self._put("hostkey", Status.FAIL, str(error), advice)
            return None
        except AuthFailed as error:
            self._put("hostkey", Status.OK, "as known")
            self._put(
                "login",
                Status.FAIL,
                str(error),
                "put your public key on the box, or name the right `identity`",
            )
            return None
        except BoxError as error:
            self._put("hostkey", Status.SKIP, "the login did not get that far")
            self._put("login", Status.FAIL, str(error), "try `ssh -v` on the same host")
            return None
        self._put("hostkey", Status.OK, "as known")
        self._put("login", Status.OK, f"as {connection.get_extra_info('username')}")
        return connection

    async def _agent(self, connection: asyncssh.SSHClientConnection) -> Deployed | None:
        pythons = (self._spec.python,) if self._spec.python else self._profile.overrides.python
        try:
            deployed = await deploy(connection, build_agent(), pythons)
        except NoPython as error:
            self._put(
                "python",
                Status.FAIL,
                str(error),
                "install Python 3.8 or newer, or name one with `python`",
            )
            return None
        except NoCommands as error:
            advice = "use the platform's full SSH (a public port) instead of its proxied one"
            self._put("python", Status.FAIL, str(error), advice)
            return None
        except DeployFailed as error:
            self._put(
                "agent",
                Status.FAIL,
                str(error),
                "free some bytes and inodes in ~/.cache, or make it writable",
            )
            return None
        version = await self._text(
            connection, f"{shlex.quote(deployed.python)} -V 2>&1", "asking for its version"
        )
        self._put("python", Status.OK, f"{deployed.python}: {version.strip()[:200]}")
        self._put("agent", Status.OK, deployed.path)
        return deployed

    async def _sample(self, connection: asyncssh.SSHClientConnection, deployed: Deployed) -> None:
        named = self._spec.mounts or tuple(
            mount for tier in self._profile.tiers for mount in tier.mounts
        )
        words = [
            word
            for mount in dict.fromkeys((*watched_mounts(self._spec.mounts, self._profile), "~"))
            for word in ("--mount", mount)
        ]
        if self._spec.gpu_trace:
            words += ["--gpu-trace", self._spec.gpu_trace]
        before = time.time()
        try:
            done = await run(
                connection,
                deployed.command("sample", *words),
                seconds=COMMAND_SECONDS,
                name="taking a sample",
            )
            after = time.time()
            # start-up files of the shell may print before it
            line = done.out.strip().rpartition(b"\n")[2]
            sample = cleaned(msgspec.json.decode(record(line) or line, type=Sample))
        except CommandFailed as error:
            advice = "a disk or network file system there may hang; does ~/.bashrc print anything?"
            self._put("agent", Status.FAIL, str(error), advice)
            return
        except (msgspec.DecodeError, RecursionError) as error:
            said = done.words or error
            self._put(
                "agent",
                Status.FAIL,
                f"the agent sends no sample: {said}",
                "please report this line",
            )
            return
        for check, (status, text, advice) in judge(
            sample, self._spec, named, before, after
        ).items():
            self._put(check, status, text, advice)

    async def _recorders(
        self, connection: asyncssh.SSHClientConnection, deployed: Deployed
    ) -> None:
        command = deployed.command(*LIST_RECORDERS)
        done = await run(
            connection,
            command,
            seconds=COMMAND_SECONDS,
            most_bytes=MOST_BYTES,
            name="listing its recorders",
        )
        try:
            lines = filter(None, map(record, done.out.splitlines()))
            found = [cleaned(msgspec.json.decode(line, type=ListedRecorder)) for line in lines]
        except (msgspec.DecodeError, RecursionError) as error:
            self._put(
                "recorders",
                Status.WARN,
                f"the agent sends no list: {error}",
                "please report this line",
            )
            return
        if done.status != 0:
            text = f"the agent sends no list: {done.words or f'exit status {done.status}'}"
            self._put("recorders", Status.WARN, text, "please report this line")
            return
        status, text, advice = judge_recorders(found, deployed.command)
        self._put("recorders", status, text, advice)

    async def _platform(self, connection: asyncssh.SSHClientConnection) -> None:
        if self._spec.profile != GENERIC or self._spec.untrusted:
            self._put("platform", Status.OK, f"{self._profile.name}, as in the fleet file")
            return
        told = (await self._text(connection, WHERE, "detecting the platform")).splitlines()
        found = recognised(told, told)
        if found is None:
            self._put("platform", Status.OK, "the platform was not detected")
            return
        self._put("platform", Status.WARN, recognised_words(*found), f'set profile = "{found[0]}"')

    async def _tmux(self, connection: asyncssh.SSHClientConnection) -> None:
        script = "for t in tmux setsid sbatch; do command -v $t >/dev/null && echo $t; done; true"
        found = (await self._text(connection, script, "looking for tmux")).split()
        if "tmux" in found:
            self._put("tmux", Status.OK, f"there: {', '.join(found)}")
        elif found:
            text = f"no tmux; detached work uses {found[0]}"
            self._put("tmux", Status.WARN, text, "install tmux to attach to a running queue")
        else:
            text = "neither tmux nor setsid: processes end with the connection"
            self._put("tmux", Status.FAIL, text, "install tmux")

    @staticmethod
    async def _text(connection: asyncssh.SSHClientConnection, command: str, name: str) -> str:
        """Return the output of an sh command, without what any login shell prints before it."""
        command = f"sh -c {shlex.quote(f'echo; echo {BEGIN}; {command}')}"
        done = await run(
            connection, command, seconds=COMMAND_SECONDS, most_bytes=MOST_BYTES, name=name
        )
        return done.out.decode("utf-8", "replace").rpartition(f"{BEGIN}\n")[2]


# Recorders on a box that are no longer needed, and the commands that stop them.


class ListedRecorder(msgspec.Struct, frozen=True):
    """One line of the agent's ``record --list``."""

    pid: int
    folder: str
    own: bool = False
    watched: bool = False
    armed: bool = False
    jobs: int = 0
    unwatched_s: float | None = None

    @property
    def is_needed(self) -> bool:
        """Whether it is or may be in use; if its last client is unknown, it counts as needed."""
        in_use = self.own or self.watched or self.armed or self.jobs > 0
        return in_use or self.unwatched_s is None or self.unwatched_s < LONG_UNWATCHED_S


def judge_recorders(
    found: Sequence[ListedRecorder], command: Callable[..., str]
) -> tuple[Status, str, str]:
    """Return status, text and advice.

    Args:
        found: The recorders on the box.
        command: Returns the shell command that runs the agent there with these arguments.
    """
    unneeded = [recorder for recorder in found if not recorder.is_needed]
    if not unneeded:
        return Status.OK, f"{len(found)} running", ""
    named = [
        f"{recorder.folder} (pid {recorder.pid}, no client for {(recorder.unwatched_s or 0) / 3600:.0f} h)"
        for recorder in unneeded[:MOST_NAMED]
    ]
    ends = [
        f"RGT_STATE_DIR={shlex.quote(recorder.folder)} {command('record', '--stop')}"
        for recorder in unneeded[:MOST_NAMED]
    ]
    more = len(unneeded) - len(named)
    if more:
        named.append(f"{more} more")
    text = f"{len(unneeded)} of {len(found)} not needed: {'; '.join(named)}"
    return Status.WARN, text, f"to stop them, on the box: {' ; '.join(ends)}"
