"""Copying: text to the terminal's clipboard (OSC 52) and to a file; screenshots to a file.

A terminal does not report whether it accepted the text: tmux drops it unless ``set-clipboard`` is
on, some terminals never accept it. So the file is always written, and the event line names it.
"""

from __future__ import annotations

import html
import os
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.cells import cell_len
from textual.app import App

from rgt_tui.files import here_or, note_written, replace_file, state_directory, write_new
from rgt_tui.language import translate
from rgt_tui.model import FrozenStruct, clean_text
from rgt_tui.ui.enduring import shorten_path

MOST_OSC52_BYTES = 74_000
"""Maximum size of the text: about 100,000 bytes in base64, where xterm cuts OSC strings (hterm
documents the same limit)."""


class ClipboardText(FrozenStruct, kw_only=True):
    """Text to copy."""

    what: str
    """Short description for the event line: ``the fix of U7``, ``line 812``."""
    text: str
    """One or more lines; control characters are removed before copying."""


def copied_path(env: Mapping[str, str]) -> Path:
    """Return the file with the last copied text."""
    return state_directory(env) / "copied.txt"


def copy_to_clipboard(
    app: App[Any], copied: ClipboardText, env: Mapping[str, str] = os.environ
) -> str:
    """Copy a text to the terminal's clipboard and to the file; return a message about it."""
    # A control character could be a command once it is pasted into a shell.
    text = "\n".join(clean_text(row) for row in copied.text.splitlines())
    if not text:
        return translate("nothing to copy here")
    small = len(text.encode()) <= MOST_OSC52_BYTES
    if small:
        app.copy_to_clipboard(text)
    path = copied_path(env)
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        replace_file(path, f"{text}\n".encode())
    except OSError as error:
        # The terminal probably has the text, so the missing file is not worth an error.
        if small:
            return translate("copied {what}", what=copied.what)
        return translate(
            "{what} is too long for a terminal's clipboard, and {error}",
            what=copied.what,
            error=error,
        )
    if small:
        where = translate("also in {path}", path=shorten_path(path))
    else:
        where = translate("too long for the clipboard: in {path}", path=shorten_path(path))
    return translate("copied {what}; {where}", what=copied.what, where=where)


_SVG_TEXT = re.compile(r'textLength="([0-9.]+)"([^>]*)>([^<]*)</text>')


def stretch_wide_text(svg: str) -> str:
    """Return a picture whose wide characters have two cells: Rich gives every character one."""

    def stretch_match(match: re.Match[str]) -> str:
        text = html.unescape(match[3])
        cells = cell_len(text)
        if cells == len(text):
            return match[0]
        length = float(match[1]) * cells / len(text)
        return f'textLength="{length:g}"{match[2]}>{match[3]}</text>'

    return _SVG_TEXT.sub(stretch_match, svg)


def write_screenshot(svg: str, env: Mapping[str, str]) -> str:
    """Write a screenshot; return a message about it."""
    name, why = f"rgt-{time.strftime('%Y%m%d-%H%M%S')}.svg", ""
    for place in here_or(state_directory(env) / "screenshots"):
        try:
            place.mkdir(parents=True, exist_ok=True, mode=0o700)
            # Screenshots within one second get different names.
            path = write_new(place / name, svg.encode(), range(1, 100))
            note_written([path], env)
        except OSError as error:
            # The first directory is the one that the person expects, so its reason is shown.
            why = why or f"{place}: {error.strerror or str(error)}"
            continue
        said = translate("the screen was saved to {path}", path=shorten_path(path))
        if why:
            return f"{said} ({why})"
        return said
    return translate("no screenshot could be written: {why}", why=why)
