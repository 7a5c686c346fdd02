"""Reports of a run: lines for a person, points and events in metrics.jsonl, and further sinks."""

from __future__ import annotations

import hashlib
import importlib
import json
import math
import os
import socket
import struct
import sys
import time
from contextlib import suppress
from typing import Any, Callable, Iterable, Mapping, Protocol, Sequence

from rgt_wire.event_records import TABLE, crc32c, encode_header, encode_record, mask_crc

from rgt_train.checkpoint.diskio import LineAppender, StrPath
from rgt_train.exits import UsageError
from rgt_train.tracking.gathering import LineGatherer, Point

TENSORBOARD_DIR = "tensorboard"


class PointSink(Protocol):
    """Receives the points of a run."""

    def record_point(self, step: int, seconds: float, values: Mapping[str, float]) -> None:
        """Record the numbers of `step`, measured at `seconds` since the epoch."""

    def close(self) -> None:
        """Write all pending points."""


class SinkLaunch:
    """The facts for a sink about its run.

    Args:
        out: The run directory.
        step: The starting step of this launch.
        settings: The run's settings, plain values.
        project: Name of the project at a tracking service.
        group: Group of runs there; empty for none.
        tags: Labels of the run there.
    """

    def __init__(
        self,
        out: str,
        step: int,
        settings: Mapping[str, Any],
        project: str,
        group: str = "",
        tags: Sequence[str] = (),
    ) -> None:
        self.out = out
        self.step = step
        self.settings = dict(settings)
        self.project = project
        self.group = group
        self.tags = list(tags)

    @property
    def run_identity(self) -> str:
        """A name shared by all launches of this run directory."""
        path = os.path.realpath(self.out).encode()
        digest = hashlib.sha256(path).hexdigest()[:8]
        return f"{os.path.basename(self.out)}-{digest}"


class ServiceSink:
    """A tracking service with W&B's calls: ``init``, ``log``, ``finish`` (trackio has the same).

    The points have their step as a separate column and no service-side step: after a resume the
    steps after the checkpoint are repeated, and such services drop a step that is lower than the
    last.

    Args:
        module: The imported client library.
        launch: The facts about the run.
        arguments: Further arguments of its ``init``.
    """

    def __init__(self, module: Any, launch: SinkLaunch, arguments: Mapping[str, Any]) -> None:
        self._run = module.init(
            project=launch.project,
            name=launch.run_identity,
            config=launch.settings,
            # "must" would fail at the first launch, "never" at the second.
            resume="allow",
            **arguments,
        )
        self._log: Callable[[dict[str, float]], Any] = getattr(self._run, "log", module.log)
        self._finish: Callable[[], Any] = getattr(self._run, "finish", module.finish)
        if hasattr(self._run, "define_metric"):
            self._run.define_metric("*", step_metric="train_step")

    def record_point(self, step: int, seconds: float, values: Mapping[str, float]) -> None:
        """Send the numbers of `step` to the service."""
        self._log({"train_step": step, **values})

    def close(self) -> None:
        """End the service's run."""
        self._finish()


def _open_tensorboard(launch: SinkLaunch) -> PointSink:
    return EventFile(os.path.join(launch.out, TENSORBOARD_DIR), launch.step)


def _open_wandb(launch: SinkLaunch) -> PointSink:
    # Mode and credentials are W&B's own environment variables: nothing secret passes through here.
    arguments: dict[str, Any] = {"id": launch.run_identity, "dir": launch.out}
    if launch.group:
        arguments["group"] = launch.group
    if launch.tags:
        arguments["tags"] = launch.tags
    return ServiceSink(_import_library("wandb"), launch, arguments)


def _open_trackio(launch: SinkLaunch) -> PointSink:
    arguments: dict[str, Any] = {}
    if launch.group:
        arguments["group"] = launch.group
    if launch.tags:
        launch.settings["tags"] = launch.tags  # it has no tags of its own, but searches settings
    return ServiceSink(_import_library("trackio"), launch, arguments)


class MlflowSink:
    """A run at MLflow, continued by later launches; its address comes from MLflow's own variables.

    Args:
        module: The imported client library.
        launch: The facts about the run.
    """

    def __init__(self, module: Any, launch: SinkLaunch) -> None:
        self._module = module
        experiment = module.set_experiment(launch.project)
        found = module.search_runs(
            [experiment.experiment_id],
            filter_string=f"tags.rgt_run = '{launch.run_identity}'",
            max_results=1,
            output_format="list",
        )
        if found:
            module.start_run(run_id=found[0].info.run_id)
            return
        tags = {"rgt_run": launch.run_identity, **dict.fromkeys(launch.tags, "true")}
        if launch.group:
            tags["group"] = launch.group
        module.start_run(run_name=launch.run_identity, tags=tags)
        # Only for a new run: MLflow refuses to change a parameter.
        module.log_params(launch.settings)

    def record_point(self, step: int, seconds: float, values: Mapping[str, float]) -> None:
        """Send the numbers of `step` to the service."""
        self._module.log_metrics(dict(values), step=step)

    def close(self) -> None:
        """End the service's run."""
        self._module.end_run()


def _open_mlflow(launch: SinkLaunch) -> PointSink:
    return MlflowSink(_import_library("mlflow"), launch)


SINKS: dict[str, Callable[[SinkLaunch], PointSink]] = {
    "tensorboard": _open_tensorboard,
    "wandb": _open_wandb,
    "trackio": _open_trackio,
    "mlflow": _open_mlflow,
}


def check_names(names: Sequence[str]) -> None:
    """Check that all sinks are known.

    Raises:
        UsageError: One is not; the message lists the known ones.
    """
    for name in names:
        if name not in SINKS:
            raise UsageError(
                f"unknown logger {name!r}; known are {', '.join(SINKS)} (metrics.jsonl is always "
                "on)"
            )


def open_sinks(
    names: Sequence[str], launch: SinkLaunch, say: Callable[[str], None]
) -> list[PointSink]:
    """Return the sinks `names`, each inside a guard.

    Raises:
        UsageError: A name is unknown, or its library is not installed.
    """
    check_names(names)
    sinks: list[PointSink] = []
    for name in names:
        try:
            sinks.append(GuardedSink(name, SINKS[name](launch), say))
            if name == "tensorboard" and (launch.group or launch.tags):
                say("TensorBoard has no groups and tags: tracker_group and tags do nothing there")
        except UsageError:
            raise
        except Exception as error:
            say(
                f"logger {name} could not be opened and is left out: {type(error).__name__}: "
                f"{error}"
            )
    return sinks


class GuardedSink:
    """Switches a sink off at its first error, and reports it once.

    Args:
        name: Its name.
        sink: The sink.
        say: Receives the error.
    """

    def __init__(self, name: str, sink: PointSink, say: Callable[[str], None]) -> None:
        self._name = name
        self._sink = sink
        self._say = say
        self._on = True

    def record_point(self, step: int, seconds: float, values: Mapping[str, float]) -> None:
        """Forward the point."""
        if self._on:
            self._call_guarded(lambda: self._sink.record_point(step, seconds, values))

    def close(self) -> None:
        """Close the sink."""
        if self._on:
            self._call_guarded(self._sink.close)

    def _call_guarded(self, call: Callable[[], Any]) -> None:
        try:
            call()
        except Exception as error:
            self._on = False
            self._say(
                f"logger {self._name} failed and is switched off for this launch: "
                f"{type(error).__name__}: {error}"
            )


def _import_library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UsageError(
            f"logger {name} was asked for, but it is not installed here ({error}): pip install "
            f"{name}, or leave it out"
        ) from error


METRICS = "metrics.jsonl"
_TAIL = 1 << 16
_encode = json.JSONEncoder(allow_nan=False).encode


class RunReport:
    """Reports for one run; a full disk or a closed pipe never ends the training.

    Args:
        out: The run directory.

    Attributes:
        announce_gathering: Called before points of steps are written together, with their largest
            number, and with 1 when they no longer are; returns whether that is allowed.
    """

    def __init__(self, out: StrPath) -> None:
        self._file = LineAppender(os.path.join(out, METRICS))
        self._sinks: list[PointSink] = []
        self._templates: dict[tuple[str, ...], str] = {}
        self.announce_gathering: Callable[[int], bool] = lambda lines: False
        self._gatherer = LineGatherer(
            self._append_points,
            _print_unflushed,
            _flush_console,
            lambda lines: self.announce_gathering(lines),
        )

    def add_sinks(self, sinks: Iterable[PointSink]) -> None:
        """Send the points to further sinks from now on; `close` closes them."""
        self._sinks += sinks

    def print_line(self, line: str) -> None:
        """Print one line now."""
        print_line(line)

    def record_point(self, step: int, epoch: float, **values: float) -> None:
        """Append one point of the curves at `step`; `epoch` counts from 0 and has a fraction."""
        now = time.time()
        self._append_entry({"step": step, "epoch": round(epoch, 6), "time": now, **values})
        for sink in self._sinks:
            sink.record_point(step, now, values)

    def record_step(
        self, step: int, epoch: float, list_numbers: Callable[[], Mapping[str, float]], line: str
    ) -> None:
        """Append the point of a step, and print its line; both soon, if steps are fast."""
        now = time.time()
        shown = self._gatherer.add_point((step, epoch, now, list_numbers), line)
        if self._sinks:
            values = list_numbers()
            for sink in self._sinks:
                sink.record_point(step, now, values)
        if not shown:
            print_line(line)

    def flush_lines(self) -> None:
        """Write the lines that were gathered."""
        self._gatherer.write_now()

    def append_event(self, kind: str, step: int, **fields: Any) -> None:
        """Append one event."""
        self._append_entry({"event": kind, "step": step, **fields, "time": time.time()})

    def reopen_file(self) -> None:
        """Continue with the file that has replaced this one."""
        self._file.close()
        self._file = LineAppender(self._file.path)

    def close(self) -> None:
        """Write all pending lines and close."""
        self._gatherer.close_thread()
        self._file.close()
        while self._sinks:
            self._sinks.pop().close()

    def _append_entry(self, entry: dict[str, Any]) -> None:
        self.flush_lines()
        self._file.append_line(_encode_entry(entry))

    def _append_points(self, points: list[Point]) -> None:
        self._file.append_line("\n".join(map(self._encode_point, points)))

    def _encode_point(self, point: Point) -> str:
        step, epoch, seconds, list_numbers = point
        values = list_numbers()
        epoch = round(epoch, 6)
        numbers = tuple(values.values())  # of a step: plain floats
        if not _is_sum_finite(numbers):
            return _encode_entry({"step": step, "epoch": epoch, "time": seconds, **values})
        # JSON of the usual point, in a third of the time of an encoder
        names = tuple(values)
        template = self._templates.get(names)
        if template is None:
            fields = ["step", "epoch", "time", *names]
            template = self._templates[names] = (
                "{" + ", ".join(f"{_encode(name).replace('%', '%%')}: %r" for name in fields) + "}"
            )
        return template % (step, epoch, seconds, *numbers)


def _encode_entry(entry: Mapping[str, Any]) -> str:
    try:
        return _encode(entry)
    except ValueError:  # rare: one of them is not finite
        return _encode(_nonfinite_as_text(entry))


def _is_sum_finite(numbers: tuple[float, ...]) -> bool:
    # A sum is finite only if all of its terms are.
    try:
        return math.isfinite(sum(numbers))
    except OverflowError:  # an integer beyond the range of a float
        return False


_unwritable_ignored = suppress(OSError, ValueError)
"""Made once: fast steps print a line each."""


def print_line(line: str) -> None:
    """Print `line` and flush it, ignoring a closed pipe or a full log."""
    _print_unflushed(line)
    _flush_console()


def _print_unflushed(line: str) -> None:
    with _unwritable_ignored:
        sys.stdout.write(line + "\n")


def _flush_console() -> None:
    with suppress(OSError, ValueError):
        sys.stdout.flush()


def last_logged_point(out: StrPath) -> tuple[int | None, float | None]:
    """Return the highest step among the last logged points, and the time of the last line."""
    try:
        with open(os.path.join(out, METRICS), "rb") as file:
            # The file has a line per step, and may have millions.
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL))
            lines = file.read().splitlines()
    except OSError:
        return None, None
    step: int | None = None
    at: float | None = None
    for line in lines:
        try:
            entry = json.loads(line)
            at = float(entry["time"])
            if "event" not in entry:
                step = max(step or 0, int(entry["step"]))
            # Steps after it are repeated, so the highest one before it does not count.
            elif entry["event"] == "resume":
                step = int(entry["step"])
        except (ValueError, KeyError, TypeError, OverflowError):
            continue
    return step, at


def _nonfinite_as_text(value: Any) -> Any:
    """Replace NaN and infinities by strings, because JSON has none."""
    if isinstance(value, dict):
        return {key: _nonfinite_as_text(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_nonfinite_as_text(entry) for entry in value]
    if isinstance(value, (int, float)) and not _is_sum_finite((value,)):
        if value != value:
            return "nan"
        if value > 0:
            return "inf"
        return "-inf"
    return value


# TensorBoard event files, written without TensorBoard: TFRecords of the `Event` protocol message.
#
# The fields written here (numbers as in TensorBoard's ``event.proto`` and ``summary.proto``):
# Event.wall_time 1, step 2, file_version 3, summary 5, session_log 7; Summary.value 1; Value.tag 1,
# simple_value 2; SessionLog.status 1.
#
# Computed byte by byte a checksum takes about 50 ns per byte, so that checking an event of a
# training step would take longer than writing it. But a CRC is linear: the CRC of a record with
# only a few changed bytes per step is the CRC of the fixed part, XORed with one table entry for
# each byte that changed.


class PatchedCrc:
    """CRCs of records that differ from `template` only in the bytes at `places`.

    Args:
        template: A record with zero bytes at `places`.
        places: Offsets of the changing bytes, ascending.
    """

    def __init__(self, template: bytes, places: Sequence[int]) -> None:
        self._fixed = crc32c(template)
        self.tables: list[list[int]] = []
        wanted = set(places)
        bits = [TABLE[1 << bit] for bit in range(8)]  # contribution of each bit of the last byte
        first = min(wanted, default=len(template))
        for place in range(len(template) - 1, first - 1, -1):
            if place in wanted:
                self.tables.append(_byte_table(bits))
            bits = [
                TABLE[value & 255] ^ (value >> 8) for value in bits
            ]  # one byte further from the end
        self.tables.reverse()

    def crc_with(self, changing: bytes) -> int:
        """Return the CRC of the record that has `changing` at the places."""
        value = self._fixed
        for table, byte in zip(self.tables, changing):
            value ^= table[byte]
        return value


def _byte_table(bits: list[int]) -> list[int]:
    """Return the contribution of each of the 256 bytes from that of the eight bits."""
    table = [0]
    for value in bits:
        table += [entry ^ value for entry in table]
    return table


_VERSION = b"brain.Event:2"
_DOUBLE, _CRC = struct.Struct("<d"), struct.Struct("<I")


class EventFile:
    """One event file of one launch; it never raises, and keeps refused records in memory.

    All scalars of a step go into one event and one `write`, so that a reader never sees half a
    step.

    Args:
        folder: Directory of the event files; created if missing.
        step: The starting step of this launch. TensorBoard then discards the later points of an
            earlier launch, which are now repeated.
    """

    def __init__(self, folder: StrPath, step: int = 0) -> None:
        self._templates: dict[tuple[tuple[str, ...], int], _EventTemplate] = {}
        now = time.time()
        name = f"events.out.tfevents.{int(now):010d}.{socket.gethostname()}.{os.getpid()}.rgt"
        with suppress(OSError):  # the appender keeps the records, and keeps trying to open the file
            os.makedirs(folder, exist_ok=True)
        self._file = LineAppender(os.path.join(folder, name), lines=False)
        self.path = self._file.path
        head = b"\x09" + struct.pack("<d", now)
        self._file.append_bytes(encode_record(head + b"\x1a" + _with_length(_VERSION)))
        if step > 0:
            # SessionLog.START
            start = 1
            self._file.append_bytes(
                encode_record(
                    head
                    + b"\x10"
                    + _encode_varint(step + 1)
                    + b"\x3a"
                    + _with_length(b"\x08" + _encode_varint(start))
                )
            )

    def record_point(self, step: int, seconds: float, values: Mapping[str, float]) -> None:
        """Append the scalars of one step, measured at `seconds` since the epoch."""
        place = _encode_varint(step)
        key = (tuple(values), len(place))
        template = self._templates.get(key)
        if template is None:
            templates = 64
            if len(self._templates) >= templates:
                # A loop with ever new tags must not fill the memory.
                self._templates.clear()
            template = self._templates[key] = _EventTemplate(*key)
        self._file.append_bytes(template.build_record(seconds, place, list(values.values())))

    def close(self) -> None:
        """Write all pending records and close."""
        self._file.close()


class _EventTemplate:
    """The bytes of an event with these tags and a step of this length, without its numbers."""

    def __init__(self, tags: tuple[str, ...], step_size: int) -> None:
        values = [b"\x0a" + _with_length(tag.encode()) + b"\x15" for tag in tags]
        summary_size = 0
        for value in values:
            size = len(value) + 4
            summary_size += 1 + len(_encode_varint(size)) + size
        pieces = [
            b"\x09",
            bytes(8),
            b"\x10",
            bytes(step_size),
            b"\x2a" + _encode_varint(summary_size),
        ]
        changing = [1, 3]
        for value in values:
            pieces.append(b"\x0a" + _encode_varint(len(value) + 4) + value)
            changing.append(len(pieces))
            pieces.append(bytes(4))
        places: list[int] = []
        offset = 0
        for number, piece in enumerate(pieces):
            if number in changing:
                places += range(offset, offset + len(piece))
            offset += len(piece)
        blank = b"".join(pieces)
        self._crc = PatchedCrc(blank, places)
        self._head = encode_header(len(blank))
        self._fixed = [piece for number, piece in enumerate(pieces) if number not in changing]
        self._floats = struct.Struct(f"<{len(tags)}f")

    def build_record(self, seconds: float, step: bytes, values: list[float]) -> bytes:
        """Return the whole record of these numbers; `step` is a varint."""
        time_bytes = _DOUBLE.pack(seconds)
        try:
            numbers = self._floats.pack(*values)
        except (OverflowError, struct.error):  # a finite number that float32 cannot hold
            numbers = self._floats.pack(*[_as_float32(value) for value in values])
        fixed = self._fixed
        parts = [self._head, fixed[0], time_bytes, fixed[1], step, fixed[2]]
        at = 0
        for piece in fixed[3:]:
            parts.append(piece)
            parts.append(numbers[at : at + 4])
            at += 4
        crc = self._crc.crc_with(time_bytes + step + numbers)
        parts.append(_CRC.pack(mask_crc(crc)))
        return b"".join(parts)


def _as_float32(value: float) -> float:
    float_max = 3.4028234e38
    if value in (math.inf, -math.inf) or value != value:
        return value
    return max(-float_max, min(float_max, value))


def _with_length(data: bytes) -> bytes:
    return _encode_varint(len(data)) + data


def _encode_varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)
