"""``rgt handbook``: search, show, and draft pages."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator

import msgspec

from rgt_tui.cli.commands import FAILED, OK, USAGE
from rgt_tui.cli.printing import json_line, print_error, print_lines
from rgt_tui.cli.watch_arguments import HandbookArguments
from rgt_tui.files import replace_file
from rgt_tui.handbook import (
    ACTION_WORDS,
    HandbookError,
    HandbookPage,
    TextIndex,
    all_pages,
    find_pages,
    own_directory,
)
from rgt_tui.health import ids_referring_to
from rgt_tui.language import translate
from rgt_tui.model import Gotcha, Profile
from rgt_tui.profiles import ProfileError, all_profiles

DRAFT = """\
# A page of your own: rgt handbook {id} shows it, rgt triage and the screens find it. docs/handbook.md has every key.
topic = "My own"

[[pages]]
id = "{id}"
title = "What broke, in one line"
severity = "fatal"      # fatal, degrading, silent-wrong or cost
# What to do: retry-same-config, resume-from-latest, free-space, enlarge-disk, fix-code, re-rent, ask-user or none
action = "fix-code"
symptom = "What you see."
cause = "Why it happens."
fixes = [
    {{ text = "What to do first", command = "df -h" }},
    {{ text = "And then" }},
]
never = "What makes it worse."
# For rgt triage and the screens: what ran out or broke, regular expressions for log lines, and in
# lower case a piece of text that each such line contains.
resource = "the shards"
patterns = ['MyError: shard \\d+ is missing']
needles = ["myerror: shard "]
"""


def run_handbook(arguments: HandbookArguments) -> int:
    """Search, show or draft; return the exit status."""
    words = arguments.term
    if words[:1] == ["new"]:
        return _write_draft(words[1:])
    term = " ".join(words)
    try:
        # Own pages too: a broken one is named instead of skipped, since its author wants to know.
        pages = all_pages()
    except HandbookError as error:
        print_error(error)
        return USAGE
    if term:
        found = find_pages(term, pages.values())
    else:
        found = list(pages.values())
    traps: list[tuple[Profile, Gotcha]] = []
    try:
        # An exact id means that page alone; traps would only be noise below it.
        if term.upper() not in pages:
            traps = _find_traps(term)
    except ProfileError as error:
        print_error(error)  # the pages are useful without the profiles
        if not found:
            return USAGE
    if not found and not traps:
        print_error(
            translate(
                "no page matches {term!r}; rgt handbook lists all, rgt handbook new ID drafts one",
                term=term,
            )
        )
        return FAILED
    if arguments.json:
        for page in found:
            # Bytes, not text: JSON is UTF-8 in every locale.
            sys.stdout.buffer.write(json_line(msgspec.to_builtins(page)))
        for profile, trap in traps:
            sys.stdout.buffer.write(json_line({"platform": profile.id} | msgspec.to_builtins(trap)))
    elif len(found) + len(traps) == 1:
        if found:
            rows = page_lines(found[0])
        else:
            rows = _trap_lines(*traps[0])
        print_lines(*rows)
    else:
        # Best match first; the traps of platforms follow, because a page applies everywhere.
        print_lines(*(f"{page.id:<8} {translate(page.title)}" for page in found))
        print_lines(*(f"{trap.id:<8} {of.id}: {trap.symptom}" for of, trap in traps))
    sys.stdout.flush()
    return OK


def page_lines(page: HandbookPage) -> Iterator[str]:
    """Yield a page as Markdown."""
    yield f"# {page.id}: {translate(page.title)}"
    yield ""
    own = translate(", your own page") if page.own else ""
    yield translate(
        "{topic}{own}. {severity}; {action}.",
        topic=translate(page.topic),
        own=own,
        severity=translate(page.severity.value),
        action=translate(ACTION_WORDS[page.action]),
    )
    yield ""
    yield translate("**Never.** {what}", what=translate(page.never))
    yield ""
    yield translate("**Fix.**")
    yield ""
    for number, fix in enumerate(page.fixes, 1):
        yield f"{number}. {translate(fix.text)}"
        if fix.command is not None:
            yield f"   `{fix.command}`"
    yield ""
    yield translate("**Symptom.** {what}", what=translate(page.symptom))
    yield ""
    yield translate("**Cause.** {what}", what=translate(page.cause))
    if page.beats:
        yield ""
        yield translate("More exact than {beats}.", beats=", ".join(page.beats))
    # From the tables themselves, so that a page cannot name an alert that does not exist.
    alerts, checks = ids_referring_to(page.id)
    if alerts or checks:
        if alerts:
            told = [translate("alerts {names}", names=", ".join(f"`{alert}`" for alert in alerts))]
        else:
            told = []
        told += [translate("checks {names}", names=", ".join(checks))] if checks else []
        yield ""
        yield translate("**Named by** {told}.", told="; ".join(told))
    if page.sources:
        yield ""
        yield translate("Sources: {sources}", sources=", ".join(page.sources))


def _find_traps(term: str) -> list[tuple[Profile, Gotcha]]:
    """Return the platform traps for a term: the one with that id, else those about most of its words."""
    known = [(profile, trap) for profile in all_profiles().values() for trap in profile.gotchas]
    # An id is unique over all platforms.
    exact = [one for one in known if one[1].id.lower() == term.lower()]
    if exact or not term:
        return exact
    index = TextIndex(
        [
            # The names of the platform count as words: "autodl data disk" finds its traps.
            [(f"{profile.id} . {profile.name} . {trap.id}", 1.0)]
            + [(text, 1.0) for text in (trap.symptom, trap.cause, trap.fix, trap.example or "")]
            for profile, trap in known
        ]
    )
    # A trap must have 70% of the words: below that, common ones such as "disk" match nearly all.
    enough, most = 0.7, 5
    found = [
        (score, number)
        for number, (score, share) in index.score_texts(term).items()
        if share >= enough
    ]
    return [known[number] for _, number in sorted(found, reverse=True)[:most]]


def _trap_lines(profile: Profile, trap: Gotcha) -> Iterator[str]:
    """Yield a trap of a platform as Markdown."""
    yield f"# {trap.id}: a trap of {profile.name}"
    for name, text in (
        ("Symptom", trap.symptom),
        ("Cause", trap.cause),
        ("Fix", trap.fix),
        ("Note", trap.note),
    ):
        if text:
            yield ""
            yield f"**{name}.** {text}"
    yield ""
    yield translate("All of the platform: `rgt profiles show {id}`", id=profile.id)


def _write_draft(words: list[str]) -> int:
    """Write a draft; an existing file is never changed."""
    if len(words) != 1 or not re.fullmatch(r"[A-Z][A-Za-z0-9]*(?:-[A-Za-z0-9]+)*", words[0]):
        print_error(
            translate(
                "rgt handbook new ID: the id begins with a capital letter and has letters, digits "
                "and hyphens, as LAB1"
            )
        )
        return USAGE
    # The pattern above also keeps the id from naming a path outside this directory.
    path = own_directory() / f"{words[0]}.toml"
    try:
        # An own page replaces a shipped one of the same id, which `new` must not do by accident.
        if words[0] in all_pages():
            print_error(
                translate(
                    "page {words} already exists: rgt handbook {words} shows it", words=words[0]
                )
            )
            return FAILED
        # Explicit modes, because pages that others can write are not read.
        for folder in (path.parent.parent, path.parent):
            folder.mkdir(parents=True, exist_ok=True, mode=0o755)
        # Not in `all_pages` if it is broken: it is still the person's work.
        if path.exists():
            print_error(translate("{path} already exists; not overwritten", path=path))
            return FAILED
        replace_file(path, DRAFT.format(id=words[0]).encode())
    except (OSError, HandbookError) as error:
        print_error(
            translate(
                "cannot write {path}: {error}",
                path=path,
                error=getattr(error, "strerror", None) or error,
            )
        )
        return FAILED
    print_lines(
        translate("{path}: written; edit it, then: rgt handbook {words}", path=path, words=words[0])
    )
    return OK
