"""The checks of ``rgt doctor`` on a box: the connection, the agent, and one sample."""

from __future__ import annotations

import asyncio
import shlex
import socket
import time
from collections.abc import Callable, Sequence

import asyncssh
import msgspec

from rgt_tui.cli.set_up.doctor_here import BOX_CHECKS, DoctorFinding, DoctorStatus, box_id
from rgt_tui.fleet import find_moved_address, meter_text, provider_word
from rgt_tui.gate import GENERIC, SAID, describe_recognised, recognised
from rgt_tui.language import translate
from rgt_tui.model import (
    BoxSpec,
    DiskReading,
    FrozenStruct,
    Profile,
    Sample,
    clean_decoded,
    clean_text,
    pct,
)
from rgt_tui.profiles import byte_pct, inode_pct, load_profile, watched_mounts
from rgt_tui.ssh import (
    ASK_LOGIN_SHELL,
    GUARD,
    LOGIN_TRACE_COMMAND,
    NO_AGENT,
    TRACE_COMMAND,
    AuthFailed,
    BoxError,
    BoxTransport,
    CommandFailed,
    CommandNotRun,
    DeployedAgent,
    DeployFailed,
    HostKeyPolicy,
    HostKeyRefused,
    MovedAddress,
    NoCommands,
    NoPython,
    PausableDeadline,
    RestrictedShell,
    SshHost,
    StartUpCost,
    StartUpTrace,
    build_agent,
    connect_box,
    deploy_agent,
    extract_record,
    find_replacing_line,
    quote_words,
    read_trace,
    reads_commands_from_stdin,
    resolve_hops,
    run_command,
    start_up_cost,
)

Judged = tuple[DoctorStatus, str, str]
"""Status, finding, and advice."""

# Higher than the alerts' 80 and 95%: those warn early of a disk that fills, this is one reading.
FULL_PCT, NEARLY_PCT = 97.0, 90.0
# MUNGE, by which Slurm authenticates, refuses credentials that differ by more than 300 s.
SKEW_WARN_S, SKEW_FAIL_S = 5.0, 300.0


WHERE = (
    r"n='\(" + r"\|".join(sorted({name for names in SAID.values() for name in names})) + r"\)'; "
    # PID 1's environment, because sshd does not pass a container's variables to a login.
    r"{ tr '\000' '\n' </proc/1/environ; env; } 2>/dev/null | sed -n 's/^'$n'=..*/\1/p'; "
    "cut -d' ' -f2 /proc/mounts 2>/dev/null; true"
)
"""Prints the names of variables that a platform sets, without values, and all mount points."""
LONG_UNWATCHED_S = 3600.0
"""Shorter than this without a client, a recorder may belong to another computer that will
reconnect."""


def judge_sample(
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
        "disk": check_disks(sample.disks),
        "clock-skew": check_clock(sample.at, before, after),
        "mounts": check_mounts(sample.disks, named, bool(spec.mounts)),
        "gpu": check_gpus(sample),
    }


def check_disks(disks: tuple[DiskReading, ...]) -> Judged:
    """Check the bytes and inodes of every writable file system."""
    shares = [
        (
            share,
            translate(
                "{mount} {share} of its {what}", mount=disk.mount, share=pct(share), what=what
            ),
        )
        for disk in disks
        # A read-only file system may be full, and nothing is written to it.
        if not disk.read_only and disk.error is None
        for share, what in ((byte_pct(disk), "bytes"), (inode_pct(disk), "inodes"))
        if share is not None
    ]
    if not shares:
        return DoctorStatus.WARN, translate("no file system could be read"), ""
    # Only the fullest: one line per check.
    worst, text = max(shares)
    used = translate("{words} used", words=text)
    if worst >= FULL_PCT:
        return (
            DoctorStatus.FAIL,
            used,
            translate("free some space, or enlarge it: a checkpoint would not fit"),
        )
    if worst >= NEARLY_PCT:
        return DoctorStatus.WARN, used, translate("free some space before the next run")
    return DoctorStatus.OK, translate("fullest: {words} used", words=text), ""


def check_clock(at: float, before: float, after: float) -> Judged:
    """Check the box's clock, as precisely as the round trip allows."""
    # The sample was taken somewhere between: within that, no difference is known.
    if before <= at <= after:
        skew = 0.0
    else:
        skew = at - (before if at < before else after)
    if abs(skew) >= SKEW_FAIL_S:
        return (
            DoctorStatus.FAIL,
            translate("{skew:+.0f} s against this machine", skew=skew),
            translate("set the box's clock (chrony), or this machine's"),
        )
    if abs(skew) >= SKEW_WARN_S:
        return (
            DoctorStatus.WARN,
            translate("{skew:+.1f} s against this machine", skew=skew),
            translate("rgt corrects ages for it; TLS and Slurm do not"),
        )
    return DoctorStatus.OK, f"{skew:+.1f} s", ""


def check_mounts(disks: tuple[DiskReading, ...], named: tuple[str, ...], by_person: bool) -> Judged:
    """Check the expected mount points; a missing one fails only if the fleet file names it."""
    found = {disk.mount: disk for disk in disks}
    missing = [mount for mount in named if mount not in found or found[mount].error is not None]
    if not missing:
        return DoctorStatus.OK, ", ".join(named) or translate("none named"), ""
    reasons = [
        f"{mount}: {found[mount].error if mount in found else 'not there'}" for mount in missing
    ]
    # The person's list is a promise; the profile's is what such machines usually have.
    if by_person:
        return (
            DoctorStatus.FAIL,
            "; ".join(reasons),
            translate("mount it, or correct `mounts` for this box"),
        )
    return (
        DoctorStatus.WARN,
        "; ".join(reasons),
        translate("the profile expects it; set `mounts` to the mount points that exist"),
    )


def check_gpus(sample: Sample) -> Judged:
    """Check the GPUs."""
    if not sample.gpus:
        return (
            DoctorStatus.WARN,
            translate("no GPU found"),
            translate("is this a box without a GPU, or is the driver missing?"),
        )
    broken = [f"GPU {gpu.index}: {gpu.error}" for gpu in sample.gpus if gpu.error]
    names = ", ".join(dict.fromkeys(gpu.name for gpu in sample.gpus))
    # Marked, so that a replayed trace is not taken for hardware.
    text = f"{len(sample.gpus)} × {names}" + (
        translate(" (replayed from a trace)") if sample.gpus[0].sim else ""
    )
    if broken:
        return (
            DoctorStatus.FAIL,
            f"{text}; {'; '.join(broken)}",
            translate(
                "run `nvidia-smi` on the box; it may need a reset, or you may need another box"
            ),
        )
    return DoctorStatus.OK, text, ""


# One step of the connection; COMMAND_SECONDS also covers a slow disk there.
STEP_SECONDS = 10.0
COMMAND_SECONDS = 20.0
MOST_BYTES = 64 << 10
LIST_RECORDERS = ("record", "--list")


class BoxDoctor:
    """Checks one box.

    Args:
        spec: The box.
        policy: How to treat an unknown host key.
    """

    def __init__(self, spec: BoxSpec, policy: HostKeyPolicy) -> None:
        self._spec = spec
        self._policy = policy
        self._profile: Profile = load_profile(spec.profile)
        # By check. Checks without an entry at the end are reported as not done.
        self._found: dict[str, DoctorFinding] = {}
        self._elsewhere: MovedAddress | None = None
        self._cost = StartUpCost()

    async def run_checks(self, seconds: float) -> list[DoctorFinding]:
        """Return a finding for each check, in their order, within `seconds`."""
        try:
            # Pausable: the time in which a person answers a prompt does not count.
            async with PausableDeadline(seconds):
                await self._run_steps()
        except TimeoutError:
            advice = translate("try again with a longer --timeout")
            # Known by then even if the check itself did not end: name the cause, not the time
            # limit.
            if self._cost.is_slow:
                advice = translate(
                    "the start-up files of the login shell {cost_text} for each command; {advice}",
                    cost_text=self._cost.cost_text,
                    advice=advice,
                )
            self._broke_off(translate("no result within {seconds:g} s", seconds=seconds), advice)
        except (asyncssh.Error, OSError, BoxError) as error:
            self._broke_off(
                str(error) or type(error).__name__,
                translate("try again; the connection was lost here"),
            )
        except Exception as error:  # a failure on one box must not hide the findings of the others
            self._broke_off(
                f"rgt: {type(error).__name__}: {error}",
                translate("this is a bug in rgt; please report this line"),
            )
        for check in BOX_CHECKS:
            if check not in self._found:
                self._add_finding(
                    check, DoctorStatus.SKIP, translate("not checked: an earlier check failed")
                )
        return [self._found[check] for check in BOX_CHECKS]

    def _broke_off(self, text: str, advice: str) -> None:
        # The first check without a result is the one that was running.
        first = next((check for check in BOX_CHECKS if check not in self._found), None)
        if first is not None:
            self._add_finding(first, DoctorStatus.FAIL, text, advice)

    def _add_finding(self, check: str, status: DoctorStatus, text: str, advice: str = "") -> None:
        name = self._spec.name
        self._found[check] = DoctorFinding(
            box_id(name, check), status, clean_text(text), advice, box=name
        )

    async def _run_steps(self) -> None:
        # A pod has no name, port or host key of its own to check.
        if self._spec.kubectl is None:
            connection = await self._check_way()
        else:
            connection = await self._check_pod()
        if connection is None:
            return
        try:
            deployed = await self._deploy_agent(connection)
            if deployed is not None:
                await self._check_sample(connection, deployed)
                await self._check_tmux(connection)
                await self._check_recorders(connection, deployed)
                await self._check_platform(connection)
        finally:
            # Not closed in order: a box that hangs would not answer that, either.
            connection.abort()

    async def _check_pod(self) -> BoxTransport | None:
        """Check that kubectl finds the pod and may run commands in it; the errors say what to do."""
        for check in ("dns", "tcp", "hostkey"):
            self._add_finding(
                check, DoctorStatus.SKIP, translate("reached with kubectl exec, not with SSH")
            )
        try:
            connection = await connect_box(self._spec)
            await run_command(connection, "true", name="the first command")
        except BoxError as error:
            self._add_finding(
                "login", DoctorStatus.FAIL, str(error), translate("then run rgt doctor again")
            )
            return None
        label = connection.get_extra_info("rgt_label")
        self._add_finding(
            "login",
            DoctorStatus.OK,
            translate("kubectl exec runs commands in {label}", label=label),
        )
        return connection

    async def _check_way(self) -> BoxTransport | None:
        """Check name, port, host key and login of a box reached by SSH."""
        try:
            steps = await asyncio.to_thread(resolve_hops, self._spec, self._profile.launch.user)
        except BoxError as error:
            self._add_finding(
                "dns",
                DoctorStatus.FAIL,
                str(error),
                translate("correct the entry in ssh_config or in the fleet file"),
            )
            return None
        # Only the first hop can be reached from here; the others are checked by the login.
        if not await self._check_first_hop(steps[0].host, alone=len(steps) == 1):
            return None
        return await self._check_login()

    async def _check_first_hop(self, first: SshHost, *, alone: bool) -> bool:
        """Check name and port of the first hop; return whether to continue.

        `alone`: The first hop is the box itself.
        """
        # The name may only mean something to that command.
        if first.proxy_command is not None:
            for check in ("dns", "tcp"):
                self._add_finding(
                    check, DoctorStatus.SKIP, translate("reached through a ProxyCommand")
                )
            return True
        where = f"{first.host}:{first.port}"
        try:
            async with asyncio.timeout(STEP_SECONDS):
                # As the connection will resolve it, hosts file and search domains included.
                found = await asyncio.get_running_loop().getaddrinfo(
                    first.host, first.port, type=socket.SOCK_STREAM
                )
        # UnicodeError: the IDNA codec refuses names with empty or too long labels.
        except (OSError, TimeoutError, UnicodeError) as error:
            words = getattr(error, "strerror", None) or translate(
                "no answer within {step_seconds:g} s", step_seconds=STEP_SECONDS
            )
            advice = translate("check the spelling; an alias needs an entry in ~/.ssh/config")
            return await self._add_address_failure("dns", f"{first.host}: {words}", advice, alone)
        text = translate("{host} is {address}", host=first.host, address=found[0][4][0])
        self._add_finding("dns", DoctorStatus.OK, text)
        try:
            async with asyncio.timeout(STEP_SECONDS):
                await self._check_banner(first, where)
        except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
            words = getattr(error, "strerror", None) or translate(
                "no answer within {step_seconds:g} s", step_seconds=STEP_SECONDS
            )
            advice = translate(
                "is the box running, and is this still its port? See the provider's console"
            )
            return await self._add_address_failure("tcp", f"{where}: {words}", advice, alone)
        return True

    async def _add_address_failure(self, check: str, text: str, advice: str, alone: bool) -> bool:
        """Record that the described address fails.

        Return whether the provider reports another one.
        """
        # A jump host is not the machine that the provider knows.
        if alone:
            meter = await provider_word(self._spec)
        else:
            meter = None
        if meter is None:
            self._elsewhere = None
        else:
            self._elsewhere = find_moved_address(self._spec, meter)
        if meter is None or self._elsewhere is None:
            # Without an answer of the provider there is nothing to add.
            if meter is None or meter.error is not None:
                told = ""
            else:
                told = f"; {meter_text(meter)}"
            self._add_finding(check, DoctorStatus.FAIL, text + told, advice)
            return False
        place = f"{self._elsewhere.host}:{self._elsewhere.port}"
        text = translate(
            "{words}; {source} reports that it is now at {place}",
            words=text,
            source=meter.source,
            place=place,
        )
        self._add_finding(
            check,
            DoctorStatus.WARN,
            text,
            translate("rgt finds it there; put that host and port into the fleet file"),
        )
        # The port of a name that does not resolve was not tried.
        if check == "dns":
            self._add_finding(
                "tcp", DoctorStatus.SKIP, translate("trying {place} instead", place=place)
            )
        return True

    async def _check_banner(self, first: SshHost, where: str) -> None:
        reader, writer = await asyncio.open_connection(first.host, first.port)
        try:
            # RFC 4253: the identification has at most 255 characters.
            greeting = (await reader.read(255)).decode("ascii", "replace").splitlines()
        finally:
            # sshd counts a connection that lingers unauthenticated (MaxStartups).
            writer.transport.abort()
        if greeting and greeting[0].startswith("SSH-"):
            text = translate("{where} answers: {greeting}", where=where, greeting=greeting[0])
            self._add_finding("tcp", DoctorStatus.OK, text)
        else:
            advice = translate("something else listens there; check the SSH port")
            self._add_finding(
                "tcp",
                DoctorStatus.WARN,
                translate("{where} does not answer as an SSH server", where=where),
                advice,
            )

    async def _check_login(self) -> BoxTransport | None:
        try:
            connection = await connect_box(
                self._spec,
                policy=self._policy,
                default_user=self._profile.launch.user,
                elsewhere=self._elsewhere,
            )
        except HostKeyRefused as error:
            advice = translate(
                "compare the fingerprint with the provider's; for a first contact: "
                "--accept-new-host-key"
            )
            self._add_finding("hostkey", DoctorStatus.FAIL, str(error), advice)
            return None
        except AuthFailed as error:
            # sshd proves its key before it asks for a login, so a refused login means that the key
            # was right.
            self._add_finding("hostkey", DoctorStatus.OK, translate("as known"))
            advice = translate("put your public key on the box, or name the right `identity`")
            if self._profile.launch.key_step:
                advice += f"; {self._profile.name}: {self._profile.launch.key_step}"
            self._add_finding("login", DoctorStatus.FAIL, str(error), advice)
            return None
        except BoxError as error:
            self._add_finding(
                "hostkey", DoctorStatus.SKIP, translate("the login did not get that far")
            )
            self._add_finding(
                "login", DoctorStatus.FAIL, str(error), translate("try `ssh -v` on the same host")
            )
            return None
        self._add_finding("hostkey", DoctorStatus.OK, translate("as known"))
        login = translate("as {user}", user=connection.get_extra_info("username"))
        self._add_finding("login", DoctorStatus.OK, login)
        return connection

    async def _deploy_agent(self, connection: BoxTransport) -> DeployedAgent | None:
        # A Python named in the fleet file is the only one tried; otherwise those of the platform.
        pythons = (self._spec.python,) if self._spec.python else self._profile.overrides.python
        try:
            deployed = await deploy_agent(connection, build_agent(), pythons)
        except (AuthFailed, CommandFailed, NoCommands) as error:
            self._add_finding("shell", DoctorStatus.FAIL, str(error), _advise_on_shell(error))
            return None
        except NoPython as error:
            await self._check_shell(connection)
            status, advice = (
                DoctorStatus.FAIL,
                translate("install Python 3.8 or newer, or name one with `python`"),
            )
            # python = "none" is the person's choice, not a fault.
            if self._spec.python == NO_AGENT:
                status, advice = DoctorStatus.WARN, ""
            self._add_finding("python", status, str(error), advice)
            return None
        except DeployFailed as error:
            await self._check_shell(connection)
            self._add_finding(
                "agent",
                DoctorStatus.FAIL,
                str(error),
                translate("free some bytes and inodes in ~/.cache, or make it writable"),
            )
            return None
        await self._check_shell(connection)
        version = await self._run_sh(
            connection,
            # Python 2 prints its version on stderr.
            f"{shlex.quote(deployed.python)} -V 2>&1",
            translate("asking for its version"),
        )
        self._add_finding("python", DoctorStatus.OK, f"{deployed.python}: {version.strip()[:200]}")
        self._add_finding("agent", DoctorStatus.OK, deployed.path)
        return deployed

    async def _check_shell(self, connection: BoxTransport) -> None:
        """Name the start-up file that hinders commands, if any does."""
        # Known from the connection itself, which had to work around it.
        replaced = reads_commands_from_stdin(connection)
        self._cost = start_up_cost(connection) or self._cost
        if not replaced and not self._cost.cost_text:
            self._add_finding("shell", DoctorStatus.OK, translate("the login shell runs commands"))
            return
        command = TRACE_COMMAND
        # bash reads other start-up files for a login shell than for a command.
        if not replaced:
            asked = await run_command(connection, ASK_LOGIN_SHELL, name="the kind of login shell")
            if asked.out.strip() == b"RGT-LOGIN":
                command = LOGIN_TRACE_COMMAND
        trace = await _trace_start_up_files(connection, command)
        found, lines = [], []
        if replaced:
            found.append(translate("end or replace the login shell, or read its input"))
            # The shell may read the files of a login, though it is not asked to.
            if trace.ending is None:
                trace = await _trace_start_up_files(connection, LOGIN_TRACE_COMMAND)
            lines.append(trace.ending or await find_replacing_line(connection))
        elif self._cost.cost_text:
            found.append(
                translate("{cost_text} before each command", cost_text=self._cost.cost_text)
            )
            if self._cost.is_slow:
                lines.append(trace.slowest)
            else:
                lines.append(trace.loudest)
        named = [line.place_text for line in lines if line is not None]
        text = translate("its start-up files {found}", found=" and ".join(found))
        if named:
            text += f": {', '.join(named)}"
        elif replaced:
            text = translate(
                "a forced command of sshd (ForceCommand, command=) or a start-up file replaces the "
                "login shell"
            )
        self._add_finding(
            "shell",
            DoctorStatus.WARN,
            text,
            translate("put {guard} in front of that line on the box", guard=GUARD),
        )

    async def _check_sample(self, connection: BoxTransport, deployed: DeployedAgent) -> None:
        # Only what the profile calls a tier: other mounts of a platform may be missing.
        named = self._spec.mounts or tuple(
            mount for tier in self._profile.tiers for mount in tier.mounts
        )
        words = [
            word
            # The home directory, because the agent is installed there.
            for mount in dict.fromkeys((*watched_mounts(self._spec.mounts, self._profile), "~"))
            for word in ("--mount", mount)
        ]
        if self._spec.gpu_trace:
            words += ["--gpu-trace", self._spec.gpu_trace]
        # The wall clock: it is compared with the box's.
        before = time.time()
        try:
            done = await run_command(
                connection,
                deployed.build_command("sample", *words),
                seconds=COMMAND_SECONDS,
                name="taking a sample",
            )
            after = time.time()
            # a wrapper around Python may print before it
            line = done.out.strip().rpartition(b"\n")[2]
            sample = clean_decoded(msgspec.json.decode(extract_record(line) or line, type=Sample))
        except CommandFailed as error:
            advice = translate(
                "a disk or network file system there may hang; does ~/.bashrc print anything?"
            )
            self._add_finding("agent", DoctorStatus.FAIL, str(error), advice)
            return
        # RecursionError: JSON that is nested deeply, which a hostile box can send.
        except (msgspec.DecodeError, RecursionError) as error:
            said = done.words or error
            self._add_finding(
                "agent",
                DoctorStatus.FAIL,
                translate("the agent sends no sample: {said}", said=said),
                translate("please report this line"),
            )
            return
        for check, (status, text, advice) in judge_sample(
            sample, self._spec, named, before, after
        ).items():
            self._add_finding(check, status, text, advice)

    async def _check_recorders(self, connection: BoxTransport, deployed: DeployedAgent) -> None:
        command = deployed.build_command(*LIST_RECORDERS)
        done = await run_command(
            connection,
            command,
            seconds=COMMAND_SECONDS,
            most_bytes=MOST_BYTES,
            name="listing its recorders",
        )
        try:
            # A login shell's greeting may be mixed in.
            lines = filter(None, map(extract_record, done.out.splitlines()))
            found = [
                clean_decoded(msgspec.json.decode(line, type=ListedRecorder)) for line in lines
            ]
        except (msgspec.DecodeError, RecursionError) as error:
            self._add_finding(
                "recorders",
                DoctorStatus.WARN,
                translate("the agent sends no list: {error}", error=error),
                translate("please report this line"),
            )
            return
        # After the parsing: an old agent without this verb prints no list and fails.
        if done.status != 0:
            text = translate(
                "the agent sends no list: {words}", words=done.words or f"exit status {done.status}"
            )
            self._add_finding(
                "recorders", DoctorStatus.WARN, text, translate("please report this line")
            )
            return
        status, text, advice = judge_recorders(found, deployed.build_command)
        self._add_finding("recorders", status, text, advice)

    async def _check_platform(self, connection: BoxTransport) -> None:
        # A named profile is not doubted; an untrusted file cannot be corrected by the reader.
        if self._spec.profile != GENERIC or self._spec.untrusted:
            self._add_finding(
                "platform",
                DoctorStatus.OK,
                translate("{name}, as in the fleet file", name=self._profile.name),
            )
            return
        told = (
            await self._run_sh(connection, WHERE, translate("detecting the platform"))
        ).splitlines()
        # The same lines twice: variables and mount points come mixed.
        found = recognised(told, told)
        if found is None:
            self._add_finding(
                "platform", DoctorStatus.OK, translate("the platform was not detected")
            )
            return
        self._add_finding(
            "platform",
            DoctorStatus.WARN,
            describe_recognised(*found),
            translate('set profile = "{found}"', found=found[0]),
        )

    async def _check_tmux(self, connection: BoxTransport) -> None:
        # In the order in which rgt would use them.
        script = "for t in tmux setsid sbatch; do command -v $t >/dev/null && echo $t; done; true"
        found = (await self._run_sh(connection, script, translate("looking for tmux"))).split()
        if "tmux" in found:
            text = translate("there: {programs}", programs=", ".join(found))
            self._add_finding("tmux", DoctorStatus.OK, text)
        # Work survives without tmux, but a person cannot attach to it.
        elif found:
            text = translate("no tmux; detached work uses {found}", found=found[0])
            self._add_finding(
                "tmux",
                DoctorStatus.WARN,
                text,
                translate("install tmux to attach to a running queue"),
            )
        else:
            text = translate("neither tmux nor setsid: processes end with the connection")
            self._add_finding("tmux", DoctorStatus.FAIL, text, translate("install tmux"))

    @staticmethod
    async def _run_sh(connection: BoxTransport, command: str, name: str) -> str:
        """Return the output of an sh command."""
        # The login shell may be fish or tcsh, which read such scripts differently.
        command = quote_words("sh", "-c", command)
        done = await run_command(
            connection, command, seconds=COMMAND_SECONDS, most_bytes=MOST_BYTES, name=name
        )
        return done.out.decode("utf-8", "replace")


# Recorders on a box that are no longer needed, and the commands that stop them.


def _advise_on_shell(error: AuthFailed | CommandFailed | NoCommands) -> str:
    """Return the next step where the login shell runs no commands."""
    if isinstance(error, AuthFailed):
        return translate("change the password there")
    if isinstance(error, CommandFailed):
        return translate("put {guard} in front of the slow line there", guard=GUARD)
    if isinstance(error, RestrictedShell):
        return translate(
            "rgt needs a shell that runs any command: ask for one, or name another login "
            "(`user` in the fleet file)"
        )
    if not isinstance(error, CommandNotRun):
        return translate("use the platform's full SSH (a public port) instead of its proxied one")
    # The error already says where the guard belongs.
    if GUARD in str(error):
        return ""
    return translate(
        "if sshd runs a fixed command for this key or user (ForceCommand, command=), use another "
        "one; if a start-up file ends or replaces the shell, put {guard} in front of that line; "
        "on a platform with proxied SSH, use its full SSH (a public port)",
        guard=GUARD,
    )


async def _trace_start_up_files(connection: BoxTransport, command: str) -> StartUpTrace:
    done = await run_command(connection, command, name="tracing the start-up files")
    _, _, home = done.out.partition(b"RGT-HOME ")
    return read_trace(
        done.out.decode("utf-8", "replace"), home.partition(b"\n")[0].decode("utf-8", "replace")
    )


class ListedRecorder(FrozenStruct):
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
        # An armed recorder may have no client for days: it is the one that parks the box.
        in_use = self.own or self.watched or self.armed or self.jobs > 0
        return in_use or self.unwatched_s is None or self.unwatched_s < LONG_UNWATCHED_S


def judge_recorders(
    found: Sequence[ListedRecorder], command: Callable[..., str]
) -> tuple[DoctorStatus, str, str]:
    """Return status, text and advice.

    Args:
        found: The recorders on the box.
        command: Returns the shell command that runs the agent there with these arguments.
    """
    unneeded = [recorder for recorder in found if not recorder.is_needed]
    if not unneeded:
        return DoctorStatus.OK, translate("{count} running", count=len(found)), ""
    most_named = 5
    named = [
        translate(
            "{folder} (pid {pid}, no client for {unwatched_s:.0f} h)",
            folder=recorder.folder,
            pid=recorder.pid,
            unwatched_s=(recorder.unwatched_s or 0) / 3600,
        )
        for recorder in unneeded[:most_named]
    ]
    ends = [
        f"RGT_STATE_DIR={shlex.quote(recorder.folder)} {command('record', '--stop')}"
        for recorder in unneeded[:most_named]
    ]
    more = len(unneeded) - len(named)
    if more:
        named.append(translate("{count} more", count=more))
    text = translate(
        "{unneeded} of {found} not needed: {named}",
        unneeded=len(unneeded),
        found=len(found),
        named="; ".join(named),
    )
    return (
        DoctorStatus.WARN,
        text,
        translate("to stop them, on the box: {ends}", ends=" ; ".join(ends)),
    )
