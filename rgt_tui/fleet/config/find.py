"""Which fleet file is meant: the one named, the environment's, the project's, the person's own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

NAME = "rgt.toml"
VARIABLE = "RGT_FLEET"


def xdg_path(env: Mapping[str, str]) -> Path:
    """Return where a person's own fleet file stands, whether it exists or not."""
    home = Path(env["HOME"]) if env.get("HOME") else Path.home()
    config = Path(
        env.get("XDG_CONFIG_HOME", "")
    )  # a relative one would be another in every working directory
    return (config if config.is_absolute() else home / ".config") / "rgt" / "fleet.toml"


def upwards(start: Path, home: Path) -> Iterator[Path]:
    """Yield the directories of a project, from `start` up to the root of its git tree, else up to `home`.

    Outside of both only `start` itself counts: a file that a stranger left in ``/tmp`` is no project of ours.
    """
    chain = [start, *start.parents]
    root = next((folder for folder in chain if (folder / ".git").exists()), home)
    end = chain.index(root) if root in chain else 0
    yield from chain[: end + 1]


def working_directory() -> Path | None:
    """Return where this process stands; None where that directory has been removed."""
    try:
        return Path.cwd()
    except OSError:
        return None


class Place(NamedTuple):
    """Where the fleet file is, and how it was found."""

    path: Path
    lies_there: bool = False
    """It was come across in the working tree: neither named nor the person's own, so it may be anybody's."""


def find_fleet_file(named: str | None, env: Mapping[str, str], start: Path | None) -> Path | None:
    """Return the path of `find_place`; None when there is none."""
    place = find_place(named, env, start)
    return None if place is None else place.path


def find_place(named: str | None, env: Mapping[str, str], start: Path | None) -> Place | None:
    """Return the fleet file to use; None when there is none.

    Args:
        named: What ``--fleet`` says.
        env: The environment; ``RGT_FLEET``, ``XDG_CONFIG_HOME`` and ``HOME`` are looked at.
        start: The working directory; None where there is none any more.

    Returns:
        A file that was named exists or not: whoever reads it says so. Others exist.
    """
    if named or env.get(VARIABLE):
        return Place(Path(named or env[VARIABLE]).expanduser())
    home = Path(env["HOME"]) if env.get("HOME") else Path.home()
    for folder in () if start is None else upwards(start, home):
        if (folder / NAME).is_file():
            return Place(folder / NAME, lies_there=True)
    own = xdg_path(env)
    return Place(own) if own.is_file() else None
