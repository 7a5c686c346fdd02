"""Frames as no honest agent writes them, made from the structs themselves: a new field is odd here by itself."""

from __future__ import annotations

import json
import random
import types
import typing
from collections.abc import Callable, Iterable
from functools import cache
from typing import Annotated, Any

import msgspec

from rgt_tui.fleet import FleetAlerting, FrameIntake
from rgt_tui.health import diagnose_box
from rgt_tui.model import MAX_FRAME_BYTES, BoxSpec, BoxState, Frame, Hello
from rgt_tui.profiles import load_profile
from rgt_tui.ssh import read_frame

KINDS: tuple[type[msgspec.Struct], ...] = typing.get_args(Frame)
WORDS = (
    "running", "done", "waiting", "failed", "interrupted", "verified", "pending", "R", "Z", "T", "tmux", "slurm",
    "loss", "val_loss", "lr", "total_steps", "/", "/workspace", "util", "disk:/", "oom-kill", "rebooted", "error",
    "COMPLETED", "TIMEOUT", "a", "a/b", "/log", "/m#loss", "nan", "none", "boot",
)  # fmt: skip
"""What the fields of an honest frame say: odd numbers matter beside words that are looked at."""
TEXTS = (
    "", " ", "x" * 5000, "\x1b[31mred\x1b]0;title\x07", "\u202eevil", "\u200b", "你好" * 50, "🚀" * 40, "\0", "a\nb\rc",
    "[bold]no markup[/]", "%s{}{0}", "../" * 40, "/" * 3000, "\ufffd", "e\u0301" * 30, "\t" * 20, "-rf", "$(id)",
)  # fmt: skip
INTS = (
    0,
    1,
    2,
    -1,
    7,
    64,
    10**6,
    2**31,
    2**63 - 1,
    2**63,
    2**64 - 1,
    -(2**63),
    10**17,
    10**18,
    1_700_000_000,
)
FLOATS = (
    0.0, -0.0, 0.5, 1.0, 42.0, 99.9999, 100.0, -1.0, 1e-9, 5e-324, 1e15, -1e15, 6e10, -6e10, 1e17, 1e300, 1.7e308,
    -1.7e308, 1.7e9, 1.7e12, 9_007_199_254_740_993.0,
)  # fmt: skip
BEYOND = (2**64, -(2**64), 10**400, 1e999)
"""What no field takes."""


class Odd:
    """Makes frames.

    Args:
        seed: The same one makes the same frames.
        most: Items of a list or a dictionary, at most.
    """

    def __init__(self, seed: int, most: int = 6) -> None:
        self._random = random.Random(seed)
        self._most = most
        self._plain = self._makers()

    def line(self, kind: type[msgspec.Struct] | None = None) -> bytes:
        """Return a line that the client might get: nearly always a frame that it has to take."""
        made = self.struct(kind or self._random.choice(KINDS))
        if self._chance(0.05):
            made[self._random.choice(list(made))] = self._random.choice(
                (None, {}, [], "", [[[]]], *BEYOND)
            )
        line = json.dumps(made).encode()
        while len(line) > MAX_FRAME_BYTES:
            line = json.dumps(self.struct(kind or self._random.choice(KINDS))).encode()
        return line

    def struct(self, kind: type[msgspec.Struct]) -> Any:
        """Return a struct as it comes over the wire; fields that have a default may be missing."""
        hints, info = _hints(kind), msgspec.structs.fields(kind)
        config = kind.__struct_config__
        if config.array_like:
            return [self.value(hints[field.name]) for field in info]
        made: dict[str, Any] = {} if config.tag is None else {str(config.tag_field): config.tag}
        for field in info:
            if field.required or self._chance(0.8):
                made[field.encode_name] = self.value(hints[field.name])
        return made

    def value(self, hint: Any) -> Any:
        """Return a value of a declared type; within what its annotation allows, as far as that is a bound."""
        pick = self._random
        origin, parts = typing.get_origin(hint), typing.get_args(hint)
        if origin is Annotated:
            return self._bounded(
                parts[0], [item for item in parts[1:] if isinstance(item, msgspec.Meta)]
            )
        if origin in (types.UnionType, typing.Union):
            # The first is what an honest frame has; the others are mostly "unknown".
            return self.value(parts[0] if self._chance(0.7) else pick.choice(parts))
        if origin is tuple:
            if parts[-1] is not Ellipsis:
                return [self.value(part) for part in parts]
            return [self.value(parts[0]) for _ in range(self._size())]
        if origin is dict:
            return {self.value(parts[0]): self.value(parts[1]) for _ in range(self._size())}
        if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
            return self.struct(hint)
        made = self._plain.get(hint)
        if made is None:
            raise TypeError(f"teach the generator to make {hint!r}")
        return made()

    def _makers(self) -> dict[Any, Callable[[], Any]]:
        pick = self._random
        return {
            str: lambda: pick.choice(WORDS) if self._chance(0.7) else pick.choice(TEXTS),
            bool: lambda: self._chance(0.5),
            int: lambda: pick.choice(INTS),
            float: lambda: pick.choice(FLOATS),
            types.NoneType: lambda: None,
            None: lambda: None,
            Any: lambda: pick.choice(
                (0, 1, 1e300, -1, "x", None, [], {}, [[{"a": 1}]], True, *INTS)
            ),
        }

    def _bounded(self, hint: Any, limits: list[msgspec.Meta]) -> Any:
        """Return a value that keeps to the limits, mostly; the limits themselves are among them."""
        made = self.value(hint)
        if self._chance(0.02):
            return made
        for limit in limits:
            if isinstance(made, int | float):
                low = limit.ge if limit.ge is not None else made
                high = limit.le if limit.le is not None else made
                made = min(max(made, low), high)
            elif limit.max_length is not None:
                made = made[: limit.max_length]
        return made

    def _chance(self, probability: float) -> bool:
        return self._random.random() < probability

    def _size(self) -> int:
        return self._random.choice((0, 1, 1, 2, self._most))


@cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind, include_extras=True)


NOW = 1_795_255_331.0
SPEC = BoxSpec(name="a", host="h", profile="runpod")


def taken(lines: Iterable[bytes], state: BoxState | None = None) -> tuple[BoxState, int]:
    """Return the state of a box after lines as the client takes them in, and how many were refused."""
    intake = FrameIntake(SPEC, load_profile(SPEC.profile))
    state, refused = state or BoxState(spec=SPEC), 0
    for number, line in enumerate(lines):
        try:
            frame = read_frame(line)
        except (ValueError, RecursionError):
            refused += 1
        else:
            state = intake.apply_frame(state, frame, NOW + number / 100)
        intake.build_config(state, 1.0, NOW)
    return state, refused


def odd_lines(seed: int, count: int = 40) -> list[bytes]:
    """Return lines of every kind, then of any."""
    odd = Odd(seed)
    return [odd.line(KINDS[number] if number < len(KINDS) else None) for number in range(count)]


def odd_state(seed: int) -> BoxState:
    """Return the state of a box that speaks nonsense, as the fleet judges it; every other one has its clock right."""
    hello = Hello(proto=1, agent="abc", boot="boot", host="h", python="3.11", pid=1, at=NOW)
    sent = odd_lines(seed)
    if seed % 2:
        sent = [line for line in sent if not line.startswith((b'{"t": "hello"', b'{"t": "pong"'))]
    state, _ = taken([msgspec.json.encode(hello), *sent])
    state = msgspec.structs.replace(state, findings=diagnose_box(state, NOW, ()))
    return FleetAlerting(clock=lambda: NOW).judge_box(state, NOW)[0]
