"""Recordings: what the boxes told, in a file, and that file as a fleet."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rgt_tui.recordings.recording_lines import RecordingError
    from rgt_tui.recordings.recording_reader import RecordingReader, Skipped
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

_HOMES = {
    "RecordingError": "recording_lines",
    "Skipped": "recording_reader",
    "RecordingReader": "recording_reader",
    "LineFile": "recording_writer",
    "Recorder": "recording_writer",
    "RecordFailed": "recording_writer",
    "FULL": "replay_fleet",
    "ReplayFleet": "replay_fleet",
}


def __getattr__(name: str) -> object:
    """Import what is asked for: the screen is up before a fleet, and with it the SSH library, is loaded."""
    if name not in _HOMES:
        raise AttributeError(name)
    return getattr(import_module(f"rgt_tui.recordings.{_HOMES[name]}"), name)
