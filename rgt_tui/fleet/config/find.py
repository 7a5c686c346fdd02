"""Which fleet file is meant: the one named, the environment's, the project's, the person's own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

NAME = "rgt.toml"
VARIABLE = "RGT_FLEET"


def xdg_path(env: Mapping[str, str]) -> Path:
    """Return where a person's own fleet file stands, whether it exists or not."""
    home = Path(env["HOME"]) if env.get("HOME") else Path.home()
    return Path(env.get("XDG_CONFIG_HOME") or home / ".config") / "rgt" / "fleet.toml"


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


def find_fleet_file(named: str | None, env: Mapping[str, str], start: Path | None) -> Path | None:
    """Return the fleet file to use; None when there is none.

    Args:
        named: What ``--fleet`` says.
        env: The environment; ``RGT_FLEET``, ``XDG_CONFIG_HOME`` and ``HOME`` are looked at.
        start: The working directory; None where there is none any more.

    Returns:
        A file that was named exists or not: whoever reads it says so. Others exist.
    """
    if named or env.get(VARIABLE):
        return Path(named or env[VARIABLE]).expanduser()
    home = Path(env["HOME"]) if env.get("HOME") else Path.home()
    places = [] if start is None else [folder / NAME for folder in upwards(start, home)]
    return next((path for path in (*places, xdg_path(env)) if path.is_file()), None)
