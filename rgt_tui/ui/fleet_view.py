"""How a person wants the fleet shown: order, groups and kept filters, in ``$XDG_STATE_HOME/rgt/fleet-view.json``.

A filter that is on is not kept: who starts rgt sees every box.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from rgt_tui.files import alone, publish, state_directory
from rgt_tui.ui.widgets.fleet_rows.fleet_order import GROUPS, Order, can_sort

VERSION = 1
MOST_BYTES = 1 << 20
MOST_FILTERS = 100


class FleetView(msgspec.Struct, frozen=True):
    """The whole file."""

    version: int = VERSION
    sort: str = "state"
    flipped: bool = False
    group: str = ""
    filters: dict[str, str] = {}
    """Kept ones, by name."""

    @property
    def order(self) -> Order:
        """The order; the usual one, where that of the file is not known."""
        return Order(self.sort, self.flipped) if can_sort(self.sort) else Order()

    @property
    def grouping(self) -> str:
        """The groups; none, where those of the file are not known."""
        return self.group if self.group in GROUPS else ""


class Unreadable(Exception):
    """The file is damaged or of a newer rgt: it is left as it is, and nothing is kept."""


def view_path(env: Mapping[str, str]) -> Path:
    """Return the file."""
    return state_directory(env) / "fleet-view.json"


def read_view(path: Path) -> FleetView:
    """Return what is kept; the usual where nothing is.

    Raises:
        Unreadable: something else is there.
    """
    try:
        with path.open("rb") as file:
            view = msgspec.json.decode(file.read(MOST_BYTES), type=FleetView)
    except FileNotFoundError:
        return FleetView()
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Unreadable(
            f"{path} cannot be read ({error}): delete it, or mend it; until then nothing is kept"
        ) from None
    if view.version != VERSION:
        raise Unreadable(f"{path} is of another rgt (version {view.version}): nothing is kept")
    return view


def keep_view(path: Path, change: Callable[[FleetView], FleetView]) -> FleetView:
    """Change what is kept, and return it; what another rgt has kept meanwhile stays. Blocks for a moment.

    Raises:
        Unreadable: something else is there.
        OSError: it cannot be written.
    """
    with alone(path):
        view = change(read_view(path))
        publish(path, msgspec.json.format(msgspec.json.encode(view)))
        return view


def with_filter(view: FleetView, name: str, text: str | None) -> FleetView:
    """Return the view with a filter kept, or, with None, without it. The oldest goes where there are too many."""
    others = {known: kept for known, kept in view.filters.items() if known != name}
    if text is not None:
        others = {**dict(list(others.items())[-(MOST_FILTERS - 1) :]), name: text}
    return msgspec.structs.replace(view, filters=others)
