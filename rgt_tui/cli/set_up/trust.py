"""``rgt trust``: review a fleet file from another person's directory, and allow it to act."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from difflib import unified_diff
from pathlib import Path

from rgt_tui.cli.commands import FAILED, OK, USAGE
from rgt_tui.cli.opening import NONE_FOUND, find_fleet_place
from rgt_tui.cli.printing import confirm_yes, is_interactive, print_error, print_json, print_lines
from rgt_tui.cli.set_up.set_up_arguments import TrustArguments
from rgt_tui.fleet.config import FleetFileError, read_whole_file, trusted
from rgt_tui.fleet.config.trusted import (
    SeenFile,
    TrustedEntry,
    build_entry,
    describe_difference,
    read_book,
    revoke_trust,
)
from rgt_tui.language import translate


def run_trust(arguments: TrustArguments) -> int:
    """Show and ask, list, or revoke; return the exit code."""
    # Outside the working tree, so that a repository cannot bring its own trust.
    book = trusted.default_path(os.environ)
    try:
        if arguments.list_only:
            return _print_trusted(book, as_json=arguments.json)
        place = find_fleet_place(arguments)
        if arguments.file is None and place is None:
            raise FleetFileError(translate(NONE_FOUND))
        if arguments.file:
            path = Path(arguments.file).expanduser()
        elif place:
            path = place.path
        else:
            path = Path()
        if arguments.revoke:
            return _revoke_trust(book, path, as_json=arguments.json)
        return _trust_file(book, path, yes=arguments.yes, as_json=arguments.json)
    except FleetFileError as error:
        print_error(error)
        return USAGE


def _print_trusted(book: Path, *, as_json: bool) -> int:
    # Each file is read again: "trusted once" is not the question, but "trusted as it is now".
    for path, entry in sorted(read_book(book).files.items()):
        why = _find_doubt(path, entry)
        if as_json:
            _print_entry(path, trusted=why is None, since=entry.at, why=why)
            continue
        day = time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.at))
        print_lines(f"{day}  {path}" + (f"  ({why})" if why else ""))
    return OK


def _find_doubt(path: str, entry: TrustedEntry) -> str | None:
    """Return why a trusted file is not trusted in its current form; None if it is."""
    try:
        source, config = read_whole_file(Path(path), os.environ)
    except FleetFileError as error:
        return str(error)
    return describe_difference(entry, build_entry(source, config, os.environ))


def _revoke_trust(book: Path, path: Path, *, as_json: bool) -> int:
    # Trust is kept by the real path, so that a link cannot point it to another file.
    real = Path(os.path.realpath(path))
    was = revoke_trust(book, real)
    if as_json:
        _print_entry(
            str(real), trusted=False, since=None, why=None if was else translate("was not trusted")
        )
    elif was:
        print_lines(translate("{real} is no longer trusted", real=real))
    else:
        print_error(
            translate("{real} was not trusted; rgt trust --list shows trusted files", real=real)
        )
    if was:
        return OK
    return FAILED


def _trust_file(book: Path, path: Path, *, yes: bool, as_json: bool) -> int:
    source, config = read_whole_file(path, os.environ)
    entry = trusted.build_entry(source, config, os.environ)
    known = trusted.read_book(book).files.get(str(source.real))
    why = trusted.describe_difference(known, entry)
    # stdout has the JSON object alone.
    out = sys.stderr if as_json else sys.stdout
    if why is None:
        print_lines(translate("{real} is already trusted", real=source.real), out=out)
    else:
        for line in _review_lines(str(source.real), known, entry):
            out.write(line + "\n")
        # What the file makes this machine do is listed, because it is easy to miss in a long diff.
        out.write(translate("\nTrusted, it\n"))
        for line in trusted.list_local_actions(config) or (
            translate("watches its boxes, and does nothing else on this machine"),
        ):
            out.write(f"  - {escape_invisible(line)}\n")
        out.flush()
        if not yes and not _ask_consent(source.real):
            print_error(translate("{real} is not trusted; nothing was changed", real=source.real))
            return FAILED
        # Trust what was shown, not the file's current content.
        trusted.trust_file(book, source.real, entry)
        print_lines(
            translate(
                "{real} is trusted with this content; rgt trust --revoke undoes it",
                real=source.real,
            ),
            out=out,
        )
    if as_json:
        _print_entry(
            str(source.real),
            trusted=True,
            since=entry.at if known is None or why else known.at,
            why=None,
        )
    return OK


def _ask_consent(path: Path) -> bool:
    """Ask for consent; without a terminal, refuse, because no person has read the text."""
    if not is_interactive():
        print_error(
            translate("cannot prompt here; once you have read {path}: rgt trust --yes", path=path)
        )
        return False
    return confirm_yes(translate("Trust it?"))


def _review_lines(path: str, known: TrustedEntry | None, entry: TrustedEntry) -> Iterator[str]:
    """Yield the text to review: all of it if nothing was trusted before, otherwise the changes."""
    # If only a named file has changed, only that one is shown.
    if known is None or known.file.sha256 != entry.file.sha256:
        yield from _diff_lines(path, known.file if known else None, entry.file)
    for name, seen in entry.beside.items():
        if known:
            before = known.beside.get(name)
        else:
            before = None
        if before is None or before.sha256 != seen.sha256:
            yield ""
            yield from _diff_lines(name, before or SeenFile(""), seen)


def _diff_lines(path: str, before: SeenFile | None, now: SeenFile) -> Iterator[str]:
    shown = escape_invisible(path)
    if not now.sha256:
        yield translate("{shown} is missing or cannot be read", shown=shown)
    # The digest is still compared, so a later change ends the trust.
    elif not now.text:
        yield translate(
            "{shown} is not text, or too long to show: sha256 {sha256}",
            shown=shown,
            sha256=now.sha256,
        )
    elif before is None or not before.text:
        # Never trusted before, so there is nothing to compare with.
        yield f"{shown}, whole:"
        yield from (f"  {escape_invisible(line)}" for line in now.text.rstrip("\n").split("\n"))
    else:
        old, new = before.text.split("\n"), now.text.split("\n")
        lines = list(
            unified_diff(
                old,
                new,
                translate("{path} as it was trusted", path=path),
                translate("{path} as it is now", path=path),
                lineterm="",
            )
        )
        yield from (
            escape_invisible(line)
            for line in lines
            or [translate("{path}: only its line endings have changed", path=path)]
        )


def escape_invisible(text: str) -> str:
    """Return a line with invisible and direction-changing characters escaped."""
    # Escaped, not cleaned: a reviewer has to see that such a character is there.
    shown = ""
    for char in text.replace("\t", "    "):
        if not char.isprintable():
            char = char.encode("unicode_escape").decode()
        shown += char
    return shown


def _print_entry(path: str, *, trusted: bool, since: float | None, why: str | None) -> None:
    print_json({"path": path, "trusted": trusted, "since": since, "why": why})
