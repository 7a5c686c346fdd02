"""Run a verb of the agent; return its JSON rows, streamed if wanted, and its exit status."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from rgt_tui.language import translate
from rgt_tui.model import FrozenStruct, clean_text
from rgt_tui.ssh import (
    BoxTransport,
    CommandFailed,
    DeployedAgent,
    LineSplitter,
    extract_record,
    open_bulk,
)

Row = dict[str, Any]


class AgentAnswer(FrozenStruct):
    """The result of a verb."""

    status: int
    words: str
    """The last line of its standard error, printable; empty = no output."""
    rows: tuple[Row, ...] = ()

    @property
    def last_row(self) -> Row:
        """The last row, or an empty one."""
        if self.rows:
            return self.rows[-1]
        return {}


async def query_agent(
    connection: BoxTransport,
    deployed: DeployedAgent,
    words: Sequence[str],
    *,
    data: bytes = b"",
    seconds: float,
    each: Callable[[Row], None] | None = None,
) -> AgentAnswer:
    """Run a verb and read its rows.

    Lines that are not JSON objects, such as a greeting of the login shell, are skipped.

    Args:
        connection: To the box.
        deployed: Its agent.
        words: The verb and its arguments.
        data: Its standard input.
        seconds: How long it may take.
        each: Called with each row as it arrives, which the answer then lacks; None = the answer has
            all rows.

    Raises:
        CommandFailed: it took too long, was killed, or printed lines that are too long.
        BoxError: the connection was lost, or the box runs no commands.
    """
    rows: list[Row] = []
    status, last = await stream_rows(
        connection,
        deployed.build_command(*words),
        rows.append if each is None else each,
        data=data,
        seconds=seconds,
        name=f"rgt-box {words[0]}",
    )
    return AgentAnswer(status, last, tuple(rows))


async def stream_rows(
    connection: BoxTransport,
    command: str,
    each: Callable[[Row], None],
    *,
    data: bytes,
    seconds: float,
    name: str,
) -> tuple[int, str]:
    """Run a command that prints rows; return its exit status and its last error line.

    Args:
        connection: To the box.
        command: For the login shell of the box.
        each: Called with each row as it arrives.
        data: Its standard input.
        seconds: How long it may take.
        name: Its name in messages.

    Raises:
        CommandFailed: it took too long, was killed, or printed lines that are too long.
        BoxError: the connection was lost, or the box runs no commands.
    """
    lines = LineSplitter()

    def on_data(piece: bytes) -> None:
        for raw in lines.split_lines(piece):
            row = parse_row(raw)
            if row is not None:
                each(row)

    try:
        async with asyncio.timeout(seconds):
            channel = await open_bulk(connection, command, on_data)
            try:
                channel.write(data)
                channel.close_input()
                await channel.wait()
            finally:
                channel.close()
    except TimeoutError:
        raise CommandFailed(
            translate(
                "{name} did not end within {seconds:g} s on the box", name=name, seconds=seconds
            )
        ) from None
    if lines.oversized:
        raise CommandFailed(
            translate("{name} printed a line that is too long to be an answer", name=name)
        )
    if channel.status is None:
        raise CommandFailed(
            translate("{name} was killed on the box", name=name)
            + (f": {channel.last_error_line}" if channel.last_error_line else "")
        )
    return channel.status, channel.last_error_line


def parse_row(line: bytes) -> Row | None:
    """Return the JSON object at the end of a line, or None."""
    try:
        row = msgspec.json.decode(extract_record(line))
    except (msgspec.DecodeError, RecursionError):
        return None
    if isinstance(row, dict):
        return row
    return None


def row_text(row: Row, key: str, otherwise: str = "") -> str:
    """Return a value of a row as printable text, or `otherwise`."""
    value = row.get(key)
    if value is None:
        return otherwise
    return clean_text(str(value))


def rows_of(row: Row, key: str) -> list[Row]:
    """Return the objects in a list of a row; other values are skipped."""
    value = row.get(key)
    if isinstance(value, list):
        return [item for item in value if isinstance(item, dict)]
    return []


def row_count(row: Row, key: str) -> int:
    """Return a count of a row, or 0."""
    value = row.get(key)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    return 0


def row_texts(row: Row, key: str) -> list[str]:
    """Return a list of a row as printable texts, or an empty list."""
    value = row.get(key)
    if isinstance(value, list):
        return [clean_text(str(item)) for item in value]
    return []
