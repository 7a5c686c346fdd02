"""Reads ``profiles/*.toml`` into `Profile`: strict, cached, the same from a source tree and from a wheel."""

from __future__ import annotations

import functools
import re
import tomllib
from pathlib import Path
from typing import Any

import msgspec

from rgt_tui.model.profile import BillingAction, DangerClock, Profile, Source, Tier
from rgt_tui.profiles.errors import ProfileError, nearest
from rgt_tui.profiles.rules import faults

__all__ = ["ProfileError", "all_profiles", "load_profile", "read_profile"]

_PACKAGE = Path(__file__).resolve().parents[1]
_FIELDS = {
    "tiers": Tier.__struct_fields__,
    "billing": BillingAction.__struct_fields__,
    "clocks": DangerClock.__struct_fields__,
    "sources": Source.__struct_fields__,
}
_UNSAID = ("stops_gpu_meter", "stops_storage_meter", "reversible")
"""Tri-states that the struct wants spelt out; TOML has no null, so leaving the key out means unknown."""


@functools.cache
def data_dir() -> Path:
    """Return the directory of the profile files: inside an installed wheel, else the source tree's own.

    Raises:
        ProfileError: when neither is there.
    """
    candidates = (_PACKAGE / "_data" / "profiles", _PACKAGE.parent / "profiles")
    for path in candidates:
        if path.is_dir():
            return path
    raise ProfileError(f"no profile directory: looked for {' and '.join(map(str, candidates))}")


def read_profile(path: Path) -> Profile:
    """Read and check one profile file.

    Raises:
        ProfileError: when it cannot be read, is not TOML, or breaks the schema; names file and key.
    """
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ProfileError(f"{path.name}: cannot be read: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise ProfileError(f"{path.name}: not TOML: {error}") from error
    for action in raw.get("billing", ()):
        if isinstance(action, dict):
            for key in _UNSAID:
                action.setdefault(key, None)
    try:
        profile = msgspec.convert(raw, Profile)
    except msgspec.ValidationError as error:
        raise ProfileError(f"{path.name}: {_explain(str(error), raw)}") from error
    wrong = list(faults(profile, path.stem))
    if wrong:
        raise ProfileError(f"{path.name}: {'; '.join(wrong)}")
    return profile


def _explain(message: str, raw: dict[str, Any]) -> str:
    """Turn msgspec's message into ``key: what`` with the nearest known field."""
    where = re.search(r" - at `\$\.?(.*)`$", message)
    key = where.group(1) if where else ""
    text = message[: where.start()] if where else message
    if field := re.search(r"unknown field `(.+?)`", text):
        table = re.match(r"(\w+)", key)
        known = _FIELDS.get(table.group(1), ()) if table else Profile.__struct_fields__
        return f"{f'{key}.' if key else ''}{field.group(1)}: no such key{nearest(field.group(1), known)}"
    if missing := re.search(r"missing required field `(.+?)`", text):
        return f"{f'{key}.' if key else ''}{missing.group(1)}: the key is missing"
    return f"{key}: {text}" if key else text


@functools.cache
def _profiles(directory: Path) -> tuple[Profile, ...]:
    return tuple(read_profile(path) for path in sorted(directory.glob("*.toml")))


def all_profiles() -> dict[str, Profile]:
    """Return every profile by its id, sorted by id; read once per process.

    Raises:
        ProfileError: when one of the files is broken.
    """
    return {profile.id: profile for profile in _profiles(data_dir())}


@functools.cache
def load_profile(id: str) -> Profile:  # noqa: A002
    """Return the profile called `id`.

    Raises:
        ProfileError: when there is none of that name (the nearest is named) or its file is broken.
    """
    path = data_dir() / f"{id}.toml"
    known = sorted(file.stem for file in data_dir().glob("*.toml"))
    if id not in known:
        raise ProfileError(f"no profile is called '{id}'{nearest(id, known)} (known: {', '.join(known)})")
    return read_profile(path)
