"""The history on disk: one SQLite file of earlier states, so that a restart shows them at once."""

from rgt_tui.store.database import HistoryError
from rgt_tui.store.happenings import MOST_EVENTS, OWN
from rgt_tui.store.history import History, history_path
from rgt_tui.store.history_file import FLEET, Batch, HistoryFile, Told
from rgt_tui.store.minute_means import Mean, Means
from rgt_tui.store.moments import NEAR_SECONDS
from rgt_tui.store.person_ticks import TicksError, say_tick, ticks_of, ticks_path, with_ticks
from rgt_tui.store.spending import Cost, Metering, ProviderSum

__all__ = [
    "FLEET",
    "MOST_EVENTS",
    "NEAR_SECONDS",
    "OWN",
    "Batch",
    "Cost",
    "History",
    "HistoryError",
    "HistoryFile",
    "Mean",
    "Means",
    "Metering",
    "ProviderSum",
    "TicksError",
    "Told",
    "history_path",
    "say_tick",
    "ticks_of",
    "ticks_path",
    "with_ticks",
]
