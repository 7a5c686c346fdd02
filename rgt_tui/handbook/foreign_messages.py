"""Messages of shells, tools and Windows in other languages, put into English for the patterns.

The table ``handbook/messages.json`` comes from the programs' own catalogues
(``scripts/collect_messages.py``); a finding still shows the line as it was written.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from rgt_tui.handbook.pages import data_directory
from rgt_tui.model import FrozenStruct

_PLACEHOLDER = re.compile(r"%(?:(\d)\$)?[-+ #0-9.]*(?:l|ll|z|j)?([a-zA-Z])")
_QUOTED = re.compile(r"[«„“「‘»] ?([^«»„“”「」‘’]{0,300}?) ?[»“”」’«]")
_SPACES = str.maketrans({"\xa0": " ", "\u202f": " ", "’": "'"})
LINE_OF_SCRIPT = ("%s: line %d: ", " line ")
"""What bash puts before a message: looked for only in lines that have a message."""


class ForeignMessage(NamedTuple):
    """One message in another language."""

    language: str
    needle: str
    """Its longest piece of fixed text; empty = it is too short to be looked for by itself."""
    text: str
    """The message with placeholders as in C (``%s``)."""
    english: str


class _Language(FrozenStruct, kw_only=True):
    encodings: tuple[str, ...]
    by_hand: dict[str, str]
    catalogues: dict[str, str]


class _Table(FrozenStruct, kw_only=True):
    source: str
    languages: dict[str, _Language]


@functools.cache
def _read_table() -> _Table:
    return msgspec.json.decode((data_directory() / "messages.json").read_bytes(), type=_Table)


@functools.cache
def foreign_messages() -> tuple[ForeignMessage, ...]:
    """Return all messages, those with the longest needle first."""
    found = [
        ForeignMessage(name, _find_needle(text), text, english)
        for name, language in _read_table().languages.items()
        for text, english in _list_pairs(language)
    ]
    return tuple(sorted(found, key=lambda one: -len(one.needle)))


def _list_pairs(language: _Language) -> Iterator[tuple[str, str]]:
    for text, english in {**language.by_hand, **language.catalogues}.items():
        plain = text.translate(_SPACES)
        if english in LINE_OF_SCRIPT:
            yield plain, english
        elif plain.strip():
            # "%s: ..." and "... %s" say nothing that is not in the line already
            while plain[:4] in ("%s: ", "%s : ") or plain.startswith("%s : "):
                plain = plain.partition(": ")[2]
                english = english.removeprefix("%s: ")
            yield plain.strip(), english.strip()


def _find_needle(text: str) -> str:
    """Return the longest fixed piece of a message, if no ordinary text has it by chance."""
    piece = max(_PLACEHOLDER.split(text)[::3], key=lambda one: len(one.encode())).strip()
    # Bytes: three Chinese characters, or as many letters.
    shortest = 9
    if text.startswith("%d "):  # a signal: counts behind a number alone
        shortest = 7
    elif piece.isascii():
        shortest = 8
    if len(piece.encode()) >= shortest or (
        not piece.isascii() and piece.isalpha() and len(piece) > 2
    ):
        return piece
    return ""


@functools.cache
def foreign_needles() -> tuple[bytes, ...]:
    """Return the needles in UTF-8."""
    spellings = (one for message in foreign_messages() for one in _list_spellings(message))
    return tuple(sorted(set(spellings)))


@functools.cache
def legacy_needles() -> tuple[bytes, ...]:
    """Return the needles in the encodings that consoles of each language had before UTF-8."""
    languages = _read_table().languages
    found = {
        one.needle.encode(encoding, "ignore")
        for one in foreign_messages()
        if not one.needle.isascii()
        for encoding in languages[one.language].encodings
    }
    shortest = 4
    return tuple(sorted(needle for needle in found if len(needle) >= shortest))


def _list_spellings(message: ForeignMessage) -> Iterator[bytes]:
    # Letters of a needle that the first pass looks for: more cost time and find no less.
    most_letters = 12
    if message.needle.isascii():
        most_letters = 18
    needle = message.needle[:most_letters]
    if needle:
        yield needle.encode()
        yield needle.replace("'", "’").encode()
        if message.language == "fr":
            yield needle.replace(" ", "\xa0").encode()


def compile_literals(literals: Iterable[bytes]) -> Any:
    """Return an RE2 pattern for any of the literals, as bytes in no particular encoding."""
    import re2  # imported here: not needed without a log

    options = re2.Options()
    options.max_mem = 64 << 20
    options.encoding = re2.Options.Encoding.LATIN1
    return re2.compile(b"|".join(re2.escape(literal) for literal in literals), options)


@functools.cache
def _compile_needles() -> Any:
    return compile_literals(foreign_needles())


@functools.cache
def compile_legacy_needles() -> Any:
    """Return an RE2 pattern for needles in older encodings."""
    return compile_literals(legacy_needles())


def translate_lines(lines: Sequence[str]) -> Sequence[str]:
    """Return lines with their foreign messages in English; most have none."""
    if _compile_needles().search("\n".join(lines).encode("utf-8", "replace")) is None:
        return lines
    return [translate_line(line) for line in lines]


def translate_line(text: str) -> str:
    """Return a line with its foreign messages in English, or the line itself."""
    plain = text.translate(_SPACES)
    found = [one for one in foreign_messages() if one.needle and one.needle in plain]
    if not found:
        return text
    language = found[0].language  # that of the longest one
    done = plain
    for one in found:
        if one.language == language:
            pattern, english = _compile_message(one)
            done = pattern.sub(english, done)
    if done == plain:
        return text
    for one in foreign_messages():
        if one.language == language and one.english in LINE_OF_SCRIPT:
            pattern, english = _compile_message(one)
            done = pattern.sub(english, done, count=1)
    done = done.replace("：", ": ").replace(" : ", ": ").replace("。", ".")
    return _QUOTED.sub(r"'\1'", done)


@functools.cache
def _compile_message(message: ForeignMessage) -> tuple[re.Pattern[str], str]:
    """Return the pattern of a message, and its English as a replacement."""
    text, english = message.text, message.english
    if english in LINE_OF_SCRIPT:
        text, english = _describe_script_line(text, english)
    pattern, at = "", 0
    for place, match in enumerate(_PLACEHOLDER.finditer(text), 1):
        part = _describe_part(match)
        pattern += f"{_escape_piece(text[at : match.start()])}(?P<part{match[1] or place}>{part})"
        at = match.end()
    pattern += _escape_piece(text[at:])
    if pattern.endswith("?)"):
        pattern = pattern[:-2] + ")"  # the last placeholder takes all that follows
    # European words end at other letters; Chinese ones follow each other without a space.
    if text[:1].isalpha() and text < "\u0500":
        pattern = rf"(?<![^\W_]){pattern}"
    compiled = re.compile(pattern)
    replacement, at = "", 0
    for place, match in enumerate(_PLACEHOLDER.finditer(english), 1):
        replacement += english[at : match.start()].replace("\\", r"\\")
        if f"part{place}" in compiled.groupindex:
            replacement += rf"\g<part{place}>"
        at = match.end()
    return compiled, replacement + english[at:].replace("\\", r"\\")


def _describe_part(placeholder: re.Match[str]) -> str:
    """Return what may stand for a placeholder."""
    if placeholder[2] in "dui":
        return r"\d{1,9}"
    if not placeholder.start():
        return r"'[^']{1,300}'|\S{1,300}"
    return ".{1,300}?"


def _escape_piece(piece: str) -> str:
    """Return a pattern; spaces beside a placeholder differ from release to release."""
    escaped = re.escape(piece.strip())
    if piece != piece.lstrip():
        escaped = f" ?{escaped}"
    if piece.strip() != piece.lstrip():
        escaped = f"{escaped} ?"
    return escaped


def _describe_script_line(text: str, english: str) -> tuple[str, str]:
    """Return what bash writes between a script's name and a message: ``: line 12: ``."""
    if english == " line ":
        return f":{text}%d", ": line %d"
    return text.removeprefix("%s"), ": line %d: "


def decode_line(line: bytes) -> str:
    """Return a line as text: UTF-8, or the older encoding in which it has a known message."""
    try:
        return line.decode()
    except UnicodeDecodeError:
        pass
    if compile_legacy_needles().search(line) is not None:
        for encoding in _list_encodings():
            text = line.decode(encoding, "replace")
            if translate_line(text) != text:
                return text
    return line.decode("utf-8", "replace")


@functools.cache
def _list_encodings() -> tuple[str, ...]:
    languages = _read_table().languages.values()
    return tuple(dict.fromkeys(name for language in languages for name in language.encodings))
