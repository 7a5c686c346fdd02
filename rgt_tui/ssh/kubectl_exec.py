"""A pod's container as a box: every command is a ``kubectl exec`` of its own.

kubectl ends with status 0 also when its stream was cut (github.com/kubernetes/kubectl issue 1208),
and its exit status does not show whether the command, the shell or the connection failed. So each
command runs in a small shell script that marks its begin and its end on standard error, with a
token that nothing else knows. Without the mark of the end, the stream was cut, and whether the
command still runs is unknown.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import secrets
import shutil
from collections.abc import Mapping
from typing import Any, cast

import asyncssh

from rgt_tui.language import translate
from rgt_tui.model import BoxSpec, KubectlRoute, clean_text
from rgt_tui.ssh.box_transport import BoxChannel, ConfigError, SessionFactory, Unreachable
from rgt_tui.ssh.login_shell import set_plain_commands
from rgt_tui.ssh.pod_lookup import describe_kubectl_error, find_pod

_MARK = b"\x1eRGT-"
_SCRIPT = (
    'printf \'\\036RGT-%s-begin %s\\n\' "$1" "$$" >&2; trap : INT; sh -c "$2"; s=$?; '
    'printf \'\\036RGT-%s-end %s\\n\' "$1" "$s" >&2; exit "$s"'
)
"""For ``sh``: its arguments are the token and the command. The trap keeps it alive for the end's
mark when the command is interrupted; the command itself does not inherit it.
"""
_EXIT_LINE = re.compile(rb"(?:^|\n)command terminated with exit code (\d{1,3})\s*$")
"""kubectl's last line if the remote command failed."""


def find_kubectl(spec: BoxSpec, env: Mapping[str, str] = os.environ) -> str:
    """Return the path of kubectl.

    Raises:
        ConfigError: it is not installed here.
    """
    found = shutil.which("kubectl", path=env.get("PATH"))
    if found is None:
        raise ConfigError(
            translate(
                "boxes.{name}.kubectl: there is no kubectl in PATH on this machine; install it: "
                "https://kubernetes.io/docs/tasks/tools/",
                name=spec.name,
            )
        )
    return found


def exec_words(route: KubectlRoute, pod: str, *, terminal: bool = False) -> tuple[str, ...]:
    """Return ``kubectl exec`` up to the command; `terminal` = for a person at a terminal."""
    options = ["--stdin", "--tty"][: 1 + terminal]
    if route.container:
        options.append(f"--container={route.container}")
    return ("kubectl", "exec", *options, *route.cluster_options, pod, "--")


class KubectlChannel:
    """One running ``kubectl exec``. Its output reaches the session from the begin's mark on.

    Args:
        transport: The connection that it belongs to.
        make: Makes the session, once the command has begun.
        token: Of its marks.
    """

    def __init__(self, transport: KubectlTransport, make: SessionFactory, token: str) -> None:
        self.begun: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        """Whether the command has begun; False = kubectl ended before."""
        self.error_text = b""
        """The end of standard error, kubectl's own lines included."""
        self.remote_pid = ""
        self._transport, self._make = transport, make
        self._begin_mark = _MARK + token.encode() + b"-begin "
        self._end_mark = _MARK + token.encode() + b"-end "
        self._session: asyncssh.SSHClientSession[bytes] | None = None
        self._process: asyncio.SubprocessTransport | None = None
        self._info: dict[str, Any] = {}
        self._early: list[bytes] = []
        self._held = b""
        """Standard error that may be the beginning of a mark."""
        self._status: int | None = None
        self._given_up = self._ended = False

    def attach_process(self, process: asyncio.SubprocessTransport) -> None:
        """Keep the process that was started."""
        self._process = process

    # What the process sends.

    def receive_output(self, data: bytes) -> None:
        """Deliver output, or keep it until the command's session exists."""
        if self._session is None:
            self._early.append(data)
        else:
            self._session.data_received(data, None)

    def receive_errors(self, data: bytes) -> None:
        """Deliver standard error without the marks."""
        kept = 4096
        self.error_text = (self.error_text + data)[-kept:]
        self._held += data
        if self._session is None:
            _, mark, rest = self._held.partition(self._begin_mark)
            pid, line_feed, rest = rest.partition(b"\n")
            if not mark or not line_feed:
                return
            self.remote_pid, self._held = pid.decode("ascii", "replace"), rest
            self._begin_session()
        if self._status is not None:
            self._held = b""  # kubectl's own closing line
            return
        before, mark, rest = self._held.partition(self._end_mark)
        if mark:
            status, line_feed, _ = rest.partition(b"\n")
            if line_feed and status.isdigit():
                self._status = int(status)
                self._held = b""
            else:
                self._held = mark + rest
        else:
            at = self._held.rfind(_MARK[:1])
            if at < 0 or not self._end_mark.startswith(self._held[at:]):
                at = len(before)
            before, self._held = before[:at], before[at:]
        self._deliver_errors(before)

    def _begin_session(self) -> None:
        self._session = self._make()
        self._session.connection_made(cast("asyncssh.SSHClientChannel[bytes]", self))
        self._session.session_started()
        for data in self._early:
            self._session.data_received(data, None)
        self._early.clear()
        if not self.begun.done():
            self.begun.set_result(True)

    def _deliver_errors(self, data: bytes) -> None:
        if data and self._session is not None:
            self._session.data_received(data, asyncssh.EXTENDED_DATA_STDERR)

    def finish_process(self) -> None:
        """Report the end to the session: the process has ended and its output has arrived."""
        self._ended = True
        if self._session is None:
            if not self.begun.done():
                self.begun.set_result(False)
            return
        if self._status is None:
            # The script itself may have been killed, with the container's other processes.
            found = _EXIT_LINE.search(self.error_text)
            if found is not None:
                self._status = int(found[1])
        self._deliver_errors(self._held)
        error: Exception | None = None
        if self._status is not None:
            self._session.exit_status_received(self._status)
        elif not self._given_up:
            error = self._transport.lose_stream(self.error_text)
        self._session.eof_received()
        self._session.connection_lost(error)
        self._transport.forget_channel(self)

    def pause_writing(self) -> None:
        """Forward that kubectl reads no more for now."""
        if self._session is not None:
            self._session.pause_writing()

    def resume_writing(self) -> None:
        """Forward that kubectl reads again."""
        if self._session is not None:
            self._session.resume_writing()

    # What the session wants, see `BoxChannel`.

    def _find_pipe(self, number: int) -> Any:
        if self._process is None or self._ended:
            raise BrokenPipeError("the command has ended")
        return self._process.get_pipe_transport(number)

    def write(self, data: bytes) -> None:
        """Send to its standard input.

        Raises:
            BrokenPipeError: it no longer reads.
        """
        pipe = self._find_pipe(0)
        if pipe.is_closing():
            raise BrokenPipeError("the command no longer reads its input")
        pipe.write(data)

    def write_eof(self) -> None:
        """Close its standard input."""
        self._find_pipe(0).write_eof()

    def pause_reading(self) -> None:
        """Stop delivering its output."""
        with contextlib.suppress(BrokenPipeError):
            self._find_pipe(1).pause_reading()

    def resume_reading(self) -> None:
        """Deliver its output again."""
        with contextlib.suppress(BrokenPipeError):
            self._find_pipe(1).resume_reading()

    def send_signal(self, signal: str) -> None:
        """Send the command's processes a signal, by a command of its own."""
        if self.remote_pid.isdecimal():
            self._transport.send_kill(signal, self.remote_pid)

    def close(self) -> None:
        """Close its input, so that it ends; kill kubectl if it does not."""
        self._given_up = True
        ending_s = 5.0
        with contextlib.suppress(OSError):
            self.write_eof()
        if not self._ended:
            asyncio.get_running_loop().call_later(ending_s, self.abort)

    def abort(self) -> None:
        """Kill kubectl. What it runs sees the end of its input."""
        self._given_up = True
        if self._process is not None and not self._ended:
            self._process.close()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return a note."""
        return self._info.get(name, default)

    def set_extra_info(self, **kwargs: Any) -> None:
        """Keep a note."""
        self._info.update(kwargs)


class _ExecProtocol(asyncio.SubprocessProtocol):
    """Forwards a process's events to its channel."""

    def __init__(self, channel: KubectlChannel) -> None:
        self._channel = channel

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the process."""
        self._channel.attach_process(cast("asyncio.SubprocessTransport", transport))

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Deliver output."""
        if fd == 1:
            self._channel.receive_output(data)
        else:
            self._channel.receive_errors(data)

    def pause_writing(self) -> None:
        """Forward it."""
        self._channel.pause_writing()

    def resume_writing(self) -> None:
        """Forward it."""
        self._channel.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Report the end: the process has ended, and all pipes are closed."""
        self._channel.finish_process()


class KubectlTransport:
    """The way to one container of one pod; see `BoxTransport`.

    It holds no connection: each command is its own. It counts as closed once the stream of any
        command
    was cut, because the pod may have been replaced: the next connection looks it up again.

    Args:
        spec: The box.
        pod: Name of its pod.
        program: Path of kubectl.
        env: Environment of kubectl.
        label: The pod and its place, for people.
    """

    def __init__(
        self, spec: BoxSpec, pod: str, program: str, env: Mapping[str, str], label: str
    ) -> None:
        assert spec.kubectl is not None
        self._spec, self._route, self._pod = spec, spec.kubectl, pod
        self._program, self._env = program, dict(env)
        self._channels: set[KubectlChannel] = set()
        self._closed = False
        # A new window of tmux has the environment of its server, in which it may be missing.
        kept = [f"KUBECONFIG={env[name]}" for name in ("KUBECONFIG",) if name in env]
        self._info: dict[str, Any] = {
            "rgt_transport": "kubectl", "rgt_label": label, "rgt_pod": pod,
            "rgt_terminal": ("env", *kept, *exec_words(self._route, pod, terminal=True)),
        }  # fmt: skip

    async def create_session(
        self,
        session_factory: SessionFactory,
        command: str | None,
        *,
        encoding: None = None,
        window: int = 0,
        term_type: str | None = None,
        term_size: tuple[int, int, int, int] = (0, 0, 0, 0),
        begin_within_s: float = 30.0,
    ) -> tuple[BoxChannel, Any]:
        """Start a command in the container, and wait until it has begun.

        Raises:
            BoxError: kubectl or the cluster refuses it, or it did not begin in time.
        """
        del encoding, window, term_type, term_size  # a pipe is bounded by itself
        token = secrets.token_hex(8)
        channel = KubectlChannel(self, session_factory, token)
        # Bytes that are no text arrive here as bytes: names of files on the box may be any.
        text = os.fsdecode(command or "exec sh")
        words = (*exec_words(self._route, self._pod)[1:], "sh", "-c", _SCRIPT, "rgt", token, text)
        self._channels.add(channel)
        try:
            await asyncio.get_running_loop().subprocess_exec(
                lambda: _ExecProtocol(channel),
                self._program,
                *words,
                env=self._env,
                start_new_session=True,
            )
            async with asyncio.timeout(begin_within_s):
                has_begun = await channel.begun
        except TimeoutError:
            channel.abort()
            raise Unreachable(
                translate(
                    "kubectl: no command begins in {info} within {begin_within_s:g} s: the cluster "
                    "or the pod's node does not answer",
                    info=self._info["rgt_label"],
                    begin_within_s=begin_within_s,
                )
            ) from None
        except OSError as error:
            raise ConfigError(
                translate(
                    "{program} cannot be started: {strerror}",
                    program=self._program,
                    strerror=error.strerror,
                )
            ) from error
        except BaseException:
            channel.abort()
            raise
        if not has_begun:
            self.forget_channel(channel)
            raise describe_kubectl_error(
                self._spec, channel.error_text.decode(errors="replace"), self._pod
            )
        return channel, None

    def send_kill(self, signal: str, pid: str) -> None:
        """Send a signal to a command's process group, without waiting."""
        script = 'kill -s "$1" -- "-$2" 2>/dev/null || kill -s "$1" "$2"'
        words = (*exec_words(self._route, self._pod)[1:], "sh", "-c", script, "rgt", signal, pid)
        none = asyncio.subprocess.DEVNULL
        started = asyncio.create_subprocess_exec(
            self._program, *words, env=self._env, stdin=none, stdout=none, stderr=none,
            start_new_session=True,
        )  # fmt: skip
        task = asyncio.ensure_future(started)
        # Its result is not needed, but a task without a reference may be collected.
        self._info["rgt_signal"] = task

    def lose_stream(self, error_text: bytes) -> Unreachable:
        """Close it because a stream was cut; return the error."""
        self._closed = True
        lines = error_text.decode(errors="replace").strip().splitlines()
        said = ""
        if lines and lines[-1].startswith(("error: ", "Error from", "Unable to")):
            said = f" ({clean_text(lines[-1])[:200]})"
        return Unreachable(
            translate(
                "kubectl: {info}: the stream was cut{said}", info=self._info["rgt_label"], said=said
            )
        )

    def forget_channel(self, channel: KubectlChannel) -> None:
        """Forget a command that has ended."""
        self._channels.discard(channel)

    def is_closed(self) -> bool:
        """Whether it was closed, or a stream was cut."""
        return self._closed

    def abort(self) -> None:
        """End every command's kubectl."""
        self._closed = True
        for channel in tuple(self._channels):
            channel.abort()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return a note."""
        return self._info.get(name, default)

    def set_extra_info(self, **kwargs: Any) -> None:
        """Keep a note."""
        self._info.update(kwargs)


async def open_pod(spec: BoxSpec, env: Mapping[str, str] = os.environ) -> KubectlTransport:
    """Find the box's pod, and return the way into it.

    Raises:
        ConfigError: kubectl is missing, or the description does not fit the cluster.
        AuthFailed: the cluster refuses the login, or what rgt needs.
        Unreachable: the cluster does not answer, or no such pod runs; the message says its state.
    """
    if spec.untrusted:
        raise ConfigError(
            translate(
                "{name} is not connected: the fleet file is not trusted (rgt trust), and rgt runs "
                "kubectl only for a trusted one",
                name=spec.name,
            )
        )
    program = find_kubectl(spec, env)
    pod, label = await find_pod(spec, program, env)
    opened = KubectlTransport(spec, pod, program, env, label)
    # There is no login shell whose start-up files could print, and the begin is marked already.
    set_plain_commands(opened, True)
    return opened
