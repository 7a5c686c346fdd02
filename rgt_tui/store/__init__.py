"""The history on disk: one SQLite file of earlier states, so that a restart shows them at once."""

from rgt_tui.store.database import HistoryError
from rgt_tui.store.happenings import MOST_EVENTS, OWN
from rgt_tui.store.history import FleetHistory, history_path
from rgt_tui.store.history_file import FLEET, Batch, BoxWrites, HistoryFile
from rgt_tui.store.minute_means import MinuteMeans, SlotMean
from rgt_tui.store.moments import SNAPSHOT
from rgt_tui.store.person_ticks import TicksError, save_tick, ticks_of, ticks_path, with_ticks
from rgt_tui.store.spending import CostMetering, ObservedCost, ProviderSum

__all__ = [
    "FLEET",
    "MOST_EVENTS",
    "OWN",
    "SNAPSHOT",
    "Batch",
    "BoxWrites",
    "CostMetering",
    "FleetHistory",
    "HistoryError",
    "HistoryFile",
    "MinuteMeans",
    "ObservedCost",
    "ProviderSum",
    "SlotMean",
    "TicksError",
    "history_path",
    "save_tick",
    "ticks_of",
    "ticks_path",
    "with_ticks",
]
