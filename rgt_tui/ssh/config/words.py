"""Lines of ssh_config into keyword and arguments, with OpenSSH's rules for quotes, ``=`` and comments."""

from __future__ import annotations

import re

_KEYWORD = re.compile(r'\s*(?:"([^"]*)"|([^\s="]+))\s*(?:=\s*)?')
BLANK = " \t\r\n\f"


def keyword(line: str) -> tuple[str, str]:
    """Return the lower-case keyword and the rest; two empty strings for a comment or an empty line."""
    text = line.strip(BLANK)
    if not text or text.startswith("#"):
        return "", ""
    found = _KEYWORD.match(text)
    if found is None:
        return text.lower(), ""
    return (found[1] if found[1] is not None else found[2]).lower(), text[found.end() :]


def arguments(rest: str) -> list[str]:
    r"""Split arguments: blanks separate, ``"…"`` and ``'…'`` hold together, ``#`` begins a comment.

    A backslash escapes a quote, another backslash, and outside of quotes a blank; elsewhere it is itself.

    Raises:
        ValueError: a quote is not closed.
    """
    words: list[str] = []
    index = 0
    while index < len(rest):
        if rest[index] in BLANK:
            index += 1
            continue
        if rest[index] == "#":
            break
        word, index = _word(rest, index)
        words.append(word)
    return words


def _word(rest: str, index: int) -> tuple[str, int]:
    word, quote = "", ""
    while index < len(rest):
        char = rest[index]
        after = rest[index + 1 : index + 2]
        if char == "\\" and after and (after in "\"'\\" or (not quote and after == " ")):
            word += after
            index += 2
            continue
        if not quote and char in " \t":
            break
        if not quote and char in "\"'":
            quote = char
        elif quote and char == quote:
            quote = ""
        else:
            word += char
        index += 1
    if quote:
        raise ValueError("a quote is not closed")
    return word, index
