"""Which storage tier a path belongs to, and thus what outlives a stop or a destroy."""

from __future__ import annotations

from rgt_tui.model.profile import Profile, Tier

_WORTH = {False: 0, None: 1, True: 2}


def tier_named(profile: Profile, name: str) -> Tier | None:
    """Return the tier of `profile` called `name`."""
    return next((tier for tier in profile.tiers if tier.name == name), None)


def survival(profile: Profile, mount: str, *, tier: str | None = None) -> Tier | None:
    """Return the tier that `mount` (a mount point, or any absolute path) belongs to; None = not known.

    The longest matching mount wins. Where two tiers share it (RunPod's ``/workspace`` is the volume disk
    or a network volume), the one that survives less is assumed; who knows better names the `tier`.

    Args:
        profile: The platform.
        mount: Absolute path on the box.
        tier: Name of the tier to prefer among those that share the longest mount.
    """
    path = mount.rstrip("/") + "/"
    found: list[tuple[int, Tier]] = [
        (len(root), candidate)
        for candidate in profile.tiers
        for root in (own.rstrip("/") + "/" for own in candidate.mounts)
        if path.startswith(root)
    ]
    if not found:
        return None
    longest = max(length for length, _ in found)
    best = [candidate for length, candidate in found if length == longest]
    if tier is not None:
        best = [candidate for candidate in best if candidate.name == tier] or best
    return min(best, key=lambda t: (_WORTH[t.survives_destroy], _WORTH[t.survives_stop]))
