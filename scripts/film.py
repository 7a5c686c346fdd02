"""Join SVG screenshots of the app into one SVG that plays them, without a script: for a page that shows pictures alone.

What is the same in all of them (fonts, clip paths, the window) is kept once. Who asked for less
motion sees the first picture. ``python -m scripts.film OUT.svg SECONDS FRAME.svg [FRAME.svg …]``
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

_ID = re.compile(r"terminal-\d+-")
_RULE = re.compile(r"\.terminal-\d+-(r\d+) \{([^}]*)\}\n?")
_BODY = re.compile(r"\A<svg[^>]*>(.*)</svg>\s*\Z", re.DOTALL)
_HEAD = re.compile(r"\A<svg[^>]*>")
_STYLE = re.compile(r"<style>(.*?)</style>", re.DOTALL)
_DEFS = re.compile(r"<defs>(.*?)</defs>", re.DOTALL)


class Frame(NamedTuple):
    """One picture of a film."""

    svg: str
    """As Textual exports it."""
    seconds: float
    """How long it stands."""


class FilmError(Exception):
    """The pictures cannot be joined."""


def film(frames: Sequence[Frame]) -> str:
    """Return the SVG that plays `frames` for ever.

    Raises:
        FilmError: there is none, one is not an export of Textual's, or their sizes differ.
    """
    if not frames or any(frame.seconds <= 0 for frame in frames):
        raise FilmError("a film needs pictures, each with a time to stand")
    heads = {found[0] if (found := _HEAD.match(frame.svg)) else "" for frame in frames}
    if len(heads) != 1 or "" in heads:
        raise FilmError("the pictures are of different sizes, or no SVG")
    colours: dict[str, str] = {}
    bodies = [_body(frame.svg, colours) for frame in frames]
    first = frames[0].svg
    style, defs = _STYLE.search(first), _DEFS.search(first)
    if style is None or defs is None:
        raise FilmError("the pictures are not what Textual exports")
    shared = _ID.sub("film-", _RULE.sub("", style[1]))
    total = sum(frame.seconds for frame in frames)
    rules = [f".film-{name} {{{rule}}}" for rule, name in colours.items()]
    rules += [
        (
            f".frame {{ visibility: hidden; animation-duration: {total:g}s; "
            "animation-iteration-count: infinite; }"
        )
    ]
    rules += [".frame { animation-timing-function: step-end; }", ".first { visibility: visible; }"]
    at = 0.0
    for place, frame in enumerate(frames):
        begin, end = 100 * at / total, 100 * (at + frame.seconds) / total
        rules.append(f"@keyframes show{place} {{ {_steps(begin, end)} }}")
        rules.append(f"#frame{place} {{ animation-name: show{place}; }}")
        at += frame.seconds
    rules.append(
        "@media (prefers-reduced-motion: reduce) { .frame { animation: none !important; } }"
    )
    groups = [
        f'<g id="frame{place}" class="frame{" first" if not place else ""}">{body}</g>'
        for place, body in enumerate(bodies)
    ]
    css = shared + "\n".join(rules)
    return "\n".join(
        [
            heads.pop(),
            f"<style>{css}</style>",
            f"<defs>{_ID.sub('film-', defs[1])}</defs>",
            *groups,
            "</svg>",
            "",
        ]
    )


def _steps(begin: float, end: float) -> str:
    points = {0.0: "hidden", begin: "visible", 100.0: "hidden"}
    if end < 100.0 - 1e-9:
        points[end] = "hidden"
    else:
        points[100.0] = "visible"
    return " ".join(f"{at:.4g}% {{ visibility: {word}; }}" for at, word in sorted(points.items()))


def _body(svg: str, colours: dict[str, str]) -> str:
    """Return what a picture draws, its colours under names that all pictures share."""
    found, style = _BODY.match(svg), _STYLE.search(svg)
    if found is None or style is None:
        raise FilmError("the pictures are not what Textual exports")
    names = {
        name: colours.setdefault(rule.strip(), f"c{len(colours)}")
        for name, rule in _RULE.findall(style[1])
    }
    body = _DEFS.sub("", _STYLE.sub("", found[1]))
    body = re.sub(r"terminal-\d+-(r\d+)\b", lambda one: f"film-{names.get(one[1], one[1])}", body)
    return re.sub(r"<!--.*?-->|\s*\n\s*", "", _ID.sub("film-", body), flags=re.DOTALL)


def main(arguments: Sequence[str]) -> int:
    """Join the files that are named; return the exit status."""
    try:
        out, seconds, *names = arguments
        made = film(
            [Frame(Path(name).read_text(encoding="utf-8"), float(seconds)) for name in names]
        )
        Path(out).write_text(made, encoding="utf-8")
    except (ValueError, OSError, FilmError) as error:
        sys.stderr.write(
            f"film: {error}\nusage: python -m scripts.film OUT.svg SECONDS FRAME.svg [FRAME.svg "
            "…]\n"
        )
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
