"""How the file came to be what it is: one named step per version. A step that was released never changes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Step:
    """Leads from the version before to `version`, in one transaction."""

    version: int
    name: str
    statements: tuple[str, ...]


STEPS = (
    Step(
        1,
        "boxes, their last state, samples, curves, and what they cost",
        (
            """CREATE TABLE boxes (
                id INTEGER PRIMARY KEY, place TEXT NOT NULL UNIQUE, name TEXT NOT NULL,
                first_at REAL NOT NULL, seen_at REAL NOT NULL, crc INTEGER NOT NULL)""",
            """CREATE TABLE states (
                box INTEGER PRIMARY KEY, at REAL NOT NULL, body BLOB NOT NULL, crc INTEGER NOT NULL)""",
            "CREATE TABLE names (id INTEGER PRIMARY KEY, list TEXT NOT NULL UNIQUE, crc INTEGER NOT NULL)",
            """CREATE TABLE samples (
                box INTEGER NOT NULL, width INTEGER NOT NULL, slot INTEGER NOT NULL, names INTEGER NOT NULL,
                count INTEGER NOT NULL, vals BLOB NOT NULL, crc INTEGER NOT NULL,
                PRIMARY KEY (box, width, slot)) WITHOUT ROWID""",
            """CREATE TABLE runs (
                box INTEGER NOT NULL, run TEXT NOT NULL, stamp INTEGER NOT NULL, at REAL NOT NULL,
                body BLOB NOT NULL, crc INTEGER NOT NULL, PRIMARY KEY (box, run))""",
            """CREATE TABLE curves (
                box INTEGER NOT NULL, run TEXT NOT NULL, metric TEXT NOT NULL, chunk INTEGER NOT NULL,
                body BLOB NOT NULL, crc INTEGER NOT NULL, PRIMARY KEY (box, run, metric, chunk))""",
            """CREATE TABLE minutes (
                box INTEGER NOT NULL, minute INTEGER NOT NULL, currency TEXT NOT NULL, rate REAL NOT NULL,
                covered INTEGER NOT NULL, idle INTEGER NOT NULL, busy INTEGER NOT NULL,
                billed REAL NOT NULL, idle_billed REAL NOT NULL, spent REAL, since REAL, at REAL,
                gap REAL NOT NULL, gap_from REAL NOT NULL, crc INTEGER NOT NULL,
                PRIMARY KEY (box, minute, currency)) WITHOUT ROWID""",
            """CREATE TABLE days (
                box INTEGER NOT NULL, day TEXT NOT NULL, currency TEXT NOT NULL, billed REAL NOT NULL,
                idle_billed REAL NOT NULL, crc INTEGER NOT NULL, PRIMARY KEY (box, day, currency)) WITHOUT ROWID""",
            "CREATE TABLE marks (name TEXT PRIMARY KEY, value INTEGER NOT NULL, crc INTEGER NOT NULL)",
        ),
    ),
    Step(
        2,
        "what happened, and an index of the audit log",
        (
            """CREATE TABLE events (
                at REAL NOT NULL, box INTEGER NOT NULL, text TEXT NOT NULL, level TEXT NOT NULL,
                crc INTEGER NOT NULL, PRIMARY KEY (at, box, text)) WITHOUT ROWID""",
            """CREATE TABLE audit (
                path TEXT NOT NULL, start INTEGER NOT NULL, at REAL NOT NULL, box TEXT NOT NULL,
                verb TEXT NOT NULL, event TEXT NOT NULL, instance TEXT NOT NULL, who TEXT NOT NULL,
                text TEXT NOT NULL, crc INTEGER NOT NULL, PRIMARY KEY (path, start))""",
        ),
    ),
    Step(
        3,
        "by which name a fleet has, or had, a box",
        (
            """CREATE TABLE fleets (
                fleet TEXT NOT NULL, name TEXT NOT NULL, box INTEGER NOT NULL, crc INTEGER NOT NULL,
                PRIMARY KEY (fleet, name, box)) WITHOUT ROWID""",
        ),
    ),
)

VERSION = STEPS[-1].version
