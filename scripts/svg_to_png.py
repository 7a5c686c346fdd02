"""Turn SVG screenshots of the app into PNG files, with a local monospace font that has all our glyphs.

Usage: python scripts/svg_to_png.py SCREENSHOT.svg [MORE.svg …] [--out DIR] [--zoom 1.5]
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from pathlib import Path

import resvg_py

FAMILY = "DejaVu Sans Mono"
FILES = ("DejaVuSansMono.ttf", "DejaVuSansMono-Bold.ttf", "DejaVuSans.ttf")
"""The last one has the braille patterns, which the monospaced face lacks."""
CHINESE = (
    "wqy-microhei.ttc",
    "NotoSansCJK-Regular.ttc",
    "DroidSansFallbackFull.ttf",
    "wqy-zenhei.ttc",
)
"""Any of these draws the labels of Chinese platforms; without one they are boxes, and a warning
says so.
"""
DIRECTORIES = (
    "/usr/share/fonts/truetype/dejavu",
    "/usr/share/fonts/dejavu",
    "/usr/share/fonts/dejavu-sans-mono-fonts",
    "/usr/share/fonts/TTF",
    "/usr/local/share/fonts",
    "~/.local/share/fonts",
    "~/.fonts",
    "~/Library/Fonts",
    "/Library/Fonts",
)
MISSING = (
    f"the font {FAMILY} is not installed; without it a screenshot lacks its bars and curves.\n"
    "  Debian, Ubuntu  apt-get install fonts-dejavu-core\n"
    "  Fedora          dnf install dejavu-sans-mono-fonts dejavu-sans-fonts\n"
    "  macOS           brew install --cask font-dejavu"
)


def find_fonts() -> list[str]:
    """Return the font files to draw with.

    Raises:
        FileNotFoundError: when the monospaced face is nowhere.
    """
    found: dict[str, str] = {}
    if shutil.which("fc-list"):
        listed = subprocess.run(
            ["fc-list", ":", "file"], capture_output=True, text=True, check=False
        ).stdout
        for entry in listed.splitlines():
            path = Path(entry.split(":")[0].strip())
            if path.name in (*FILES, *CHINESE):
                found.setdefault(path.name, str(path))
    for directory in DIRECTORIES:
        for name in FILES:
            path = Path(directory).expanduser() / name
            if path.is_file():
                found.setdefault(name, str(path))
    if FILES[0] not in found:
        raise FileNotFoundError(MISSING)
    if not any(name in found for name in CHINESE):
        sys.stderr.write(
            "no font for Chinese labels; on Debian: apt-get install fonts-wqy-microhei\n"
        )
    return [found[name] for name in (*FILES, *CHINESE) if name in found]


def localise(svg: str) -> str:
    """Return the SVG drawn with the local font instead of one that would be downloaded."""
    svg = re.sub(r"@font-face\s*\{[^}]*\}", "", svg)
    return svg.replace("Fira Code, monospace", f"'{FAMILY}'").replace("Fira Code", FAMILY)


def convert(svg: str, fonts: list[str], zoom: float) -> bytes:
    """Return the PNG of an SVG screenshot."""
    return bytes(
        resvg_py.svg_to_bytes(
            svg_string=localise(svg),
            skip_system_fonts=True,
            font_files=fonts,
            monospace_family=FAMILY,
            font_family=FAMILY,
            zoom=zoom,
        )
    )


def main(argv: list[str] | None = None) -> int:
    """Convert the files named on the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("svg", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, help="directory; by default beside each SVG")
    parser.add_argument("--zoom", type=float, default=1.5)
    arguments = parser.parse_args(argv)
    try:
        fonts = find_fonts()
    except FileNotFoundError as error:
        print(error, file=sys.stderr)
        return 1
    for path in arguments.svg:
        target = (arguments.out or path.parent) / (path.stem + ".png")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(convert(path.read_text(encoding="utf-8"), fonts, arguments.zoom))
        print(target)
    return 0


if __name__ == "__main__":
    sys.exit(main())
