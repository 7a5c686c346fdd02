"""Reads ``profiles/*.toml`` into `Profile`: strict, cached, the same from a source tree and from a wheel."""

from __future__ import annotations

import functools
import re
import tomllib
from pathlib import Path

import msgspec

from rgt_tui.model.profile import Profile
from rgt_tui.profiles.profile_faults import faults, nearest, none_of

__all__ = ["ProfileError", "all_profiles", "load_profile", "read_profile"]


class ProfileError(Exception):
    """A profile that is missing or broken; says file, key and the nearest known name."""


_PACKAGE = Path(__file__).resolve().parents[1]


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
    try:
        profile = msgspec.convert(raw, Profile)
    except msgspec.ValidationError as error:
        raise ProfileError(f"{path.name}: {_explain(str(error))}") from error
    wrong = list(faults(profile, path.stem))
    if wrong:
        raise ProfileError(f"{path.name}: {'; '.join(wrong)}")
    return profile


def _explain(message: str) -> str:
    """Turn msgspec's message into ``key: what`` with the nearest known name."""
    where = re.search(r" - at `\$\.?(.*)`$", message)
    key = where.group(1) if where else ""
    text = message[: where.start()] if where else message
    if field := re.search(r"unknown field `(.+?)`", text):
        return (
            f"{f'{key}.' if key else ''}{field.group(1)}: no such key{nearest(field.group(1), _known(key))}"
        )
    if missing := re.search(r"missing required field `(.+?)`", text):
        return f"{f'{key}.' if key else ''}{missing.group(1)}: the key is missing"
    if given := re.match(r"Invalid enum value '(.*)'", text):
        return f"{key}: {none_of(given.group(1), _known(key))}"
    return f"{key}: {text}" if key else text


def _known(key: str) -> tuple[str, ...]:
    """Return what may stand at a key such as ``tiers[0].prices[1]``: names of fields, or values of an enum."""
    kind: msgspec.inspect.Type = msgspec.inspect.type_info(Profile)
    for name in re.findall(r"\w+", re.sub(r"\[.*?\]", "", key)):
        fields = kind.fields if isinstance(kind, msgspec.inspect.StructType) else ()
        kind = next(_inner(field.type) for field in fields if field.name == name)
    if isinstance(kind, msgspec.inspect.StructType):
        return tuple(field.encode_name for field in kind.fields)
    return tuple(kind.cls) if isinstance(kind, msgspec.inspect.EnumType) else ()


def _inner(kind: msgspec.inspect.Type) -> msgspec.inspect.Type:
    """Return the struct or enum in a type such as ``tuple[Tier, ...]`` or ``Traffic | None``."""
    if isinstance(kind, msgspec.inspect.VarTupleType):
        return _inner(kind.item_type)
    if isinstance(kind, msgspec.inspect.UnionType):
        return _inner(next(one for one in kind.types if not isinstance(one, msgspec.inspect.NoneType)))
    return kind


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
