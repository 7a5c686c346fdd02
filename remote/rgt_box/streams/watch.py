"""The main loop of one channel: control lines in, frames out, sleeping in between."""

from __future__ import annotations

import math
import os
import select
import signal
import sys
import time
from functools import partial

from rgt_box import PROTO, background, bytecode, jsonline, options, ownership, place, secret_store
from rgt_box.place import box_identity
from rgt_box.queue import queue_file, queue_state
from rgt_box.queue.cell_command import valid_hooks
from rgt_box.queue.queue_file import environment
from rgt_box.recorder import control
from rgt_box.recorder.control import clamp_interval
from rgt_box.recorder.ring_history import HistorySummarizer
from rgt_box.recorder.state_files import ClockWatch
from rgt_box.streams.follows import Collector, FollowedFiles
from rgt_box.streams.pipes import ControlInbox, FrameOutbox, ReaderClosed
from rgt_box.streams.sample_source import Coalescer, open_source

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from rgt_wire import JsonObject


READ = 256 << 10
FRAMES = 32
MAX_FRAME = (1 << 20) - 1
"""Maximum bytes of a line; the client drops a longer one."""
MIN_TICK, MAX_TICK = 0.1, 2.0

HURRY, HURRY_FOR = 0.02, 3.0
MAX_LINE = 64 << 20
"""Maximum bytes of the configuration line: 28 runs of 1,000 curves have 5 MB of cursors, and the
line is sent again at each connection.
"""
MAX_PAST, MAX_POINTS = 366 * 86400.0, 1000
"""Limits for a client's history request, so that it fits into one frame."""

OPS = ("interval", "follow", "unfollow", "ping")


class WatchChannel:
    """One client's channel.

    Args:
        config: The checked configuration.
        inbox: Source of control lines.
        outbox: Destination of frames.
    """

    def __init__(self, config: JsonObject, inbox: ControlInbox, outbox: FrameOutbox) -> None:
        self._config = config
        self._inbox = inbox
        self._outbox = outbox
        self._folder = place.state_dir()
        if config["job_env"] is not None or config["job_hooks"] is not None:
            queue_file.remember_platform(self._folder, config["job_env"], config["job_hooks"])
        after = config["samples_after"]
        self._boot = place.boot_id()
        self._register_channel(after)
        self._source, status, self._why = open_source(self._folder, config, after)
        self._coalescer = Coalescer(
            after["boot"] if after else self._boot,
            after["seq"] if after else 0,
            self._source.history_floor() if config["history"] else None,
        )
        self._summing = (
            HistorySummarizer(self._folder, config["history"]) if config["history"] else None
        )
        self._clock = ClockWatch()
        self._follows = FollowedFiles(config)
        self._collector = Collector(
            lambda: self._follows.poll_frames(FRAMES), lambda: self._follows.at
        )
        self._lagging = self._live = self._seen_sample = self._looks = False
        self._hurry_until = time.monotonic() + HURRY_FOR
        self._send_hello(status)
        if self._why:
            self._send_event("no-recorder", "warn", self._why)

    def stream_frames(self) -> None:
        """Stream until the client ends the channel.

        Raises:
            ReaderClosed: The client went away without ending it.
        """
        poller = select.poll()
        poller.register(self._inbox.fd, select.POLLIN)
        more = True
        # Lines that came together with the configuration wake no poll.
        self._apply_control_lines(self._inbox.buffered_lines())
        while not self._inbox.ended:
            # While the reader lags, only free space in the pipe or a control line matters.
            events = 0
            if self._outbox.pending_bytes:
                events = select.POLLOUT
            poller.register(self._outbox.fd, events)
            tick = min(MAX_TICK, max(MIN_TICK, self._config["interval"] / 4.0))
            if not self._seen_sample and time.monotonic() < self._hurry_until:
                tick = HURRY  # the user waits for the first numbers
            if more and not self._outbox.pending_bytes:
                wait = 0.0
            else:
                wait = tick
            for fd, event in poller.poll(wait * 1000.0):
                if fd == self._inbox.fd:
                    self._apply_control_lines(self._inbox.read_lines())
                elif event & (select.POLLERR | select.POLLHUP | select.POLLNVAL):
                    raise ReaderClosed("the reader is gone")
            self._outbox.flush()
            more = self._poll_sources()
            self._outbox.flush()

    def _poll_sources(self) -> bool:
        """Poll every source while there is room; return True if more is waiting already."""
        # Nothing is read ahead of a slow reader: the newest samples matter, not the oldest.
        if self._outbox.is_full:
            self._lagging = True
            return False
        # The recorder has searched for trainings by the time it takes a sample.
        begins = self._seen_sample and self._live and not self._looks
        if self._config["find"]:
            found = self._source.changed_trainings(begins)
        else:
            found = None
        if found is not None:
            self._collector.run_before_next(partial(self._follows.apply_found, found))
        if begins:
            self._looks = True
            self._collector.run_before_next(self._follows.announce_first_check)
        # Seconds to wait for files before the samples are sent.
        files_wait = 0.1
        frames, more = self._collector.take_results(files_wait)
        for frame in frames:
            if frame["t"] == "event":
                self._send_event(frame["kind"], frame["level"], frame["text"], frame.get("at"))
            elif frame["t"] == "looked":
                self._outbox.add_frame(
                    jsonline.encode_line(
                        {"t": "pong", "id": 0, "at": round(time.time(), 3), "looked": True}
                    )
                )
            else:
                self._send_frame(frame)
        # The client computes ages from the box's clock, so report it at once.
        if self._clock.read_jump():
            self._outbox.add_frame(
                jsonline.encode_line({"t": "pong", "id": 0, "at": round(time.time(), 3)})
            )
        more = self._continue_summary() or more
        return self._send_samples() or more

    def _send_frame(self, frame: JsonObject) -> None:
        line = jsonline.encode_line(frame)
        # A queue is too important to be left out, unlike any other frame of that length.
        if len(line) > MAX_FRAME and frame["t"] == "queue":
            line = jsonline.encode_line(queue_state.shortened(frame, MAX_FRAME))
        if len(line) <= MAX_FRAME:
            self._outbox.add_frame(line)
            return
        what = frame.get("path") or frame.get("source") or frame.get("run") or "?"
        text = "a frame of kind %s is too long to be sent: %d bytes (%s)" % (
            frame["t"],
            len(line),
            what[:500],
        )
        self._send_event("frame-too-long", "warn", text)

    def _continue_summary(self) -> bool:
        """Continue the requested history summary; return False if there is nothing (more) to do."""
        if self._summing is None:
            return False
        frame = self._summing.summarize_next()
        if frame is None:
            return True
        self._outbox.add_frame(jsonline.encode_line(frame))
        self._summing = None
        return False

    def _send_samples(self) -> bool:
        if self._source.is_dead():
            self._reopen_source()
        records = self._source.read_records(READ)
        # History is always sent completely; only newer samples may be coalesced.
        coalesce = self._live and self._lagging
        while coalesce and records:
            # Up to the newest: a lagging reader gets only that one.
            further = self._source.read_records(READ)
            if not further:
                break
            records += further
        for line in self._coalescer.lines_to_send(records, coalesce):
            self._outbox.add_frame(line)
        self._seen_sample = self._seen_sample or any(record.is_sample for record in records)
        self._live = self._live or not records
        self._lagging = False
        return bool(records) and not coalesce

    def _reopen_source(self) -> None:
        """Start the recorder again, or return to it, after the records that were already sent."""
        after = {"boot": self._coalescer.boot, "seq": self._coalescer.seq}
        self._folder = place.state_dir()
        self._register_channel(after)
        self._source.close()
        self._source, _, why = open_source(self._folder, self._config, after)
        if why and why != self._why:
            self._send_event("no-recorder", "warn", why)
        self._why = why

    def _register_channel(self, after: JsonObject | None) -> None:
        try:
            ownership.ensure_private_folder(self._folder)
        except OSError:
            pass  # memory may work instead
        control.register_watcher(self._folder, self._config, after)
        control.signal_recorder(self._folder, signal.SIGHUP)

    def _apply_control_lines(self, lines: list[bytes]) -> None:
        for line in lines:
            control_line = parse_control(line)
            if control_line is None:
                continue
            op = control_line["op"]
            if op == "ping":
                self._outbox.add_frame(
                    jsonline.encode_line(
                        {"t": "pong", "id": control_line["id"], "at": round(time.time(), 3)}
                    )
                )
            elif op == "interval":
                self._config["interval"] = control_line["seconds"]
                self._register_channel({"boot": self._coalescer.boot, "seq": self._coalescer.seq})
            elif op == "follow":
                self._collector.run_before_next(
                    partial(self._follows.follow_path, control_line["path"])
                )
            else:
                self._collector.run_before_next(
                    partial(self._follows.unfollow_path, control_line["path"])
                )

    def _send_hello(self, status: JsonObject) -> None:
        hello = {
            "t": "hello",
            "proto": PROTO,
            "agent": place.agent_digest(),
            "boot": self._boot,
            "host": os.uname().nodename,
            "python": "%d.%d.%d" % sys.version_info[:3],
            "pid": os.getpid(),
            "at": round(time.time(), 3),
            "utc_offset": time.localtime().tm_gmtoff,
            "gpu_source": status.get("gpu_source", "none"),
            "interval": self._config["interval"],
            "limited": status.get("limited", []),
            "packed_lines": self._config["packed_lines"],
            "identity": box_identity(),
            "exposed": self._find_exposed_keys(),
        }
        self._outbox.add_frame(jsonline.encode_line(hello))
        if self._config["packed_lines"]:
            self._outbox.start_compression()
        self._outbox.flush()

    def _find_exposed_keys(self) -> list[JsonObject] | None:
        """Search for exposed keys; None if a disk does not answer."""
        config = self._config
        # Seconds to search the usual locations of keys, before the first frame.
        look_s = 2.0
        work = background.Background(
            lambda: secret_store.find_tokens(config["jobs"], config["durable"]), 0.0, look_s
        )
        found: list[JsonObject] | None = work.poll(look_s)[0]
        return found

    def _send_event(self, kind: str, level: str, text: str, at: Any = None) -> None:
        """Send an event that is not in the ring; its number 0 moves no cursor."""
        if isinstance(at, (int, float)):
            when = at
        else:
            when = round(time.time(), 3)
        frame = {"t": "event", "boot": self._boot, "seq": 0, "at": when}
        frame.update(kind=kind, text=text, level=level)
        self._outbox.add_frame(jsonline.encode_line(frame))

    def close(self) -> None:
        """Unregister, and restore the descriptors."""
        control.unregister_watcher(self._folder)
        self._source.close()
        self._outbox.restore_blocking()


HELP = """
usage: watch < CONTROL > FRAMES

Read one JSON configuration line from stdin, then stream frames (JSON lines) to stdout until stdin ends.
Further lines control it: {"op": "interval", "seconds": S}, {"op": "follow" | "unfollow", "path": P},
{"op": "ping", "id": N}. docs/protocol.md describes every frame.
"""


def main(argv: list[str]) -> int:
    """Run the verb; return 0 at the end of stdin, 2 for a bad configuration."""
    options.parse_or_exit(argv, {}, HELP)
    # Before stdin is read: what this process has read would be lost at the restart.
    bytecode.restart_without_source("watch", *argv)
    # As an exception, so that `close` unregisters the channel.
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, _exit_on_signal)
    try:
        line, rest = _first_line()
        config = parse_config(line)
    except BadConfig as problem:
        event: JsonObject = {
            "t": "event",
            "boot": place.boot_id(),
            "seq": 0,
            "at": round(time.time(), 3),
        }
        event.update(kind="bad-config", text=str(problem), level="error")
        jsonline.print_frame(event)
        return 2
    inbox = ControlInbox(0, rest)
    outbox = FrameOutbox(1)
    watch = None
    try:
        watch = WatchChannel(config, inbox, outbox)
        watch.stream_frames()
    except ReaderClosed:
        pass
    finally:
        if watch is not None:
            watch.close()
    return 0


def _first_line() -> tuple[bytes, bytes]:
    """Read the configuration; return it and the control lines after it.

    Raises:
        BadConfig: stdin ends, or the line is too long.
    """
    line = bytearray()
    while True:
        data = os.read(0, 1 << 20)
        end = data.find(b"\n")
        if end >= 0:
            return bytes(line + data[:end]), data[end + 1 :]
        line += data
        if not data or len(line) >= MAX_LINE:
            raise BadConfig("the configuration line is incomplete or too long")


def _exit_on_signal(number: int, _: object) -> None:
    raise SystemExit(128 + number)


# Parsers of the client's first line and control lines, without side effects.


class BadConfig(Exception):
    """The line cannot be used; the message says why."""


def parse_config(line: bytes) -> JsonObject:
    """Return a checked configuration with every key present.

    Raises:
        BadConfig: The line is not a JSON object, or a value has the wrong type.
    """
    raw = jsonline.loads_dict(line)
    if raw is None:
        raise BadConfig("the configuration is not a JSON object")
    proto = raw.get("proto", PROTO)
    if proto != PROTO:
        raise BadConfig("protocol %r was requested; this agent speaks %d" % (proto, PROTO))
    return {
        "interval": _parse_seconds(raw.get("interval", 1.0)),
        "mounts": _parse_strings(raw, "mounts"),
        "jobs": _parse_strings(raw, "jobs"),
        "notices": _parse_strings(raw, "notices"),
        "logs": _parse_strings(raw, "logs"),
        "runs": _parse_strings(raw, "runs"),
        "pattern": _parse_text(raw, "pattern", "rgt_train"),
        "find": raw.get("find") is True,
        "gpu_trace": _parse_text(raw, "gpu_trace", None),
        "tail": min(100000, max(0, _parse_integer(raw, "tail", 200))),
        "samples_after": _sample_cursor(raw.get("samples_after")),
        "log_cursors": _parse_cursors(raw, "log_cursors"),
        "scalar_cursors": _parse_cursors(raw, "scalar_cursors"),
        "packed_lines": raw.get("packed_lines") is True,
        "history": _parse_history(raw.get("history")),
        "job_env": _parse_environment(raw.get("job_env")),
        "durable": _parse_strings(raw, "durable"),
        "job_hooks": None if raw.get("job_hooks") is None else valid_hooks(raw["job_hooks"]),
    }


def parse_control(line: bytes) -> JsonObject | None:
    """Return a checked control line; None for an invalid one, which is ignored."""
    raw = jsonline.loads_dict(line)
    if raw is None or raw.get("op") not in OPS:
        return None
    op = raw["op"]
    try:
        if op == "interval":
            return {"op": op, "seconds": _parse_seconds(raw.get("seconds"))}
    except BadConfig:
        return None
    if op in ("follow", "unfollow"):
        if isinstance(raw.get("path"), str) and raw["path"]:
            return {"op": op, "path": raw["path"]}
        return None
    number = raw.get("id")
    return {"op": op, "id": number if isinstance(number, int) else 0}


def _parse_seconds(value: Any, most: float = 0.0) -> float:
    if (
        not isinstance(value, (int, float))
        or isinstance(value, bool)
        or not math.isfinite(value)
        or value <= 0
    ):
        raise BadConfig(f"{value!r} is not a number of seconds above 0")
    if most:
        return min(most, float(value))
    return clamp_interval(float(value))


def _parse_strings(raw: JsonObject, key: str) -> list[str]:
    value = raw.get(key) or []
    if not isinstance(value, list) or any(
        not isinstance(item, str) or "\0" in item for item in value
    ):
        raise BadConfig(f"{key} must be a list of strings")
    return value


def _parse_text(raw: JsonObject, key: str, default: str | None) -> str | None:
    value = raw.get(key, default)
    if value is not None and (not isinstance(value, str) or "\0" in value):
        raise BadConfig(f"{key} must be a string")
    return value


def _parse_integer(raw: JsonObject, key: str, default: int) -> int:
    value = raw.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool):
        raise BadConfig(f"{key} must be a whole number")
    return value


def _sample_cursor(value: Any) -> JsonObject | None:
    if value is None:
        return None
    if (
        isinstance(value, dict)
        and isinstance(value.get("boot"), str)
        and isinstance(value.get("seq"), int)
    ):
        return {"boot": value["boot"], "seq": value["seq"]}
    raise BadConfig('samples_after must be {"boot": …, "seq": …}')


def _parse_history(value: Any) -> JsonObject | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        raise BadConfig('history must be {"seconds": …, "points": …}')
    points = _parse_integer(value, "points", 240)
    return {
        "seconds": _parse_seconds(value.get("seconds"), MAX_PAST),
        "points": min(MAX_POINTS, max(1, points)),
    }


def _parse_environment(value: Any) -> dict[str, str] | None:
    if value is None:
        return None
    if not isinstance(value, dict) or environment(value) != value:
        raise BadConfig("job_env must be an object of variables and their values")
    return value


def _parse_cursors(raw: JsonObject, key: str) -> dict[str, tuple[int, int]]:
    value = raw.get(key) or {}
    if not isinstance(value, dict):
        raise BadConfig(f"{key} must be an object")
    found = {}
    for path, cursor in value.items():
        if isinstance(cursor, dict):
            inode = cursor.get("inode")
        else:
            inode = None
        if isinstance(cursor, dict):
            offset = cursor.get("offset")
        else:
            offset = None
        if not isinstance(inode, int) or not isinstance(offset, int) or offset < 0:
            raise BadConfig(f'{key}: {path} must be {{"inode": …, "offset": …}}')
        found[path] = (inode, offset)
    return found
