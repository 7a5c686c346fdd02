"""The source of a watch's samples: the recorder's ring or its own sampler; coalesced if slow."""

from __future__ import annotations

import os
import time

from rgt_box import files, jsonline, place, procstat
from rgt_box.recorder import control, state_files
from rgt_box.recorder.ring import HISTORY, RingRecord
from rgt_box.recorder.ring_history import ChainReader

TYPE_CHECKING = False

if TYPE_CHECKING:
    from rgt_wire import JsonObject

CHECK = 1.0
"""Seconds between two checks whether the recorder is still alive (three system calls each)."""


class RingSource:
    """Samples and events from the ring.

    Args:
        folder: The state directory.
        after: The client's cursor.
    """

    def __init__(self, folder: str, after: JsonObject | None) -> None:
        self._folder = folder
        self._reader = ChainReader(folder)
        self._reader.seek_after(after["boot"] if after else None, after["seq"] if after else 0)
        self._checked = time.monotonic()
        self._looked = float("-inf")
        self._mark: list[tuple[int, int, int] | None] = []

    def history_floor(self) -> tuple[str, int] | None:
        """Return where the newest `HISTORY` records begin."""
        found = self._reader.newest_position()
        if found is None:
            return None
        return (found[0], found[1] - HISTORY + 1)

    def read_records(self, limit: int) -> list[RingRecord]:
        """Return new records, about `limit` bytes of them."""
        return self._reader.read_records(limit)

    def changed_trainings(self, at_once: bool = False) -> JsonObject | None:
        """Return the trainings found by the recorder, if they changed since the last call.

        Args:
            at_once: Check now; otherwise every `CHECK` seconds.
        """
        now = time.monotonic()
        if not at_once and now - self._looked < CHECK:
            return None
        self._looked = now
        mark = [
            files.signature(os.path.join(where, state_files.FOUND))
            for where in state_files.state_folders(self._folder)
        ]
        if mark == self._mark:
            return None
        self._mark = mark
        return state_files.read_json(self._folder, state_files.FOUND)

    def is_dead(self) -> bool:
        """Return whether the recorder is gone; checked only every `CHECK` seconds."""
        now = time.monotonic()
        if now - self._checked < CHECK:
            return False
        self._checked = now
        return not control.is_running(self._folder)

    def close(self) -> None:
        """Close the ring."""
        self._reader.close()


class LocalSource:
    """Samples made in this process while no recorder can run; they are not stored."""

    def __init__(self, folder: str, config: JsonObject, after: JsonObject | None) -> None:
        # Here, because a watch with a recorder does not need them.
        from rgt_box.sampling.sampler import BoxSampler
        from rgt_box.streams.job_looks import JobPolls

        self._boot = place.boot_id()
        if after and after["boot"] == self._boot:
            self._seq = after["seq"]
        else:
            self._seq = 0
        self._config = config
        self._jobs = JobPolls(folder)
        self._sampler = BoxSampler(folder, jobs=self._jobs)
        self._written: list[str] | None = None
        self._news = self._poll_jobs()
        self._due = time.monotonic()
        self._retry = time.monotonic() + 60.0

    def _poll_jobs(self) -> list[tuple[str, str, str]]:
        news = self._jobs.poll_jobs(self._config["jobs"])
        written = self._jobs.written_folders()
        if written != self._written:
            self._written = written
            self._sampler.configure(self._config, written)
        return news

    @property
    def gpu_source(self) -> str:
        """nvml, smi, sim or none."""
        return self._sampler.gpu_source

    @property
    def limited(self) -> list[str]:
        """What does not work here, as texts."""
        return self._sampler.limited

    def changed_trainings(self, at_once: bool = False) -> JsonObject | None:
        """Return the discovered trainings, if they changed since the last call."""
        finder = self._sampler.finder
        if finder is not None and finder.changed:
            return finder.build_report()
        return None

    def history_floor(self) -> None:
        """Return None: nothing is stored, so there is nothing to leave out."""

    def read_records(self, limit: int) -> list[RingRecord]:
        """Return a sample, and its events, if one is due."""
        now = time.monotonic()
        if now < self._due:
            return []
        self._due = state_files.next_tick(self._due, self._config["interval"], now)
        news = self._news + self._poll_jobs()
        self._news = []
        fields, events = self._sampler.read()
        told = ("kind", "text", "level")
        events += [dict(zip(told, event)) for event in news]
        records = []
        for event in events:
            records.append(
                self._new_record(False, dict({"t": "event", "at": fields["at"]}, **event))
            )
        frame = dict({"t": "sample"}, **fields)
        frame["agent_rss"] = procstat.resident_bytes(os.getpid())
        records.append(self._new_record(True, frame))
        return records

    def _new_record(self, is_sample: bool, frame: JsonObject) -> RingRecord:
        self._seq += 1
        frame.update(boot=self._boot, seq=self._seq)
        return RingRecord(self._boot, self._seq, is_sample, jsonline.dumps(frame), 0)

    def is_dead(self) -> bool:
        """Return whether it is time to try to start a recorder again."""
        if time.monotonic() < self._retry:
            return False
        self._retry = time.monotonic() + 60.0
        return True

    def close(self) -> None:
        """Do nothing: no file is open."""


def open_source(
    folder: str, config: JsonObject, after: JsonObject | None
) -> tuple[RingSource | LocalSource, JsonObject, str | None]:
    """Make sure that a recorder runs and open its ring; if that fails, sample in this process.

    Returns:
        The source; a status with ``gpu_source`` and ``limited``; why there is no recorder, or None.
    """
    status = control.ensure_running(folder)
    if status is not None:
        return RingSource(folder, after), status, None
    why = (
        control.unwritable(folder)
        or control.last_failure(folder)
        or control.find_host_elsewhere(folder)
        or "the recorder did not start"
    )
    local = LocalSource(folder, config, after)
    limited = local.limited + [f"no recorder: {why}; without a connection, no history is kept"]
    return local, {"gpu_source": local.gpu_source, "limited": limited}, why


class Coalescer:
    """Turns ring records into frames, and drops samples while the reader cannot keep up.

    Args:
        boot: Boot of the last record that the client has.
        seq: Its sequence number.
        floor: ``(boot, seq)``; samples before it are dropped as well. None for no limit.

    Attributes:
        boot: Boot of the last record that was sent.
        seq: Its sequence number; frames of `watch` itself carry it, so that they move no cursor.
    """

    def __init__(self, boot: str, seq: int, floor: tuple[str, int] | None = None) -> None:
        self.boot = boot
        self.seq = seq
        self._floor = floor
        self._skipped = 0

    def lines_to_send(self, records: list[RingRecord], lagging: bool) -> list[bytes]:
        """Return the lines to send for `records`.

        Args:
            records: In order.
            lagging: True to keep only the newest sample (and every event).
        """
        newest = max(
            (index for index, record in enumerate(records) if record.is_sample), default=-1
        )
        lines = []
        for index, record in enumerate(records):
            self._skipped += record.skipped
            self.boot = record.boot
            self.seq = record.seq
            if not record.is_sample:
                lines.append(record.payload + b"\n")
            elif (lagging and index != newest) or self._is_below(record):
                self._skipped += 1
            else:
                lines.append(_sample_line(record.payload, self._skipped))
                self._skipped = 0
        return lines

    def _is_below(self, record: RingRecord) -> bool:
        if self._floor is None:
            return False
        if record.boot != self._floor[0]:
            return True  # an earlier boot: the floor is in the newest one
        if record.seq < self._floor[1]:
            return True
        self._floor = None
        return False


def _sample_line(payload: bytes, skipped: int) -> bytes:
    if not skipped:
        return payload + b"\n"
    return jsonline.encode_line(dict(jsonline.loads_dict(payload) or {}, skipped=skipped))
