"""The number of each box in the history file: how a box is identified, and its name in each fleet."""

from __future__ import annotations

import sqlite3

import msgspec

from rgt_tui.model import BoxSpec


def place_of(spec: BoxSpec) -> str:
    """Return what a box is known by, so that it never inherits a stranger's past.

    A provider never gives an instance id twice: such a box keeps its past when it is renamed, and a new rental under
    the old name begins with none. An address says less (rentals hand them on), so without a provider the name and the
    whole address must be the same.
    """
    ref = spec.provider
    if ref is not None:
        known: list[object] = [ref.kind, ref.instance]
        if ref.base_url is not None:
            known.append(ref.base_url)
    else:
        known = ["ssh", spec.name, spec.user, spec.host, spec.port]
    return msgspec.json.encode(known).decode()


def number(con: sqlite3.Connection, fleet: str, spec: BoxSpec) -> int:
    """Return the number of a box, in a transaction that may be the first to know it, or by what its fleet calls it.

    Args:
        con: In a transaction.
        fleet: By what the fleet is known, such as its file.
        spec: The box.
    """
    box = known(con, spec)
    if box is None:
        con.execute("INSERT INTO boxes (place, name) VALUES (?, ?)", (place_of(spec), spec.name))
        box = int(con.execute("SELECT last_insert_rowid()").fetchone()[0])
    con.execute("UPDATE boxes SET name = ? WHERE id = ? AND name <> ?", (spec.name, box, spec.name))
    con.execute("INSERT OR IGNORE INTO fleets VALUES (?, ?, ?)", (fleet, spec.name, box))
    return box


def whole_fleet(con: sqlite3.Connection, fleet: str) -> int | None:
    """Return the number for what is about no single box of a fleet; None when there is nothing."""
    row = con.execute("SELECT id FROM boxes WHERE place = ?", (_place_of_fleet(fleet),)).fetchone()
    return None if row is None else int(row[0])


def number_of_fleet(con: sqlite3.Connection, fleet: str) -> int:
    """Return the same, in a transaction that may be the first to need it. `fleets` does not have it: it is no box."""
    con.execute("INSERT OR IGNORE INTO boxes (place, name) VALUES (?, '')", (_place_of_fleet(fleet),))
    found = whole_fleet(con, fleet)
    assert found is not None
    return found


def _place_of_fleet(fleet: str) -> str:
    return msgspec.json.encode(["fleet", fleet]).decode()


def known(con: sqlite3.Connection, spec: BoxSpec) -> int | None:
    """Return the number of a box; None when nothing was ever written of it."""
    row = con.execute("SELECT id FROM boxes WHERE place = ?", (place_of(spec),)).fetchone()
    return None if row is None else int(row[0])


def of_name(con: sqlite3.Connection, fleet: str, name: str) -> list[int]:
    """Return the numbers of all boxes that a fleet ever called `name`: yesterday it may have been another machine."""
    return [
        int(row[0])
        for row in con.execute("SELECT box FROM fleets WHERE fleet = ? AND name = ?", (fleet, name))
    ]


def ever_of(con: sqlite3.Connection, fleet: str) -> dict[int, str]:
    """Return all boxes that a fleet ever had: number → name."""
    return {
        int(row[0]): str(row[1])
        for row in con.execute("SELECT box, name FROM fleets WHERE fleet = ?", (fleet,))
    }
