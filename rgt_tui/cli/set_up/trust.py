"""``rgt trust``: review a fleet file from another person's directory, and allow it to act."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from difflib import unified_diff
from pathlib import Path

from rgt_tui.cli.commands import FAILED, OK, USAGE
from rgt_tui.cli.opening import NONE_FOUND, meant
from rgt_tui.cli.printing import complain, interactive, print_json, print_lines, says_yes
from rgt_tui.cli.set_up.set_up_arguments import TrustArguments
from rgt_tui.fleet.config import FleetFileError, trusted, whole
from rgt_tui.fleet.config.trusted import Entry, Seen, differs, look, read_book, revoke


def run_trust(arguments: TrustArguments) -> int:
    """Show and ask, list, or revoke; return the exit code."""
    book = trusted.default_path(os.environ)
    try:
        if arguments.list_only:
            return _list(book, as_json=arguments.json)
        place = meant(arguments)
        if arguments.file is None and place is None:
            raise FleetFileError(NONE_FOUND)
        if arguments.file:
            path = Path(arguments.file).expanduser()
        elif place:
            path = place.path
        else:
            path = Path()
        if arguments.revoke:
            return _revoke(book, path, as_json=arguments.json)
        return _trust(book, path, yes=arguments.yes, as_json=arguments.json)
    except FleetFileError as error:
        complain(error)
        return USAGE


def _list(book: Path, *, as_json: bool) -> int:
    for path, entry in sorted(read_book(book).files.items()):
        why = _standing(path, entry)
        if as_json:
            _json(path, trusted=why is None, since=entry.at, why=why)
            continue
        day = time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.at))
        print_lines(f"{day}  {path}" + (f"  ({why})" if why else ""))
    return OK


def _standing(path: str, entry: Entry) -> str | None:
    """Return why a trusted file is not trusted in its current form; None if it is."""
    try:
        source, config = whole(Path(path), os.environ)
    except FleetFileError as error:
        return str(error)
    return differs(entry, look(source, config, os.environ))


def _revoke(book: Path, path: Path, *, as_json: bool) -> int:
    real = Path(os.path.realpath(path))
    was = revoke(book, real)
    if as_json:
        _json(str(real), trusted=False, since=None, why=None if was else "was not trusted")
    elif was:
        print_lines(f"{real} is no longer trusted")
    else:
        complain(f"{real} was not trusted; rgt trust --list shows trusted files")
    if was:
        return OK
    return FAILED


def _trust(book: Path, path: Path, *, yes: bool, as_json: bool) -> int:
    source, config = whole(path, os.environ)
    entry = trusted.look(source, config, os.environ)
    known = trusted.read_book(book).files.get(str(source.real))
    why = trusted.differs(known, entry)
    out = sys.stderr if as_json else sys.stdout
    if why is None:
        print_lines(f"{source.real} is already trusted", out=out)
    else:
        for line in _shown(str(source.real), known, entry):
            out.write(line + "\n")
        out.write("\nTrusted, it\n")
        for line in trusted.asks(config) or (
            "watches its boxes, and does nothing else on this machine",
        ):
            out.write(f"  - {visible(line)}\n")
        out.flush()
        if not yes and not _agreed(source.real):
            complain(f"{source.real} is not trusted; nothing was changed")
            return FAILED
        # Trust what was shown, not the file's current content.
        trusted.trust(book, source.real, entry)
        print_lines(
            f"{source.real} is trusted with this content; rgt trust --revoke undoes it", out=out
        )
    if as_json:
        _json(
            str(source.real),
            trusted=True,
            since=entry.at if known is None or why else known.at,
            why=None,
        )
    return OK


def _agreed(path: Path) -> bool:
    """Ask for consent; without a terminal, refuse, because no person has read the text."""
    if not interactive():
        complain(f"cannot prompt here; once you have read {path}: rgt trust --yes")
        return False
    return says_yes("Trust it?")


def _shown(path: str, known: Entry | None, entry: Entry) -> Iterator[str]:
    """Yield the text to review: all of it if nothing was trusted before, else the changes."""
    if known is None or known.file.sha256 != entry.file.sha256:
        yield from _compared(path, known.file if known else None, entry.file)
    for name, seen in entry.beside.items():
        before = known.beside.get(name) if known else None
        if before is None or before.sha256 != seen.sha256:
            yield ""
            yield from _compared(name, before or Seen(""), seen)


def _compared(path: str, before: Seen | None, now: Seen) -> Iterator[str]:
    shown = visible(path)
    if not now.sha256:
        yield f"{shown} is missing or cannot be read"
    elif not now.text:
        yield f"{shown} is not text, or too long to show: sha256 {now.sha256}"
    elif before is None or not before.text:
        yield f"{shown}, whole:"
        yield from (f"  {visible(line)}" for line in now.text.rstrip("\n").split("\n"))
    else:
        old, new = before.text.split("\n"), now.text.split("\n")
        lines = list(
            unified_diff(old, new, f"{path} as it was trusted", f"{path} as it is now", lineterm="")
        )
        yield from (
            visible(line) for line in lines or [f"{path}: only its line endings have changed"]
        )


def visible(text: str) -> str:
    """Return a line with invisible and direction-changing characters escaped."""
    return "".join(
        char
        if char.isprintable()
        else "    "
        if char == "\t"
        else char.encode("unicode_escape").decode()
        for char in text
    )


def _json(path: str, *, trusted: bool, since: float | None, why: str | None) -> None:
    print_json({"path": path, "trusted": trusted, "since": since, "why": why})
