"""Asks a box for parts of a log that are not kept here: older lines, a line by its number, a search.

A box may answer anything: what it sends is bounded, and what makes no sense is an error in words.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from typing import Any

import asyncssh
import msgspec
from rgt_wire.log_text import line_text

from rgt_tui.fleet.logs.kept_lines import FilePlace
from rgt_tui.fleet.work.agent_answers import Row, ask, number
from rgt_tui.model import clean
from rgt_tui.ssh import (
    CatFailed,
    CommandFailed,
    Deployed,
    FileBegins,
    Unreachable,
    cat,
    run,
)

PIECE_BYTES = 512 << 10
"""Of older lines, at a time."""
SECONDS = 30.0
COUNT_SECONDS = 20.0
SEARCH_SECONDS = 900.0
MOST_HITS = 1000
HIT_CHARACTERS = 300
MOST_SENT_KIB = 768
"""Of the lines that were found: further ones are only counted."""
_NOTHING = hashlib.sha256(b"").hexdigest()


class LogPiece(msgspec.Struct, frozen=True, kw_only=True):
    """Some whole lines of a log."""

    lines: tuple[str, ...]
    place: FilePlace
    """Where the first of them begins."""
    end: int
    """Byte behind the last of them."""
    size: int
    """Of the file now."""


class BoxHit(msgspec.Struct, frozen=True, kw_only=True):
    """A line that was found on the box."""

    text: str
    place: FilePlace


class BoxSearch(msgspec.Struct, frozen=True, kw_only=True):
    """How far a search on the box is."""

    hits: tuple[BoxHit, ...] = ()
    """Those that came with this answer; of all, the newest come first."""
    matches: int = 0
    """In all."""
    read: int = 0
    """Bytes that were searched."""
    ended: bool = False
    incomplete: str = ""
    """Why not everything was searched; empty = it was, as far as it has come."""


def lines_of(data: bytes) -> tuple[str, ...]:
    """Return the lines of a log as the agent shows them: a progress bar in its last state, long ones cut."""
    return tuple(clean(line_text(raw)) for raw in data.split(b"\n")[:-1])


async def log_piece(
    connection: asyncssh.SSHClientConnection,
    deployed: Deployed,
    path: str,
    inode: int,
    start: int,
    stop: int,
) -> LogPiece:
    """Read the whole lines between two bytes of a log; of a rotated one, too.

    Args:
        connection: To the box.
        deployed: The agent there.
        path: Of the log.
        inode: Of the file that the bytes are of.
        start: Where to begin; a line that began before it is left out.
        stop: Where to end; a line begins there, or one that ends behind it is left out.

    Raises:
        BoxError: that file, or the box, cannot be read any more.
    """
    begin = max(0, start - 1)  # the byte before tells whether a line begins here
    words = ("--path", _literal(path), "--cursor", f"{inode}:{begin}:0:{_NOTHING}", "--until", str(stop))
    data = bytearray()
    size = stop
    try:
        async with asyncio.timeout(SECONDS):
            async for item in cat(connection, deployed, *words, silence=SECONDS):
                if isinstance(item, FileBegins):
                    if item.inode != inode or item.start != begin:
                        raise CatFailed(
                            "that part of the log is no longer on the box: it was cut or replaced"
                        )
                    size = item.size
                    continue
                data += item
                if len(data) > stop - begin:
                    raise CatFailed("the box sent more of the log than was asked for")
    except TimeoutError:
        raise CommandFailed(f"the box did not send that part of the log within {SECONDS:g} s") from None
    except EOFError as error:
        raise Unreachable(clean(str(error))) from error
    first = 0 if begin == 0 and start == 0 else data.find(b"\n") + 1
    if first == 0 and start > 0:
        first = len(data)
    end = data.rfind(b"\n") + 1
    if end <= first:
        return LogPiece(lines=(), place=FilePlace(inode, begin + first), end=begin + first, size=size)
    lines = lines_of(bytes(data[first:end]))
    return LogPiece(lines=lines, place=FilePlace(inode, begin + first), end=begin + end, size=size)


def _literal(path: str) -> str:
    """Return a path that the agent does not take for a glob."""
    return "".join(f"[{character}]" if character in "*?[" else character for character in path)


class _Begins(msgspec.Struct, frozen=True):
    t: str
    inode: int = 0
    start: int = 0
    lines: int = -1


async def _asked_of_cat(
    connection: asyncssh.SSHClientConnection, deployed: Deployed, words: tuple[str, ...]
) -> list[_Begins]:
    done = await run(
        connection,
        deployed.command("cat", *words),
        seconds=COUNT_SECONDS,
        most_bytes=64 << 10,
        name="rgt-box cat",
    )
    rows = []
    for raw in done.out.splitlines():
        at = raw.find(b'{"')
        try:
            rows.append(msgspec.json.decode(raw[at:] if at >= 0 else b"", type=_Begins))
        except (msgspec.DecodeError, RecursionError):
            continue
    if not rows or rows[-1].t == "error":
        raise CommandFailed(f"rgt-box cat: {done.words or 'no answer'}")
    return rows


async def place_of_line(
    connection: asyncssh.SSHClientConnection, deployed: Deployed, path: str, line: int
) -> FilePlace:
    """Return where a line of a log begins, counted from 1.

    Raises:
        BoxError: it is not known.
    """
    words = ("--path", _literal(path), "--line", str(line), "--until", "0")
    begins = next((row for row in await _asked_of_cat(connection, deployed, words) if row.t == "file"), None)
    if begins is None or begins.start < 0:
        raise CommandFailed("rgt-box cat: it did not say where the line begins")
    return FilePlace(begins.inode, begins.start)


async def lines_before(
    connection: asyncssh.SSHClientConnection, deployed: Deployed, path: str, place: FilePlace
) -> int:
    """Return how many lines of a log come before a place.

    Raises:
        BoxError: it is not known, such as where counting takes too long.
    """
    cursor = f"{place.inode}:{place.offset}:0:{_NOTHING}"
    words = ("--path", _literal(path), "--cursor", cursor, "--count", "--until", str(place.offset))
    rows = await _asked_of_cat(connection, deployed, words)
    if rows[0].inode != place.inode or rows[-1].lines < 0:
        raise CommandFailed("rgt-box cat: that part of the log is no longer on the box")
    return rows[-1].lines


async def find_on_box(
    connection: asyncssh.SSHClientConnection,
    deployed: Deployed,
    path: str,
    wanted: str,
    *,
    fixed: bool,
    fold: bool,
    each: Callable[[BoxSearch], None],
) -> BoxSearch:
    """Search a whole log on the box, its end first; not more than about 1 MB is sent.

    Args:
        connection: To the box.
        deployed: The agent there.
        path: Of the log.
        wanted: A text, or a regular expression of Python.
        fixed: It is a text.
        fold: Upper and lower case are the same.
        each: Told what comes, as it comes.

    Returns:
        How it ended.

    Raises:
        BoxError: the box cannot be asked, or refuses the expression.
    """
    words = [
        "grep",
        "--count",
        "--nice",
        "--progress",
        "0.5",
        "--max",
        str(MOST_HITS),
        "--cut",
        str(HIT_CHARACTERS),
    ]
    words += [
        "--most-kib",
        str(MOST_SENT_KIB),
        "--limit-mib",
        str(1 << 30),
        "--timeout",
        f"{SEARCH_SECONDS:g}",
    ]
    words += ["--fixed"] * fixed + ["--ignore-case"] * fold + ["--", wanted, path]
    told = 0
    last = BoxSearch()

    def take(row: Row) -> None:
        nonlocal told, last
        if row.get("end") is True:
            why = row.get("stopped") or next(
                (str(one.get("error")) for one in row.get("problems") or () if isinstance(one, dict)), ""
            )
            last = BoxSearch(
                matches=number(row, "matches"),
                read=number(row, "read"),
                ended=True,
                incomplete=clean(str(why))[:200],
            )
            return
        if row.get("progress") is True:
            each(BoxSearch(matches=number(row, "matches"), read=number(row, "read")))
            return
        hit = _hit(row)
        if hit is not None and told < MOST_HITS:
            told += 1
            each(BoxSearch(hits=(hit,)))

    answer = await ask(connection, deployed, words, seconds=SEARCH_SECONDS + SECONDS, each=take)
    if not last.ended:
        raise CommandFailed(f"rgt-box grep: {answer.words or f'exit {answer.status}'}")
    return last


def _hit(row: dict[str, Any]) -> BoxHit | None:
    text, offset, inode = row.get("text"), row.get("offset"), row.get("inode")
    if not isinstance(text, str) or not isinstance(offset, int) or not isinstance(inode, int) or offset < 0:
        return None
    return BoxHit(text=clean(text[: HIT_CHARACTERS + 20]), place=FilePlace(inode, offset))
