"""Reads ``handbook/*.toml`` into pages: strict, cached, from a source tree or a wheel alike.

A person's own pages are in ``$XDG_CONFIG_HOME/rgt/handbook``; they replace shipped ones with the
same id.
"""

from __future__ import annotations

import difflib
import enum
import functools
import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import msgspec

from rgt_tui.files import NotOurs, config_directory, read_own
from rgt_tui.model import FixStep, FrozenStruct, Severity

# An own page is a few kilobytes; this refuses a file that was put there by mistake.
MOST_BYTES = 4 << 20
_ID = re.compile(r"[A-Z][A-Za-z0-9]*(?:-[A-Za-z0-9]+)*")
_PACKAGE = Path(__file__).resolve().parents[1]


class HandbookError(Exception):
    """A page that cannot be used; the message has the file, the page and the key."""


class AdvisedAction(enum.StrEnum):
    """What to do now. Only advice: rgt does none of it."""

    RETRY = "retry-same-config"
    RESUME = "resume-from-latest"
    FREE_SPACE = "free-space"
    ENLARGE = "enlarge-disk"
    FIX_CODE = "fix-code"
    RE_RENT = "re-rent"
    ASK = "ask-user"
    NONE = "none"


class PageRole(enum.StrEnum):
    """Place of a page in the chain of events, which decides the order of findings."""

    CAUSE = "cause"
    CATCH_ALL = "catch-all"
    """It covers a whole kind of failures: never before a cause."""
    UNKNOWN = "unknown"
    """It says that something failed, but not what: given way to by any cause or catch-all."""
    CONSEQUENCE = "consequence"
    """It only follows from something else, and gives way like an unknown failure, but behind it."""


ACTION_WORDS = {
    AdvisedAction.RETRY: "try the identical command again",
    AdvisedAction.RESUME: "resume from the newest checkpoint",
    AdvisedAction.FREE_SPACE: "make room, or enlarge the disk",
    AdvisedAction.ENLARGE: "enlarge the disk: what fills it must be kept",
    AdvisedAction.FIX_CODE: "fix the code or config first",
    AdvisedAction.RE_RENT: "rent another machine",
    AdvisedAction.ASK: "a person has to decide",
    AdvisedAction.NONE: "nothing: it is not a fault",
}


class PageFix(FixStep, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A step of a page."""

    when: str = ""
    """A regular expression: the step is left out for a proving line that it does not match."""


class HandbookPage(FrozenStruct, kw_only=True, forbid_unknown_fields=True):
    """One known failure of a training."""

    id: str
    """Stable, never renamed, e.g. ``U7``."""
    title: str
    severity: Severity
    action: AdvisedAction
    symptom: str
    """What a person sees."""
    cause: str
    fixes: tuple[PageFix, ...]
    """In the order in which to try them; commands are shown, never run."""
    never: str
    asked: tuple[str, ...] = ()
    """Words and questions that lead to it, where its texts use others."""
    resource: str = ""
    """What ran out or broke, in a few words; ``{name}`` is replaced with the first group of the
    pattern.
    """
    terminal_only: bool = False
    """It appears in the user's own terminal, not in a run's log, and is not searched on boxes."""
    patterns: tuple[str, ...] = ()
    """Regular expressions, searched in a log with ``^`` and ``$`` matching at every line."""
    needles: tuple[str, ...] = ()
    """Lower-case literals, one of which occurs in every match of a pattern: for the cheap first
    pass.
    """
    word_groups: tuple[tuple[tuple[str, ...], ...], ...] = ()
    """Each a list of groups of words, in lower case: it matches a line that has one of each group.
    A word may continue in the line, but not begin within another one.
    """
    end_words: tuple[tuple[tuple[str, ...], ...], ...] = ()
    """The same for lines that report a failure at the end of a log of which no line names a cause:
    wider words, which in the middle of a log would often mean nothing.
    """
    unless: tuple[str, ...] = ()
    """Words of lines that `word_groups` and `end_words` do not match."""
    needle_pattern: str | None = None
    """A cheap RE2 expression used instead of literals that would be too common."""
    hints: tuple[str, ...] = ()
    """Regular expressions that match an exception's own line from its start, and may continue with
    its innermost frame in the next line. For an unknown exception, the page with a matching hint is
    offered; of several, the one whose first group begins earliest.
    """
    beats: tuple[str, ...] = ()
    """More general pages that this one replaces."""
    role: PageRole = PageRole.CAUSE
    reports: tuple[str, ...] = ()
    """Regular expressions for lines, of any page, in which a launcher, scheduler or watchdog tells
    how another process ended: what they name stands behind what that process said itself.
    """
    points: tuple[str, ...] = ()
    """The same for lines that name nothing, such as an exit status of 1, or an abort after an
    error: with them alone, a page is a mere consequence.
    """
    passing: bool = False
    """It may be retried automatically, or be optional: if the log continues after it, it is no
    finding.
    """
    suggests: bool = False
    """Its lines only suggest a faster setting to a run that is well: in a file they are advice, and
    no finding.
    """
    sources: tuple[str, ...] = ()
    """Sources of the facts, with the month of the check if known."""
    topic: str = ""
    """Heading of its file."""
    own: bool = False
    """Whether it is a person's own page."""

    @property
    def first_words(self) -> tuple[str, ...]:
        """Literals, one of which occurs in every line that `word_groups` match."""
        return tuple(word for first, *_ in self.word_groups for word in first)


class _HandbookFile(FrozenStruct, kw_only=True, forbid_unknown_fields=True):
    topic: str
    pages: tuple[HandbookPage, ...]


def choose_fixes(fixes: Iterable[FixStep], line: str) -> tuple[FixStep, ...]:
    """Return the steps that apply to a proving line."""
    return tuple(
        FixStep(fix.text, fix.command)
        for fix in fixes
        if not isinstance(fix, PageFix) or re.search(fix.when, line) is not None
    )


def own_directory(env: Mapping[str, str] = os.environ) -> Path:
    """Return the directory of a person's own pages."""
    return config_directory(env) / "handbook"


@functools.cache
def data_directory() -> Path:
    """Return the directory of the shipped pages.

    Raises:
        HandbookError: it is missing.
    """
    # The wheel's copy first, then the source tree.
    for path in (_PACKAGE / "_data" / "handbook", _PACKAGE.parent / "handbook"):
        if path.is_dir():
            return path
    raise HandbookError("the handbook is missing from this installation")


@functools.cache
def shipped_pages() -> Mapping[str, HandbookPage]:
    """Return the pages that are part of rgt, by id, in the order of their files.

    Raises:
        HandbookError: they are missing or broken.
    """
    # Their patterns are not checked here, unlike those of own pages: a test does it, and it takes
    # 40 ms.
    files = [
        _parse_pages(path.read_bytes(), path.name)
        for path in sorted(data_directory().glob("*.toml"))
    ]
    return _by_id(page for pages in files for page in pages)


def all_pages(env: Mapping[str, str] = os.environ) -> Mapping[str, HandbookPage]:
    """Return shipped and own pages by id; own pages replace shipped ones.

    Raises:
        HandbookError: an own file cannot be used; the message names it.
    """
    directory = own_directory(env)
    try:
        paths = sorted(path for path in directory.iterdir() if path.suffix == ".toml")
    # No own pages: the usual case, and no copy of the mapping.
    except FileNotFoundError:
        return shipped_pages()
    except OSError as error:
        raise HandbookError(f"{directory}: cannot be read: {error.strerror}") from error
    own = [msgspec.structs.replace(page, own=True) for path in paths for page in _read_own(path)]
    # Own ones last, so that they win.
    return {**shipped_pages(), **_by_id(own)}


def _read_own(path: Path) -> tuple[HandbookPage, ...]:
    try:
        # Refused if others can write it: its regular expressions run on every log.
        data = read_own(path, MOST_BYTES)
    except NotOurs as error:
        raise HandbookError(str(error)) from error
    except OSError as error:
        raise HandbookError(f"{path}: cannot be read: {error.strerror or error}") from error
    return read_pages(data, str(path))


def read_pages(data: bytes, name: str) -> tuple[HandbookPage, ...]:
    """Return the pages of a file.

    Args:
        data: The file.
        name: Its name in messages.

    Raises:
        HandbookError: it is not TOML, violates the schema, or has an invalid regular expression.
    """
    pages = _parse_pages(data, name)
    for page in pages:
        for wrong in _find_page_faults(page):
            raise HandbookError(f"{name}: page {page.id}: {wrong}")
    return pages


def _parse_pages(data: bytes, name: str) -> tuple[HandbookPage, ...]:
    try:
        found = msgspec.convert(tomllib.loads(data.decode("utf-8")), _HandbookFile)
    except UnicodeDecodeError as error:
        raise HandbookError(f"{name}: is not UTF-8 text") from error
    except tomllib.TOMLDecodeError as error:
        raise HandbookError(f"{name}: not TOML: {error}") from error
    except msgspec.ValidationError as error:
        raise HandbookError(f"{name}: {_explain_error(str(error))}") from error
    return tuple(
        msgspec.structs.replace(page, topic=page.topic or found.topic) for page in found.pages
    )


def _explain_error(message: str) -> str:
    """Add the closest known key to the message about an unknown one."""
    unknown = re.search(r"unknown field `(.+?)`", message)
    if unknown is None:
        return message
    near = difflib.get_close_matches(
        unknown.group(1), [*HandbookPage.__struct_fields__, "pages", *PageFix.__struct_fields__], 1
    )
    return message + (f"; did you mean '{near[0]}'?" if near else "")


def _find_page_faults(page: HandbookPage) -> Iterator[str]:
    if not _ID.fullmatch(page.id):
        yield "id: must begin with a capital letter and have letters, digits and hyphens alone"
    for key in ("title", "symptom", "cause", "never"):
        if not getattr(page, key).strip():
            yield f"{key}: is empty"
    if not page.fixes:
        yield "fixes: there is none"
    longest_pattern = 2000
    for key, patterns in (
        ("patterns", page.patterns),
        ("hints", page.hints),
        ("when", tuple(fix.when for fix in page.fixes if fix.when)),
        ("reports", page.reports),
        ("points", page.points),
        ("needle_pattern", (page.needle_pattern,) if page.needle_pattern is not None else ()),
    ):
        for pattern in patterns:
            if len(pattern) > longest_pattern:
                yield f"{key}: one is longer than {longest_pattern} characters"
            try:
                # By `re`, as they run; only `needle_pattern` goes to RE2.
                compiled = re.compile(pattern, re.MULTILINE)
            except re.error as error:
                yield f"{key}: not a regular expression: {error}: {pattern[:60]}"
            else:
                # It would match every line of every log.
                if key != "when" and compiled.search(""):
                    yield f"{key}: it matches an empty line: {pattern[:60]}"
    if (page.patterns or page.word_groups) and not page.resource:
        yield "resource: what ran out or broke? A page with patterns needs it"
    # Short literals occur in nearly every line, and the first pass would keep them all.
    if any(needle != needle.lower() or len(needle) < 3 for needle in page.needles):
        yield "needles: each has at least three characters, in lower case"


def _by_id(pages: Iterable[HandbookPage]) -> dict[str, HandbookPage]:
    found: dict[str, HandbookPage] = {}
    for page in pages:
        if page.id in found:
            raise HandbookError(f"two pages have the id {page.id}")
        found[page.id] = page
    return found
