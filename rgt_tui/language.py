"""The language of what a person reads: English, or a gettext catalogue in ``locale/``.

The texts in the code are English and are the keys of the catalogues; a text without a translation
stays English. What a program reads (``--json``, exit statuses, files) is never translated.
docs/translating.md explains how to add a text or a language.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import gettext
import json
import os
import re
import string
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

CATALOGUES = Path(__file__).parent / "locale"
"""``LANGUAGE/LC_MESSAGES/rgt.po`` and the compiled ``rgt.mo``."""

_VARIABLES = ("RGT_LANG", "LC_ALL", "LC_MESSAGES", "LANG")
"""The first one that is set decides. All but the first are POSIX's, in POSIX's order."""

_TRADITIONAL = ("zh_tw", "zh_hk", "zh_mo", "zh_hant")
"""Written with other characters: English until there is a catalogue of their own."""


def choose_language(environ: Mapping[str, str]) -> str:
    """Return the catalogue for an environment, e.g. ``zh_CN``; ``en`` without one.

    Args:
        environ: ``RGT_LANG`` is taken before the variables of the locale.
    """
    wanted = next((environ[name] for name in _VARIABLES if environ.get(name)), "")
    name = wanted.partition(".")[0].partition("@")[0].replace("-", "_")
    if name.lower().startswith(_TRADITIONAL):
        return "en"
    if (CATALOGUES / name / "LC_MESSAGES" / "rgt.mo").is_file():
        return name
    if name.lower().partition("_")[0] == "zh":
        return "zh_CN"
    return "en"


@functools.cache
def load_catalogue(language: str) -> gettext.NullTranslations:
    """Return the translations into a language; English has none."""
    return gettext.translation("rgt", CATALOGUES, languages=[language], fallback=True)


@functools.cache
def _current_catalogue() -> gettext.NullTranslations:
    return load_catalogue(choose_language(os.environ))


_ENGLISH = gettext.NullTranslations()
_in_english = contextvars.ContextVar("_in_english", default=False)


def _active_catalogue() -> gettext.NullTranslations:
    if _in_english.get():
        return _ENGLISH
    return _current_catalogue()


@contextlib.contextmanager
def english_texts() -> Iterator[None]:
    """Make texts in English within the block: those that are compared or that a program reads."""
    before = _in_english.set(True)
    try:
        yield
    finally:
        _in_english.reset(before)


def speaks_english() -> bool:
    """Return whether no text is translated."""
    return type(_active_catalogue()) is gettext.NullTranslations


def translate(text: str, **values: object) -> str:
    """Return a text in the person's language.

    Args:
        text: English, with ``{name}`` where a value belongs. Blanks around it stay as they are.
        values: Put into the translated text, so that a language may order them differently.
    """
    found = text
    bare = text.strip(" ")
    if bare:
        found = text.replace(bare, _active_catalogue().gettext(bare))
    if values:
        in_english = found == text
        found = found.format(**values)
        if not in_english:
            found = _GAP.sub("", found)
    return _recent.add_text(found, text, values)


_GAP = re.compile(r"(?<=[\u4e00-\u9fff]) (?=[\u4e00-\u9fff])")
"""A blank next to a value that turned out to be Chinese, such as a number with its measure word."""


AFTER_A_NUMBER = "after a number"
"""The context of nouns in the catalogues: ``error`` alone and in ``3 errors`` can differ."""


def translate_in(context: str, text: str) -> str:
    """Return a text whose translation depends on where it is shown.

    Args:
        context: A literal, e.g. ``transfer``: a stopped transfer is not a stopped machine.
        text: English, without values.
    """
    shown = _active_catalogue().pgettext(context, text)
    return _recent.add_text(shown, f"{context}{_CONTEXT_END}{text}", {})


def translate_noun(noun: str) -> str:
    """Return a noun that follows a number, with a measure word where the language has one."""
    return translate_in(AFTER_A_NUMBER, noun)


def join_texts(joint: str, texts: Iterable[str]) -> str:
    """Return texts joined by e.g. ``; ``, each of which a record keeps with its template."""
    named = {f"text{number}": text for number, text in enumerate(texts)}
    fields = joint.join(f"{{{name}}}" for name in named)
    return _recent.add_text(joint.join(named.values()), fields, named)


def count_nouns(count: str, noun: str) -> str:
    """Return e.g. ``2,310 cells``, with the noun in the person's language."""
    shown = f"{count} {translate_noun(noun)}"
    return _recent.add_text(shown, f"{AFTER_A_NUMBER}{_CONTEXT_END}{noun}", {"count": count})


# A record outlives the language in which it was written, so it keeps which text a sentence is, and
# the values in it: `["{name} moves again, after {held}", {"name": "lstm-b", "held": "3m24"}]`. The
# code passes finished sentences around, as a table or a log wants them; where they came from is
# remembered here until they are recorded.

_CONTEXT_END = "\x04"
"""Between the context of a text and the text, as in gettext's own files."""

_STORED = "\x1e"
"""Begins a stored text. `clean_text` removes it from everything that a box sends."""

_RECORDED = "{recorded}"
"""Template of a text that `show_recorded` showed."""

_Values = Mapping[str, object]
_Origin = tuple[str, str, _Values]
"""A text, its template and its values."""


class _RecentTexts:
    """Remembers from which template and values the last few thousand texts were made."""

    def __init__(self, most: int = 4096) -> None:
        self._most = most
        # Two generations: the older one is dropped when the newer one is full.
        self._new: dict[str, _Origin] = {}
        self._old: dict[str, _Origin] = {}
        self._without_parts: set[str] = set()

    def add_text(self, shown: str, template: str, values: _Values) -> str:
        """Remember a text and return it: the same object for an equal text."""
        most_characters = 2000
        known = self._new.get(shown)
        if known is None:
            if len(shown) > most_characters:
                return shown
            known = self._old.get(shown)
            if known is None:
                known = (shown, template, {name: _as_plain(one) for name, one in values.items()})
            if len(self._new) >= self._most:
                self._new, self._old = {}, self._new
            self._new[shown] = known
        return known[0]

    def find_origin(self, shown: str) -> _Origin | None:
        """Return a text itself, its template and its values; None = not known."""
        return self._new.get(shown) or self._old.get(shown)

    def find_parts(self, text: str) -> tuple[str, _Values] | None:
        """Return the template and values of a text that has parts which are known.

        A search takes 10 ms, and a box's state is stored again and again with the same texts.
        """
        if text in self._without_parts:
            return None
        found = _find_known_parts(text)
        most_texts, most_characters = 1024, 2000
        if found is None and len(text) <= most_characters:
            if len(self._without_parts) >= most_texts:
                self._without_parts.clear()
            self._without_parts.add(text)
        return found


_recent = _RecentTexts()


def _as_plain(value: object) -> object:
    """Return a value that can be stored; an exception would keep its frames alive."""
    if type(value) in (str, int, float):
        return value
    return str(value)


def store_text(text: str) -> str:
    """Return a text as a record keeps it: its template and values, or itself if unknown."""
    parts = _take_apart(text, _find_origin(text))
    if parts is None:
        return text.lstrip(_STORED)
    stored = _STORED + json.dumps(parts, ensure_ascii=False)
    # A value that was formatted in a way of its own, such as a date, cannot be formatted again.
    if load_text(stored) != text:
        return text
    return stored


def load_text(stored: str) -> str:
    """Return a text of a record in the person's language."""
    if not stored.startswith(_STORED):
        return stored
    try:
        return _put_together(json.loads(stored[1:]))
    # A file can hold anything.
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError):
        return stored[1:]


def _take_apart(text: str, origin: _Origin | None) -> list[object] | None:
    if origin is None:
        found = _recent.find_parts(text)
        if not found:
            return None
        template, values = found
        _recent.add_text(text, template, values)
    else:
        _, template, values = origin
        if template == _RECORDED:
            return [template, dict(values)]
    return [template, {name: _take_value_apart(value) for name, value in values.items()}]


def _find_origin(text: str) -> _Origin | None:
    """Return a text, its template and its values; None = not known.

    Only for a text as a whole: a value such as 数据 can be a run's name.
    """
    origin = _recent.find_origin(text)
    # A fact of a profile is translated once, and may be used days later.
    if origin is None and not text.isascii() and text in _english_of(_active_catalogue()):
        return text, _english_of(_active_catalogue())[text], {}
    return origin


@functools.lru_cache(2)
def _english_of(catalogue: gettext.NullTranslations) -> dict[str, str]:
    """Return the English of every translation."""
    known: dict[str, str] = vars(catalogue).get("_catalog", {})
    return {translation: text for text, translation in known.items() if text}


def _take_value_apart(value: object) -> object:
    if not isinstance(value, str):
        return value
    origin = _recent.find_origin(value)
    if " " not in value:
        # A run may be called "test", which is also a text of rgt: then it is another object.
        is_name = value.isascii()
        if origin is not None:
            is_name = origin[0] is not value and not origin[2]
        if is_name:
            return value
    return _take_apart(value, origin) or value


_PART_EDGE = re.compile(r"(?=[\s,;:·()，；：（）])|(?<=[\s·(（，；：])")


def _find_known_parts(text: str) -> tuple[str, _Values] | None:
    """Return the template and values of a sentence that was put together from known texts."""
    edges = sorted({0, len(text), *(match.start() for match in _PART_EDGE.finditer(text))})
    # Beyond this, it quotes a program.
    most_edges = 150
    if len(edges) > most_edges:
        return None
    values: dict[str, object] = {}
    template, place = "", 0
    for start in edges:
        if start < place:
            continue
        for end in reversed(edges):
            part = text[start:end]
            if end <= start or not _says_something(part):
                break
            origin = _recent.find_origin(part)
            if part != text and origin is not None:
                name = f"part{len(values)}"
                template += _escape_braces(text[place:start]) + f"{{{name}}}"
                values[name], place = origin[0], end
                break
    if not values:
        return None
    return template + _escape_braces(text[place:]), values


def _says_something(part: str) -> bool:
    """Return whether a text is long enough to be no coincidence: three words, three characters."""
    least_blanks, least_characters = 2, 3
    if part.isascii():
        return part.strip().count(" ") >= least_blanks
    return len(part) >= least_characters


def _escape_braces(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


_HUGE_FORMAT = re.compile(r"\d{4}|{")
"""A format with a width that no text of rgt has, or with one that is a value itself."""


def _put_together(parts: list[Any]) -> str:
    template, stored = parts
    values = {name: _load_value(one) for name, one in stored.items()}
    context, end, bare = template.rpartition(_CONTEXT_END)
    if context == AFTER_A_NUMBER and values:
        return count_nouns(str(values["count"]), bare)
    if template == _RECORDED:
        return show_recorded(str(values["recorded"]))
    if end:
        return translate_in(context, bare)
    if any(_HUGE_FORMAT.search(field[2] or "") for field in string.Formatter().parse(template)):
        raise ValueError(template)
    return translate(template, **values)


def _load_value(value: Any) -> object:
    if isinstance(value, list):
        return _put_together(value)
    # A fact of a profile, recorded in English.
    if isinstance(value, str) and value.isascii() and _says_something(value):
        return _active_catalogue().gettext(value)
    return value


class _Retelling:
    """Finds which text of a catalogue a sentence is, and returns it in the other language.

    Args:
        pairs: Text and its counterpart; both may have ``{name}`` where a value was put in.
        nouns: Noun that follows a number, and its counterparts.
        least_letters: Letters of its own that a text with values needs: "{name} error" would fit
            too much.
    """

    def __init__(
        self, pairs: Mapping[str, str], nouns: Mapping[str, list[str]], least_letters: int
    ) -> None:
        self._pairs, self._nouns = pairs, nouns
        found = []
        for text in pairs:
            with contextlib.suppress(ValueError):
                parts = list(string.Formatter().parse(text))
                letters = sum(map(str.isalpha, "".join(part[0] for part in parts)))
                if any(part[1] for part in parts) and letters >= least_letters:
                    pieces = [part[0].strip(" ") for part in parts]
                    found.append((letters, text, list(filter(None, pieces))))
        # The text with the most letters of its own says most precisely what a sentence is.
        self._templates = [(text, pieces) for _, text, pieces in sorted(found, reverse=True)]

    def retell_text(self, sentence: str, depth: int = 0) -> str:
        """Return a sentence in the other language; parts that are in no catalogue stay as they are.

        Args:
            sentence: In English, or in the language of the catalogue.
            depth: Of how many texts the sentence is a value or a part; a program may print a text
                that matches again and again.
        """
        most_depth = 20
        bare = sentence.strip(" ")
        if not bare or depth > most_depth:
            return sentence
        return sentence.replace(bare, self._retell_bare(bare, depth + 1))

    def _retell_bare(self, sentence: str, depth: int) -> str:
        number, _, noun = sentence.partition(" ")
        if noun in self._nouns and number.replace(",", "").isdigit():
            # Of the English ones the plural is the longer one.
            forms = self._nouns[noun]
            return f"{number} {min(forms, key=len) if number == '1' else max(forms, key=len)}"
        if sentence in self._pairs:
            return self._pairs[sentence]
        # Reasons and charges are joined like this, unless a text has it itself.
        first, joint, rest = sentence.partition("; ")
        for text, pieces in self._templates:
            joined = not joint or any(joint in piece for piece in pieces)
            # A value is never several lines, which would each match again within it.
            joined = joined and ("\n" not in sentence or any("\n" in piece for piece in pieces))
            if joined and all(piece in sentence for piece in pieces):
                match = _template_pattern(text).fullmatch(sentence)
                if match is not None:
                    return self._fill_template(self._pairs[text], match.groupdict(), depth)
        # Lines and parts beyond these limits quote a file or a program.
        most_lines, most_joints = 50, 8
        lines = sentence.split("\n")
        if len(lines) > 1:
            retold = [self.retell_text(line, depth) for line in lines[:most_lines]]
            return "\n".join([*retold, *lines[most_lines:]])
        if joint:
            first = self.retell_text(first, depth)
        else:
            # What it is about often comes first: a box, a file. A single word is its name, even if
            # it is also a word of ours.
            first, joint, rest = sentence.partition(": ")
            if joint and " " in first:
                first = self.retell_text(first, depth)
        if joint and sentence.count(joint) <= most_joints:
            rest = self.retell_text(rest, depth)
        return f"{first}{joint}{rest}"

    def _fill_template(self, text: str, values: Mapping[str, str], depth: int) -> str:
        # The values are texts by now: no format applies to them any more.
        return "".join(
            piece + self.retell_text(values.get(name or "", ""), depth)
            for piece, name, _, _ in string.Formatter().parse(text)
        )


_LOOSE = re.compile(r"^\\ (?=[\u4e00-\u9fff])|(?<=[\u4e00-\u9fff])\\ $")


@functools.lru_cache(4096)
def _template_pattern(text: str) -> re.Pattern[str]:
    """Return a pattern with a group for each value of a text."""
    made, seen = "", set()
    for piece, name, _, _ in string.Formatter().parse(text):
        # `translate` leaves out a blank between two Chinese characters.
        made += _LOOSE.sub(" ?", re.escape(piece))
        if name in seen:
            made += f"(?P={name})"
        elif name is not None:
            seen.add(name)
            made += f"(?P<{name}>.*?)"
    return re.compile(made, re.DOTALL)


_JOINTS = ":; ：；"


@functools.lru_cache(2)
def _retelling(catalogue: gettext.NullTranslations, to_english: bool) -> _Retelling:
    pairs: dict[str, str] = {}
    nouns: dict[str, list[str]] = {}
    known: dict[str, str] = vars(catalogue).get("_catalog", {})
    for text, translated in known.items():
        context, end, bare = text.rpartition(_CONTEXT_END)
        pair = (translated, bare) if to_english else (bare, translated)
        if context == AFTER_A_NUMBER:
            nouns.setdefault(pair[0], []).append(pair[1])
        elif text and not end:
            pairs[pair[0]] = pair[1]
            # A clause that is joined to a sentence also comes alone, when the sentence is cut
            # there.
            if bare[:2] in (": ", "; "):
                pairs[pair[0].lstrip(_JOINTS)] = pair[1].lstrip(_JOINTS)
    # A Chinese character says about as much as three letters.
    return _Retelling(pairs, nouns, least_letters=3 if to_english else 8)


@functools.lru_cache(4096)
def _retell_cached(catalogue: gettext.NullTranslations, text: str, to_english: bool) -> str:
    return _retelling(catalogue, to_english).retell_text(text)


def record_text(text: str) -> str:
    """Return a text of the person's language in English, as records on disk keep it."""
    if speaks_english():
        return text
    stored = store_text(text)
    if stored != text:
        with english_texts():
            return load_text(stored)
    return _retell_cached(_current_catalogue(), text, True)


def show_recorded(text: str) -> str:
    """Return a recorded English text in the person's language.

    One with a long line quotes a program, and stays as it is.
    """
    most_characters = 500
    if max(map(len, text.split("\n"))) > most_characters:
        return text
    if speaks_english():
        shown = text
    else:
        shown = _retell_cached(_current_catalogue(), text, False)
    return _recent.add_text(shown, _RECORDED, {"recorded": text})
