"""The language of what a person reads: English, or a gettext catalogue in ``locale/``.

The texts in the code are English and are the keys of the catalogues; a text without a translation
stays English. What a program reads (``--json``, exit statuses, files) is never translated.
docs/translating.md explains how to add a text or a language.
"""

from __future__ import annotations

import functools
import gettext
import os
from collections.abc import Mapping
from pathlib import Path

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


def speaks_english() -> bool:
    """Return whether no text is translated."""
    return type(_current_catalogue()) is gettext.NullTranslations


def translate(text: str, **values: object) -> str:
    """Return a text in the person's language.

    Args:
        text: English, with ``{name}`` where a value belongs. Blanks around it stay as they are.
        values: Put into the translated text, so that a language may order them differently.
    """
    found = text
    bare = text.strip(" ")
    if bare:
        found = text.replace(bare, _current_catalogue().gettext(bare))
    if values:
        return found.format(**values)
    return found


AFTER_A_NUMBER = "after a number"
"""The context of nouns in the catalogues: ``error`` alone and in ``3 errors`` can differ."""


def translate_noun(noun: str) -> str:
    """Return a noun that follows a number, with a measure word where the language has one."""
    return _current_catalogue().pgettext(AFTER_A_NUMBER, noun)
