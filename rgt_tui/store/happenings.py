"""Events in the history file, in order of arrival, even if the clock was set meanwhile."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterator, Mapping

from rgt_tui.language import load_text
from rgt_tui.model import EventFilter, FleetEvent, Happening, Happenings

MOST_EVENTS = 20_000
PAGE = 200

OWN = "history"
"""`FleetEvent.about` of events of the history itself; they are not stored in it."""
TABLE = """CREATE TABLE happened (n INTEGER PRIMARY KEY, at REAL NOT NULL, box INTEGER NOT NULL,
    text TEXT NOT NULL, level TEXT NOT NULL, about TEXT NOT NULL, UNIQUE (at, box, text))"""


def write_event(con: sqlite3.Connection, box: int, event: FleetEvent) -> None:
    """Write an event, unless it is stored already."""
    con.execute(
        "INSERT OR IGNORE INTO happened (at, box, text, level, about) VALUES (?, ?, ?, ?, ?)",
        (event.at, box, event.text, event.level, event.about),
    )


def read_event_page(
    con: sqlite3.Connection,
    names: Mapping[int, str],
    wanted: EventFilter,
    before: int | None,
    count: int = PAGE,
) -> Happenings:
    """Return the last `count` matching events numbered below `before`; None = no upper bound."""
    found: list[Happening] = []
    older = False
    for row in _iterate_events(con, names, wanted, before):
        if matches_filter(row, wanted):
            if len(found) == count:
                older = True
                break
            found.append(row)
    marks = ", ".join("?" * len(names))
    kept = con.execute(
        f"SELECT count(*) FROM happened WHERE box IN ({marks})", tuple(names)
    ).fetchone()[0]
    return Happenings(tuple(reversed(found)), older, int(kept))


def matches_filter(row: Happening, wanted: EventFilter) -> bool:
    """Return whether an event matches a filter."""
    if wanted.box is not None and row.box != wanted.box:
        return False
    if wanted.errors and row.level != "error":
        return False
    if wanted.since is not None and row.at < wanted.since:
        return False
    if wanted.until is not None and row.at > wanted.until:
        return False
    term = wanted.term.casefold()
    return not term or term in row.text.casefold() or term in row.box.casefold()


def _iterate_events(
    con: sqlite3.Connection, names: Mapping[int, str], wanted: EventFilter, before: int | None
) -> Iterator[Happening]:
    """Yield the events of the filter's time range, newest first."""
    marks = ", ".join("?" * len(names))
    for n, at, box, text, level, about in con.execute(
        f"""SELECT n, at, box, text, level, about FROM happened
            WHERE n < ? AND at BETWEEN ? AND ? AND box IN ({marks}) ORDER BY n DESC""",
        (
            2**63 - 1 if before is None else before,
            -math.inf if wanted.since is None else wanted.since,
            math.inf if wanted.until is None else wanted.until,
            *names,
        ),
    ):
        yield Happening(n, at, names[box], load_text(text), level, about)


def trim_events(con: sqlite3.Connection) -> None:
    """Delete the oldest events above the limit."""
    con.execute(
        "DELETE FROM happened WHERE n <= (SELECT n FROM happened ORDER BY n DESC LIMIT 1 OFFSET ?)",
        (MOST_EVENTS,),
    )
