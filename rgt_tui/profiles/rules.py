"""What the types alone cannot say about a profile: names that must agree, and words from a fixed list."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rgt_tui.model.profile import Profile
from rgt_tui.profiles.errors import nearest

KINDS = ("park", "destroy", "other")
STARTS = ("stopped", "running", "event")
ROLES = ("system", "data", "durable")
MONTH = re.compile(r"20\d\d-(0[1-9]|1[0-2])")


def _none_of(word: str, known: tuple[str, ...]) -> str:
    return f"'{word}' is none of {', '.join(known)}{nearest(word, known)}"


def faults(profile: Profile, stem: str) -> Iterator[str]:
    """Yield each fault of `profile` as ``key: what is wrong``; `stem` is the file's name, suffix off."""
    if profile.id != stem:
        yield f"id: '{profile.id}' is not the file's name '{stem}'"
    tiers = [tier.name for tier in profile.tiers]
    for name in {name for name in tiers if tiers.count(name) > 1}:
        yield f"tiers.name: '{name}' stands twice"
    for i, tier in enumerate(profile.tiers):
        if tier.role is not None and tier.role not in ROLES:
            yield f"tiers[{i}].role: {_none_of(tier.role, ROLES)}"
        for mount in tier.mounts:
            if not mount.startswith("/"):
                yield f"tiers[{i}].mounts: '{mount}' is not absolute"
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
        if clock.starts not in STARTS:
            yield f"clocks[{i}].starts: {_none_of(clock.starts, STARTS)}"
        if clock.after_s is not None and clock.after_s < 0:
            yield f"clocks[{i}].after_s: {clock.after_s:g} is negative"
    for i, source in enumerate(profile.sources):
        if source.verified is not None and not MONTH.fullmatch(source.verified):
            yield f"sources[{i}].verified: '{source.verified}' is not a month like 2026-06"
