"""One box of a recording: its entries into its state, as a session does with what comes over the wire."""

from __future__ import annotations

from rgt_tui.fleet import recording
from rgt_tui.fleet.intake import Intake
from rgt_tui.fleet.old_deltas import RecordedFrames
from rgt_tui.fleet.recording import Entry
from rgt_tui.fleet.reduce import replace
from rgt_tui.model.box import BoxSpec, BoxState
from rgt_tui.model.profile import Profile
from rgt_tui.model.protocol import Hello
from rgt_tui.profiles import ProfileError, load_profile


class ReplayedBox:
    """One box of the recording."""

    def __init__(self, spec: BoxSpec, profile: Profile, started: float) -> None:
        self.state = self.published = BoxState(spec=spec, since=started)
        self._reader = RecordedFrames()
        self._intake = Intake(spec, profile)

    def take(self, entry: Entry) -> None:
        """Take in an entry."""
        if entry.set is not None:
            self.state = recording.changed(self.state, entry.set)
        line = recording.wire_of(entry)
        if line is None:
            return
        try:
            frame = self._reader.read(line)
        except (ValueError, RecursionError):  # it was none when it came, either
            counters = self.state.counters
            self.state = replace(self.state, counters=replace(counters, bad_frames=counters.bad_frames + 1))
            return
        if isinstance(frame, Hello):
            self._reader = RecordedFrames()  # a channel of its own begins
        try:
            self.state = self._intake.take(self.state, frame, entry.at)
        except Exception:  # as a session does: it is left out and counted
            self.state = self._intake.give_up(self.state, frame)


def profile_of(spec: BoxSpec) -> Profile:
    """Return the profile of a box; the general one where it is of the one who recorded."""
    try:
        return load_profile(spec.profile)
    except ProfileError:
        return load_profile("generic-ssh")
