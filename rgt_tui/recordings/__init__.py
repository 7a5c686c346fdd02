"""Recordings: what the boxes sent, in a file, and that file played back as a fleet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rgt_wire import imported_later

if TYPE_CHECKING:
    from rgt_tui.recordings.recording_lines import RecordingError, RecordingReader, Skipped
    from rgt_tui.recordings.recording_writer import LineFile, Recorder, RecordFailed
    from rgt_tui.recordings.replay_fleet import FULL, ReplayFleet

__all__ = [
    "FULL",
    "LineFile",
    "RecordFailed",
    "Recorder",
    "RecordingError",
    "RecordingReader",
    "ReplayFleet",
    "Skipped",
]

# The screen is up before a fleet, and with it the SSH library, is loaded.
__getattr__ = imported_later(
    __name__,
    {
        "recording_lines": "RecordingError RecordingReader Skipped",
        "recording_writer": "LineFile RecordFailed Recorder",
        "replay_fleet": "FULL ReplayFleet",
    },
)
