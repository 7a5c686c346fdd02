"""Samples as differences: most of a box does not change within a second. Pure."""

from __future__ import annotations

from rgt_box import jsonline

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

APART = ("t", "boot", "seq", "at", "skipped")
"""Fields of a sample that are no part of the numbered values."""

FULL_EVERY = 30
"""A whole sample comes at least this often, so that a reader that lost its thread finds it again."""


class DeltaEncoder:
    """What the client has, and how to say the next sample in terms of it."""

    def __init__(self) -> None:
        self._base: dict[str, Any] = {}
        self._boot, self._seq, self._left = "", 0, 0

    def line(self, payload: bytes, skipped: int) -> bytes:
        """Return the line for a sample.

        Args:
            payload: The sample as recorded.
            skipped: How many were left out right before it.
        """
        sample = jsonline.loads_dict(payload) or {}
        fields = {key: value for key, value in sample.items() if value is not None and key not in APART}
        boot, seq = str(sample.get("boot")), int(sample.get("seq") or 0)
        whole = self._left <= 0 or boot != self._boot
        line = b"" if whole else self._difference(sample, fields, seq, skipped)
        if whole or len(line) >= len(payload):
            self._base, self._left = fields, FULL_EVERY
            line = jsonline.line(dict(sample, skipped=skipped)) if skipped else payload + b"\n"
        self._boot, self._seq, self._left = boot, seq, self._left - 1
        return line

    def _difference(self, sample: dict[str, Any], fields: dict[str, Any], seq: int, skipped: int) -> bytes:
        frame: dict[str, Any] = {"t": "delta", "seq": seq, "at": sample.get("at")}
        if seq - self._seq != 1:
            frame["back"] = seq - self._seq
        put = {
            key: fields.get(key)
            for key in list(self._base) + [key for key in fields if key not in self._base]
            if key not in fields or key not in self._base or not alike(self._base[key], fields[key])
        }
        changes: list[Any] = []
        place = 0
        for key, value in self._base.items():
            found = leaves(value)
            if key not in put:
                for index, (old, new) in enumerate(zip(found, leaves_in_order(value, fields[key]))):  # noqa: B905
                    if old != new or type(old) is not type(new):
                        changes += [place + index, new]
            place += len(found)
        if changes:
            frame["v"] = changes
        if put:
            frame["put"] = put
        if skipped:
            frame["skipped"] = skipped
        self._base = renewed(self._base, fields)
        return jsonline.line(frame)


def is_objects(value: Any) -> bool:
    """Tell whether a value is a list of objects, into which the numbering goes down."""
    return isinstance(value, list) and bool(value) and all(isinstance(item, dict) for item in value)


def leaves(value: Any) -> list[Any]:
    """Return the values inside `value` that are neither objects nor lists of objects, depth first."""
    return leaves_in_order(value, value)


def leaves_in_order(pattern: Any, value: Any) -> list[Any]:
    """Return the leaves of `value`, which is alike, in the order that `pattern` has them."""
    if isinstance(pattern, dict):
        return [leaf for key, item in pattern.items() for leaf in leaves_in_order(item, value[key])]
    if is_objects(pattern):
        return [leaf for index, item in enumerate(pattern) for leaf in leaves_in_order(item, value[index])]
    return [value]


def alike(old: Any, new: Any) -> bool:
    """Tell whether two values have the same keys and lengths, so that leaves correspond."""
    if isinstance(old, dict):
        return (
            isinstance(new, dict)
            and old.keys() == new.keys()
            and all(alike(old[key], new[key]) for key in old)
        )
    if is_objects(old):
        return is_objects(new) and len(old) == len(new) and all(map(alike, old, new))
    return not isinstance(new, dict) and not is_objects(new)


def renewed(base: dict[str, Any], fields: dict[str, Any]) -> dict[str, Any]:
    """Return `fields` in the order in which the client has them after this difference."""
    kept = {key: reordered(value, fields[key]) for key, value in base.items() if key in fields}
    return dict(kept, **{key: value for key, value in fields.items() if key not in kept})


def reordered(pattern: Any, value: Any) -> Any:
    """Return `value` with its keys in the order of `pattern`, where the two are alike."""
    if not alike(pattern, value):
        return value
    if isinstance(pattern, dict):
        return {key: reordered(item, value[key]) for key, item in pattern.items()}
    if is_objects(pattern):
        return [reordered(item, value[index]) for index, item in enumerate(pattern)]
    return value
