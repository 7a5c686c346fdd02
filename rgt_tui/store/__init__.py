"""The history on disk: one SQLite file with what was seen, so that a restart shows it at once."""

from rgt_tui.store.database import HistoryError
from rgt_tui.store.history import History, history_path
from rgt_tui.store.history_file import Batch, Told
from rgt_tui.store.minute_means import Mean, Means
from rgt_tui.store.spending import Cost, Metering, ProviderSum

__all__ = [
    "Batch",
    "Cost",
    "History",
    "HistoryError",
    "Mean",
    "Means",
    "Metering",
    "ProviderSum",
    "Told",
    "history_path",
]
