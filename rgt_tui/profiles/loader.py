"""Reads ``profiles/*.toml`` into `Profile`: strict, cached, the same from a source tree and from a wheel."""

from __future__ import annotations

import difflib
import functools
import math
import re
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from rgt_tui.model.profile import (
    BillingAction,
    Claim,
    ClockMode,
    ClockStart,
    DangerClock,
    Price,
    Profile,
    Source,
    Tier,
    Traffic,
)
from rgt_tui.profiles.prices import HOURS, STATES

__all__ = ["ProfileError", "all_profiles", "load_profile", "read_profile"]


class ProfileError(Exception):
    """A profile that is missing or broken; says file, key and the nearest known name."""


def nearest(word: str, known: Iterable[str]) -> str:
    """Return ``; did you mean 'x'?`` for the known name closest to `word`, or nothing."""
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f"; did you mean '{close[0]}'?" if close else ""


KINDS = ("park", "destroy", "other")
RUNS = ("stopped", "running", "always")
"""States of the machine in which a charge runs."""
ROLES = ("system", "data", "durable")
CURRENCY = re.compile(r"[A-Z]{3}")
MONTH = re.compile(r"20\d\d-(0[1-9]|1[0-2])")


def _none_of(word: str, known: tuple[str, ...]) -> str:
    return f"'{word}' is none of {', '.join(known)}{nearest(word, known)}"


def _price_faults(price: Price) -> Iterator[str]:
    for key, amount in (("amount", price.amount), ("above_gb", price.above_gb)):
        if not (math.isfinite(amount) and amount >= 0):
            yield f"{key}: {amount:g} is no amount"
    if not CURRENCY.fullmatch(price.currency):
        yield f"currency: '{price.currency}' is not three capital letters, such as USD or CNY"
    if price.per not in HOURS:
        yield f"per: {_none_of(price.per, tuple(HOURS))}"
    if price.when not in STATES:
        yield f"when: {_none_of(price.when, STATES)}"
    if not MONTH.fullmatch(price.verified):
        yield f"verified: '{price.verified}' is not a month like 2026-06"


def faults(profile: Profile, stem: str) -> Iterator[str]:
    """Yield each fault of `profile` as ``key: what is wrong``; `stem` is the file's name, suffix off."""
    if profile.id != stem:
        yield f"id: '{profile.id}' is not the file's name '{stem}'"
    tiers = [tier.name for tier in profile.tiers]
    for name in {name for name in tiers if tiers.count(name) > 1}:
        yield f"tiers.name: '{name}' is there twice"
    for i, tier in enumerate(profile.tiers):
        if tier.role is not None and tier.role not in ROLES:
            yield f"tiers[{i}].role: {_none_of(tier.role, ROLES)}"
        for mount in tier.mounts:
            if not mount.startswith("/"):
                yield f"tiers[{i}].mounts: '{mount}' is not absolute"
        for j, price in enumerate(tier.prices):
            yield from (f"tiers[{i}].prices[{j}].{fault}" for fault in _price_faults(price))
    for i, action in enumerate(profile.billing):
        if action.kind not in KINDS:
            yield f"billing[{i}].kind: {_none_of(action.kind, KINDS)}"
        for key, names in (("keeps", action.keeps), ("loses", action.loses)):
            for name in names:
                if name not in tiers:
                    yield f"billing[{i}].{key}: no tier is called '{name}'{nearest(name, tiers)}"
        for name in set(action.keeps) & set(action.loses):
            yield f"billing[{i}]: '{name}' is both kept and lost"
    for i, clock in enumerate(profile.clocks):
        yield from (f"clocks[{i}]{fault}" for fault in _clock_faults(clock))
    if profile.traffic is not None and not MONTH.fullmatch(profile.traffic.verified):
        yield f"traffic.verified: '{profile.traffic.verified}' is not a month like 2026-06"
    for i, source in enumerate(profile.sources):
        if source.verified is not None and not MONTH.fullmatch(source.verified):
            yield f"sources[{i}].verified: '{source.verified}' is not a month like 2026-06"


def _clock_faults(clock: DangerClock) -> Iterator[str]:
    """Yield each fault of a danger clock as ``.key: what is wrong``: a mode without what it needs says nothing."""
    for mode, key, why in (
        (ClockMode.COUNTDOWN, "counts_from", "needs its beginning"),
        (ClockMode.CHARGE, "runs", "needs the state in which it runs"),
        (ClockMode.TRIPWIRE, "watched_by", "needs the alert that watches for it"),
    ):
        has = getattr(clock, key) is not None
        if clock.mode is mode and not has:
            yield f".{key}: the key is missing: a {mode.value} {why}"
        elif clock.mode is not mode and has:
            yield f".{key}: only a {mode.value} has it, this is a {clock.mode.value}"
    if clock.runs is not None and clock.runs not in RUNS:
        yield f".runs: {_none_of(clock.runs, RUNS)}"
    if clock.counts_from in (ClockStart.STOP, ClockStart.START) and clock.after_s is None:
        yield f".claims: a countdown from the {clock.counts_from} needs after_s in one of them"
    if not clock.claims:
        yield ".claims: at least one source has to say so"
    for j, claim in enumerate(clock.claims):
        if claim.after_s is not None and not 0 <= claim.after_s < math.inf:
            yield f".claims[{j}].after_s: {claim.after_s:g} is no number of seconds, 0 or more"
        if claim.url is None and claim.cited_as is None:
            yield f".claims[{j}]: neither url nor cited_as says where it comes from"
        if claim.verified is not None and not MONTH.fullmatch(claim.verified):
            yield f".claims[{j}].verified: '{claim.verified}' is not a month like 2026-06"
    figures = {claim.after_s for claim in clock.claims}
    if len(clock.claims) > 1 and len(figures) > 1 and any(claim.says is None for claim in clock.claims):
        yield ".claims: the sources disagree: each needs its words (says)"


_PACKAGE = Path(__file__).resolve().parents[1]
_FIELDS = {
    "tiers": Tier.__struct_fields__,
    "prices": Price.__struct_fields__,
    "billing": BillingAction.__struct_fields__,
    "clocks": DangerClock.__struct_fields__,
    "claims": Claim.__struct_fields__,
    "sources": Source.__struct_fields__,
}
_ENUMS = {"mode": tuple(ClockMode), "counts_from": tuple(ClockStart)}
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
        tables = re.findall(r"(\w+)\[", key)
        inner = Traffic.__struct_fields__ if key == "traffic" else Profile.__struct_fields__
        known = _FIELDS.get(tables[-1], ()) if tables else inner
        return f"{f'{key}.' if key else ''}{field.group(1)}: no such key{nearest(field.group(1), known)}"
    if missing := re.search(r"missing required field `(.+?)`", text):
        return f"{f'{key}.' if key else ''}{missing.group(1)}: the key is missing"
    if given := re.match(r"Invalid enum value '(.*)'", text):
        known = _ENUMS.get(key.rsplit(".", 1)[-1], ())
        return f"{key}: {_none_of(given.group(1), known)}"
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
