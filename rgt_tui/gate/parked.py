"""What was known of a box when rgt parked it: a machine that is off cannot be asked, and nothing on it changes.

One JSON file per instance. It is good as long as the provider says that the machine is off and shows no start since.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

import msgspec

from rgt_tui import files
from rgt_tui.gate.identity import IDENTITY
from rgt_tui.gate.journal import Target
from rgt_tui.gate.quiet import QUIET, is_off
from rgt_tui.gate.roster import RESULTS
from rgt_tui.model.evidence import Evidence
from rgt_tui.model.money import Meter
from rgt_tui.model.protocol import Checkpoints, QueueState
from rgt_tui.model.results import Results

MOST_BYTES = 64 << 20


class Parked(msgspec.Struct, frozen=True, kw_only=True):
    """The evidence of a park, for the destroy that may follow."""

    target: Target
    box: str
    at: float
    """When the park was confirmed, epoch seconds by the client's clock."""
    started: float | None
    """When the machine had been started, as the provider told before the park."""
    seal: str
    """Nonce of the seal that it was parked under."""
    results: Results
    """What was listed under the seal; what the park itself has erased is left out."""
    queues: tuple[QueueState, ...] = ()
    checkpoints: tuple[Checkpoints, ...] = ()
    clock_skew: float = 0.0


def worth_keeping(evidence: Evidence, seal: str, generation: str) -> bool:
    """Tell whether the evidence of a park still says something after it: proved, sealed and whole."""
    bare = {IDENTITY, RESULTS, f"{RESULTS}:whole", "seal"}
    given_up = any(item.forfeited and (item.key in bare or item.kind == QUIET) for item in evidence.items)
    return bool(seal) and evidence.generation == generation and not given_up


def stands(parked: Parked, meter: Meter) -> str | None:
    """Say why the evidence of a park is good no more; None = it is.

    Args:
        parked: The evidence.
        meter: The provider's word of just now.
    """
    if meter.error is not None:
        return "the provider's state could not be read"
    if not is_off(meter):
        return "the machine is not off"
    # The provider's own time, told twice: no two clocks are compared.
    if meter.started is not None and meter.started != parked.started:
        return "the machine was started since"
    return None


class ParkedEvidence:
    """The files, below one directory of mode 0700."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def keep(self, parked: Parked) -> None:
        """Write what is known of a parked box.

        Raises:
            OSError: it is not there.
        """
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        files.publish(self._path(parked.target), msgspec.json.encode(parked))

    def find(self, target: Target) -> Parked | None:
        """Return what is known of an instance; None also where it cannot be read: then nobody knows anything."""
        try:
            with files.open_regular(self._path(target), follow=False) as file:
                data = file.read(MOST_BYTES)
            parked = msgspec.json.decode(data, type=Parked)
        except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        return parked if parked.target == target else None

    def forget(self, target: Target) -> None:
        """The machine runs again: what was known of it means nothing any more."""
        with contextlib.suppress(OSError):
            self._path(target).unlink(missing_ok=True)

    def _path(self, target: Target) -> Path:
        return self.folder / f"{target.file_name}.json"
