"""The sinks that alerts are sent to.

Addresses are secrets: anyone who knows a topic or a hook can use it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol, TypeVar
from urllib.parse import urlsplit, urlunsplit

import msgspec
from rgt_wire import USER_AGENT

from rgt_tui.language import translate
from rgt_tui.model import AlertEvent, Secret, SinkSettings, clean_text

MAX_SECRET_BYTES = 64 << 10


class SinkError(Exception):
    """A message was not delivered.

    The text gives reason and remedy, and no address, key or response body.
    """


class AlertSink(Protocol):
    """A destination that notifies a person."""

    async def send(self, event: AlertEvent) -> None:
        """Deliver one message.

        Raises:
            SinkError: it was not delivered, as far as can be known.
        """
        ...


class _Described:
    def __init__(self, settings: SinkSettings, env: Mapping[str, str]) -> None:
        self._settings = settings
        self._env = env

    def _build_headers(self) -> dict[str, str]:
        headers = {"Content-Type": "application/json"}
        if self._settings.token_env is not None:
            headers["Authorization"] = (
                f"Bearer {from_env(self._settings.token_env, self._env).reveal()}"
            )
        return headers


def from_env(name: str, env: Mapping[str, str]) -> Secret:
    """Return the secret of an environment variable.

    Raises:
        SinkError: it is not set.
    """
    value = env.get(name, "").strip()
    if not value:
        raise SinkError(
            translate(
                "the environment variable {name} is not set: export it before rgt is started",
                name=name,
            )
        )
    return Secret(value)


def read_sink_address(settings: SinkSettings, env: Mapping[str, str]) -> Secret:
    """Return the sink's address. It is read at each use, so that it can change while rgt runs.

    Raises:
        SinkError: the variable is not set, or the file cannot be read.
    """
    if settings.url_env is not None:
        return from_env(settings.url_env, env)
    if settings.url_file is None:
        raise SinkError(translate("has neither url_env nor url_file"))
    path = Path(settings.url_file).expanduser()
    try:
        with path.open(encoding="utf-8") as file:
            # A limit, because the path may be wrong: a log or a device would be read without end.
            text = file.read(MAX_SECRET_BYTES).strip()
    except (OSError, UnicodeDecodeError) as error:
        if isinstance(error, OSError):
            why = error.strerror
        else:
            why = translate("not UTF-8 text")
        raise SinkError(translate("cannot read {path}: {why}", path=path, why=why)) from None
    if not text:
        raise SinkError(translate("{path} is empty: write the address into it", path=path))
    return Secret(text)


def sink_host(url: str) -> str:
    """Return the host of an address, the only part that may be shown."""
    try:
        return urlsplit(url).hostname or translate("its server")
    except ValueError:
        return translate("its server")


def message_body(event: AlertEvent) -> str:
    """Return the message body for a person: the reading, and what to do."""
    if event.advice:
        return f"{event.text}\n→ {event.advice}"
    return event.text


CHATTY = ("httpx", "httpcore", "urllib3", "requests", "apprise")
"""Loggers that write addresses. A topic or a hook is as secret as a password and must not be
logged.
"""


def silence_loggers() -> None:
    """Silence those loggers below the level critical."""
    for name in CHATTY:
        logging.getLogger(name).setLevel(logging.CRITICAL)


async def post_body(url: str, body: bytes, headers: Mapping[str, str], *, timeout_s: float) -> None:
    """Send `body` once.

    Raises:
        SinkError: no connection, no answer in time, or a status other than 2xx. It names only the
            host.
    """
    import httpx

    silence_loggers()
    host = sink_host(url)
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise SinkError(translate("its address is not an http or https address"))
    try:
        # Redirects are not followed: they would send message and token to a host that the user did
        # not name.
        async with httpx.AsyncClient(timeout=timeout_s, follow_redirects=False) as client:
            sent = {"User-Agent": USER_AGENT, **headers}
            status = (await client.post(url, content=body, headers=sent)).status_code
    except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:
        # `from None`: the chained exception contains the request, and with it the address.
        raise SinkError(
            translate("{host} cannot be reached ({name})", host=host, name=type(error).__name__)
        ) from None
    if not 200 <= status < 300:
        hint = {
            401: translate(": check its token"),
            403: translate(": check its token"),
            404: translate(": check its address"),
        }.get(status, "")
        raise SinkError(
            translate("{host} answered {status}{hint}", host=host, status=status, hint=hint)
        )


PRIORITIES = {"error": 4, "warn": 3, "info": 2}
TAGS = {"error": "rotating_light", "warn": "warning", "info": "white_check_mark"}


class NtfySink(_Described):
    """Publishes JSON to the server of the topic's address, which allows any character in titles."""

    async def send(self, event: AlertEvent) -> None:
        """Publish one message; see `AlertSink.send`."""
        server, topic = split_topic_url(read_sink_address(self._settings, self._env).reveal())
        body = {
            "topic": topic,
            "title": event.title,
            "message": message_body(event),
            "priority": PRIORITIES[event.level],
            "tags": [TAGS[event.level]],
        }
        await post_body(
            server,
            msgspec.json.encode(body),
            self._build_headers(),
            timeout_s=self._settings.timeout_s,
        )


def split_topic_url(url: str) -> tuple[str, str]:
    """Return the server's address and the topic of ``https://ntfy.sh/topic``.

    Raises:
        SinkError: the address has no topic.
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        raise SinkError(translate("its address is not an http or https address")) from None
    root, _, topic = parts.path.rstrip("/").rpartition("/")
    if not topic:
        raise SinkError(
            translate("its address names no topic: it must be like https://ntfy.sh/your-topic")
        )
    # ntfy takes JSON at its root only; at the topic's address the body would be the message itself.
    return urlunsplit((parts.scheme, parts.netloc, root + "/", "", "")), topic


class WebhookSink(_Described):
    """Sends the fields of `AlertEvent`; a token goes into the header ``Authorization: Bearer``."""

    async def send(self, event: AlertEvent) -> None:
        """Send one event; see `AlertSink.send`."""
        url = read_sink_address(self._settings, self._env).reveal()
        await post_body(
            url,
            msgspec.json.encode(event),
            self._build_headers(),
            timeout_s=self._settings.timeout_s,
        )


class CommandSink(_Described):
    """Runs a program in its own session; after the time limit its whole process group is killed."""

    async def send(self, event: AlertEvent) -> None:
        """Run the program once; see `AlertSink.send`. An exit status other than 0 is a failure."""
        argv = self._settings.argv
        try:
            process = await asyncio.create_subprocess_exec(
                *argv,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE,
                env=dict(self._env),
                start_new_session=True,
            )
        except OSError as error:
            raise SinkError(
                translate("cannot start {argv}: {strerror}", argv=argv[0], strerror=error.strerror)
            ) from None
        try:
            async with asyncio.timeout(self._settings.timeout_s):
                words = await _write_message(process, msgspec.json.encode(event) + b"\n")
        except TimeoutError:
            limit = f"{self._settings.timeout_s:g} s"
            raise SinkError(
                translate(
                    "{argv} did not exit within {limit} and was killed", argv=argv[0], limit=limit
                )
            ) from None
        finally:
            # Also after success: a program may leave children that hold its pipes.
            await _kill_process_group(process)
        if process.returncode:
            max_words = 200
            last = clean_text(words.decode(errors="replace").strip().rpartition("\n")[2])[
                :max_words
            ]
            raise SinkError(
                translate(
                    "{argv} ended with {returncode}", argv=argv[0], returncode=process.returncode
                )
                + (f": {last}" if last else "")
            )


async def _write_message(process: asyncio.subprocess.Process, message: bytes) -> bytes:
    """Write the message to stdin.

    Return the last 4 KiB of stderr, which is read until it closes.
    """
    assert process.stdin is not None
    assert process.stderr is not None
    process.stdin.write(message)
    # A program need not read its input.
    with contextlib.suppress(ConnectionError):
        await process.stdin.drain()
    process.stdin.close()
    kept = b""
    # Read until its end, or a full pipe would block the program; only the end is kept.
    while part := await process.stderr.read(4096):
        kept = (kept + part)[-4096:]
    await process.wait()
    return kept


async def _kill_process_group(process: asyncio.subprocess.Process) -> None:
    """Kill the program's process group, including processes it started, and reap it."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()


BELL = b"\a"
URGENCY = {"error": "critical", "warn": "normal", "info": "low"}
NOTIFY_777 = ("foot", "rxvt", "vte")
"""Terminals that support OSC 777 but not OSC 9, by the prefix of TERM."""
_APPLE = (
    "-e", "on run argv",
    "-e", "display notification (item 2 of argv) with title (item 1 of argv)",
    "-e", "end run",
)  # fmt: skip

Write = Callable[[bytes], None]


def write_tty(data: bytes) -> None:
    """Write to the controlling terminal in one call, so no other escape sequence is split."""
    try:
        # Not stdout, which Textual owns; O_NONBLOCK, as a stopped terminal (Ctrl-S) would block
        # rgt.
        handle = os.open("/dev/tty", os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK)
    except OSError as error:
        raise SinkError(
            translate(
                "rgt runs without a terminal ({strerror}); use another sink",
                strerror=error.strerror,
            )
        ) from None
    try:
        os.write(handle, data)
    except OSError as error:
        raise SinkError(
            translate("the terminal cannot be written to: {strerror}", strerror=error.strerror)
        ) from None
    finally:
        os.close(handle)


class BellSink:
    """Rings the terminal's bell, except when an alert is resolved."""

    def __init__(
        self, settings: SinkSettings, env: Mapping[str, str], write: Write = write_tty
    ) -> None:
        self._write = write

    async def send(self, event: AlertEvent) -> None:
        """Ring once; see `AlertSink.send`."""
        if event.what != "resolved":
            self._write(BELL)


class DesktopSink(_Described):
    """A desktop notification.

    Uses notify-send or osascript on a local desktop, otherwise the terminal.
    """

    def __init__(
        self,
        settings: SinkSettings,
        env: Mapping[str, str],
        write: Write = write_tty,
        platform: str = sys.platform,
    ) -> None:
        super().__init__(settings, env)
        self._write = write
        self._platform = platform

    async def send(self, event: AlertEvent) -> None:
        """Show one notification; see `AlertSink.send`."""
        program = self._find_notifier(event)
        if program is None:
            self._write(notification_sequence(event, self._env))
            return
        settings = msgspec.structs.replace(self._settings, argv=program)
        await CommandSink(settings, self._env).send(event)

    def _find_notifier(self, event: AlertEvent) -> tuple[str, ...] | None:
        env = self._env
        if "SSH_CONNECTION" in env or "SSH_TTY" in env:
            return None  # over SSH the desktop is at the other end of the terminal
        title, text = clean_text(event.title), _shorten_text(event.text)
        path = env.get("PATH")
        if self._platform == "darwin" and (found := shutil.which("osascript", path=path)):
            return (found, *_APPLE, title, text)
        desktop = any(env.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
        if desktop and (found := shutil.which("notify-send", path=path)):
            return (found, "--app-name=rgt", f"--urgency={URGENCY[event.level]}", "--", title, text)
        return None


def notification_sequence(event: AlertEvent, env: Mapping[str, str]) -> bytes:
    """Return the escape sequence for a desktop notification: OSC 777 or OSC 9, wrapped for tmux."""
    # A semicolon separates the fields of these sequences.
    title, text = clean_text(event.title).replace(";", ","), _shorten_text(event.text)
    if env.get("TERM", "").startswith(NOTIFY_777):
        made = f"\x1b]777;notify;{title};{text}\x1b\\"
    else:
        made = f"\x1b]9;{title}: {text}\x07"
    # tmux passes on only wrapped sequences, with every ESC doubled.
    if env.get("TMUX"):
        made = "\x1bPtmux;" + made.replace("\x1b", "\x1b\x1b") + "\x1b\\"
    return made.encode("utf-8", errors="replace")


def _shorten_text(text: str) -> str:
    line = clean_text(" · ".join(text.splitlines()))
    max_text = 400
    if len(line) <= max_text:
        return line
    return line[: max_text - 1] + "…"


T = TypeVar("T")


class ThreadRunner:
    """Runs one call at a time in a daemon thread, which is abandoned if the call does not return.

    The event loop's own pool would not do: its threads are joined at exit, and a few that hang
    block it.
    """

    def __init__(self) -> None:
        self._running: asyncio.Future[None] | None = None
        self._given_up = False

    async def run_in_thread(self, work: Callable[[], T], seconds: float) -> T:
        """Return the result of `work`.

        Args:
            work: Called in a thread. It continues there after a timeout.
            seconds: Time limit, including the wait for an earlier call that still hangs.

        Raises:
            TimeoutError: the limit passed; raised at once if an earlier abandoned call still hangs.
            Exception: raised by `work`.
        """
        if self._given_up:
            raise TimeoutError(translate("an earlier call still hangs"))
        found: list[T] = []
        failed: list[BaseException] = []

        def run() -> None:
            try:
                found.append(work())
            except BaseException as error:  # re-raised for the caller
                failed.append(error)

        try:
            async with asyncio.timeout(seconds):
                # A loop: several may wait for the same call, and only one can be next.
                while self._running is not None:
                    await asyncio.shield(self._running)
                # Shielded: a thread cannot be cancelled, and its end must still be noted.
                await asyncio.shield(self._start_thread(run))
        except TimeoutError:
            self._given_up = self._running is not None
            raise
        if failed:
            raise failed[0]
        return found[0]

    def _start_thread(self, run: Callable[[], None]) -> asyncio.Future[None]:
        """Run it in a thread; return a future that is done when it ends."""
        loop = asyncio.get_running_loop()
        running = self._running = loop.create_future()

        def mark_ended() -> None:
            self._running, self._given_up = None, False
            running.set_result(None)

        def run_then_mark() -> None:
            run()
            with contextlib.suppress(RuntimeError):  # the loop is closed: there is no waiter left
                loop.call_soon_threadsafe(mark_ended)

        threading.Thread(target=run_then_mark, name="aside", daemon=True).start()
        return running


TYPES = {"error": "failure", "warn": "warning", "info": "success"}


class AppriseSink(_Described):
    """One or more Apprise addresses, one per line.

    Its calls block, some forever, so they run in a thread.
    """

    def __init__(self, settings: SinkSettings, env: Mapping[str, str]) -> None:
        super().__init__(settings, env)
        self._aside = ThreadRunner()

    async def send(self, event: AlertEvent) -> None:
        """Notify all addresses; see `AlertSink.send`."""
        addresses = read_sink_address(self._settings, self._env)
        seconds = self._settings.timeout_s
        try:
            await self._aside.run_in_thread(lambda: _notify_with_apprise(addresses, event), seconds)
        except TimeoutError:
            raise SinkError(
                translate(
                    "a service of Apprise has not answered within {seconds:g} s and is still "
                    "being waited for",
                    seconds=seconds,
                )
            ) from None


def _notify_with_apprise(addresses: Secret, event: AlertEvent) -> None:
    import apprise

    silence_loggers()
    asset = apprise.AppriseAsset()
    asset.http_redirects = False  # for the same reason as in `post_body`
    notifier = apprise.Apprise(asset=asset)
    for place, line in enumerate(addresses.reveal().split(), 1):
        if not notifier.add(line):
            raise SinkError(
                translate("Apprise does not recognize address number {place}", place=place)
            )
    try:
        done = notifier.notify(
            body=message_body(event), title=event.title, notify_type=TYPES[event.level]
        )
    except Exception as error:  # plug-ins raise anything, and the text may contain the address
        raise SinkError(translate("Apprise failed ({name})", name=type(error).__name__)) from None
    if not done:
        raise SinkError(
            translate(
                "Apprise could not deliver to all of its {notifier} addresses",
                notifier=len(notifier),
            )
        )


MAKERS: dict[str, Callable[[SinkSettings, Mapping[str, str]], AlertSink]] = {
    "apprise": AppriseSink,
    "bell": BellSink,
    "command": CommandSink,
    "desktop": DesktopSink,
    "ntfy": NtfySink,
    "webhook": WebhookSink,
}


def build_sink(settings: SinkSettings, env: Mapping[str, str]) -> AlertSink:
    """Return the sink. Nothing is sent, and no secret is read yet."""
    return MAKERS[settings.kind](settings, env)
