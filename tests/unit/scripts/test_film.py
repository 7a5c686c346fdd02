"""A film of screenshots: every picture once, in its colours, at its time; what is no picture is refused."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from scripts.film import FilmError, Frame, film, main

SHOTS = Path(__file__).parents[3] / "screenshots"
PICTURES = [(SHOTS / f"{name}.svg").read_text(encoding="utf-8") for name in ("fleet", "box", "log")]
SVG = "{http://www.w3.org/2000/svg}"


def texts(svg: str) -> list[tuple[str, str]]:
    """Text and fill of each piece of text, in order."""
    rules = dict(re.findall(r"\.([\w-]+) \{([^}]*)\}", svg))
    return [
        (one.text, rules.get(one.get("class", ""), "").strip())
        for one in ET.fromstring(svg).iter(f"{SVG}text")
        if one.text is not None and one.text != "\n"
    ]


def dangling(svg: str) -> set[str]:
    """Clip paths that are referred to and are not there, without what the name begins with."""
    ids = {one.get("id") for one in ET.fromstring(svg).iter()}
    return {
        name.partition("line-")[2]
        for name in re.findall(r"url\(#([\w-]+)\)", svg)
        if name not in ids
    }


def test_every_picture_is_there_once_with_its_words_and_colours() -> None:
    made = film([Frame(svg, 2.0) for svg in PICTURES])
    expected = [word for svg in PICTURES for word in texts(svg)]
    found = texts(made)
    assert [word for word, _ in found] == [word for word, _ in expected]
    assert [rule for _, rule in found if "fill" in rule] == [
        rule for _, rule in expected if "fill" in rule
    ]
    assert sum("fill" in rule for _, rule in found) > 300
    root = ET.fromstring(made)
    assert [one.get("id") for one in root.iter(f"{SVG}g") if (one.get("class") or "").startswith("frame")] == [
        "frame0", "frame1", "frame2",
    ]  # fmt: skip
    assert dangling(made) == dangling(PICTURES[0]), (
        "what is shared is there (Rich forgets the last line itself)"
    )
    assert len(made) < sum(map(len, PICTURES)), "and there once"


def test_each_stands_for_its_time_and_no_two_at_once() -> None:
    made = film([Frame(PICTURES[0], 1.0), Frame(PICTURES[1], 3.0), Frame(PICTURES[2], 4.0)])
    steps = dict(re.findall(r"@keyframes show(\d) \{ (.*?) \}\n", made))
    marks = {
        place: [
            (float(at), word) for at, word in re.findall(r"([\d.]+)% \{ visibility: (\w+);", text)
        ]
        for place, text in steps.items()
    }
    for percent in (0, 6, 12, 13, 30, 49, 51, 75, 99):
        shown = [
            place
            for place, points in marks.items()
            if next(word for at, word in reversed(points) if at <= percent) == "visible"
        ]
        assert shown == ["0" if percent < 12.5 else "1" if percent < 50 else "2"], percent
    assert "animation-duration: 8s" in made and "prefers-reduced-motion" in made


def test_what_cannot_be_joined_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other_size = PICTURES[0].replace('viewBox="0 0 1482', 'viewBox="0 0 999', 1)
    for wrong in (
        [],
        [Frame(PICTURES[0], 0.0)],
        [Frame("text", 1.0)],
        [Frame(PICTURES[0], 1.0), Frame(other_size, 1.0)],
    ):
        with pytest.raises(FilmError):
            film(wrong)
    out = tmp_path / "out.svg"
    assert main([str(out), "x", str(SHOTS / "fleet.svg")]) == 2 and not out.exists()
    assert "usage: " in capsys.readouterr().err
    assert main([str(out), "2", str(SHOTS / "fleet.svg"), str(SHOTS / "box.svg")]) == 0
    assert out.read_text(encoding="utf-8").count('class="frame') == 2
