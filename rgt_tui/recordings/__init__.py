"""Recordings: the frames of the boxes in a file, and its replay as a fleet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rgt_wire import imported_later

if TYPE_CHECKING:
    from rgt_tui.recordings.recording_lines import RecordingError, RecordingReader, SkippedLine
    from rgt_tui.recordings.recording_writer import FleetRecorder, LineFile, RecordFailed
    from rgt_tui.recordings.replay_fleet import FULL, ReplayFleet

__all__ = [
    "FULL",
    "FleetRecorder",
    "LineFile",
    "RecordFailed",
    "RecordingError",
    "RecordingReader",
    "ReplayFleet",
    "SkippedLine",
]

# Loaded later, because the screen appears before the fleet and its SSH library are loaded.
__getattr__ = imported_later(
    __name__,
    {
        "recording_lines": "RecordingError RecordingReader SkippedLine",
        "recording_writer": "LineFile RecordFailed FleetRecorder",
        "replay_fleet": "FULL ReplayFleet",
    },
)
