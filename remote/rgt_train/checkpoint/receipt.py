"""The receipt of a resume, and how far it is exact: environment and hyperparameters, then and now.

A checkpoint has the current values: a learning rate in the middle of its schedule, for example.
They win at a resume, or the schedule would start again. So a value that was edited in the code
would be ignored silently. Therefore every checkpoint also has the value in the code, the *declared*
one, and a resume compares it with the present code: each difference is reported, and adopted if
`Options.override` names it.
"""

from __future__ import annotations

import copy
import platform
import sys
from collections import Counter
from typing import Any, Dict, Iterable, Iterator, Mapping, Sequence

import torch

from rgt_train.checkpoint import encoding
from rgt_train.checkpoint.safetensors import WHOLE
from rgt_train.data import rng
from rgt_train.exits import UsageError
from rgt_train.state_search import in_words


def environment(world: int = 1) -> dict[str, Any]:
    """Return versions, device, threads and flags; if two differ, bits may differ.

    Args:
        world: Ranks of the run (another number adds in another order).
    """
    cuda = torch.cuda.is_available()
    facts: dict[str, Any] = {
        "torch": str(torch.__version__),
        "python": platform.python_version(),
        "device": torch.cuda.get_device_name() if cuda else "cpu",
        "cpu": _capability(),
        "threads": torch.get_num_threads(),
        "ranks": world,
        "deterministic": _deterministic(),
        "matmul": torch.get_float32_matmul_precision(),
    }
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None:
        facts["numpy"] = str(numpy.__version__)
    if cuda:
        facts["cuda"] = str(torch.version.cuda)
        facts["cudnn"] = str(torch.backends.cudnn.version())  # type: ignore[no-untyped-call]
        facts["cudnn deterministic"] = torch.backends.cudnn.deterministic
        facts["cudnn benchmark"] = torch.backends.cudnn.benchmark
        facts["tf32"] = torch.backends.cuda.matmul.allow_tf32
    return facts


_HARMLESS = ("python", "numpy")
"""Reported when they change, although they compute nothing in a step."""


def describe_changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """Return the differences in words; empty without one."""
    keys = [key for key in {**old, **new} if old.get(key) != new.get(key)]
    return ", ".join(f"{key} {old.get(key)} → {new.get(key)}" for key in keys)


def guarantee(
    old: Mapping[str, Any],
    new: Mapping[str, Any],
    lost: str = "",
    settings: str = "",
    *,
    sampled: bool = False,
    unknown: str = "",
    proved: int = 0,
    complete: bool = True,
) -> str:
    """Describe whether the run continues bit for bit as it would have without the interruption.

    Args:
        old: `environment` of the checkpoint.
        new: `environment` now.
        lost: State that could not be restored, in words.
        settings: The changed settings, in words.
        sampled: Whether only samples of the checkpoint were compared with its step.
        unknown: Unknown factors that may change bits, in words.
        proved: Steps that a replay has proved.
        complete: Whether nothing was found that was not given.
    """
    weighty = {key for key in {**old, **new} if key not in _HARMLESS}
    differs = describe_changes(
        {k: v for k, v in old.items() if k in weighty},
        {k: v for k, v in new.items() if k in weighty},
    )
    timed = "cudnn benchmark is on: each launch picks its kernels again, by their speed"
    doubts = [lost, differs, timed if new.get("cudnn benchmark") else ""]
    if any(doubts):
        return (
            "bits may differ from the uninterrupted run: "
            f"{'; '.join(doubt for doubt in doubts if doubt)}"
        )
    if sampled:
        told = (
            "the checkpoint was sampled, not compared in full with its step; as far as that "
            "tells, the same bits"
        )
    elif proved and complete and not unknown:
        told = f"bit for bit, proved over {proved} steps"
    else:
        told = "the same bits as far as given"
        if proved:
            told += f", proved over {proved} steps"
    if torch.cuda.is_available() and new.get("deterministic") is not True:
        told += ", where the CUDA kernels are deterministic"
    if settings:
        told += ", but for what the changed settings do"
    return f"same torch, device and threads: {told}{f' (not known: {unknown})' if unknown else ''}"


def _deterministic() -> Any:
    """Return True, False, or ``warn only``, which computes like False and only warns."""
    asked = torch.are_deterministic_algorithms_enabled()
    if asked and torch.is_deterministic_algorithms_warn_only_enabled():
        return "warn only"
    return asked


def _capability() -> str:
    try:
        return str(torch.backends.cpu.get_cpu_capability())
    except AttributeError:
        return platform.machine()


Declared = Dict[str, Any]
"""Name of a part → its ``class``, and ``values`` by key."""
_RUNNING = frozenset((
    "last_epoch", "_step_count", "_last_lr", "_get_lr_called_within_step", "_is_initial",
    "base_lrs", "best",
    "num_bad_epochs", "cooldown_counter", "last_lr", "T_cur", "T_i", "scale", "_growth_tracker",
))  # fmt: skip
"""Values of schedules and scalers that change as they run, or follow from the optimizer's."""
_DERIVED = ("params", "param_names", "initial_lr")
_MISSING = object()


class Hyperparameters:
    """The hyperparameters that this launch declares; made before anything is loaded.

    Args:
        others: Name → optimizer, scheduler, scaler, EMA, ….
        optimizers: Names of the optimizers.
        schedules: Names of schedulers and scalers.

    Attributes:
        declared: Written to the checkpoints: the values in the code, except where the checkpoint
            has won.
    """

    def __init__(
        self, others: Mapping[str, Any], optimizers: set[str], schedules: set[str]
    ) -> None:
        self._others = others
        self._optimizers = optimizers
        self._schedules = schedules
        self._raw: dict[tuple[str, str], Any] = {}
        self.declared: Declared = {
            name: {"class": type(part).__name__, "values": self._part_values(name)}
            for name, part in sorted(others.items())
        }

    def check_override_names(self, names: Sequence[str]) -> None:
        """Check that every name to override exists.

        Raises:
            UsageError: One does not; the known ones are listed.
        """
        known = {_override_name(key) for part in self.declared.values() for key in part["values"]}
        for name in names:
            if name not in known:
                raise UsageError(
                    f"override: there is no {name!r}; known are {', '.join(sorted(known))}"
                )

    def refuse_other_classes(self, saved: Declared, where: str) -> None:
        """Check that the state of each optimizer is loaded into one of its own class.

        Raises:
            UsageError: It is not.
        """
        for name in sorted(self._optimizers):
            old = saved.get(name, {}).get("class")
            new = self.declared[name]["class"]
            if old not in (None, new):
                raise UsageError(
                    f"{name} of {where} is the state of {_with_article(old)}, this run has "
                    f"{_with_article(new)}: it would be taken for "
                    f"something else. Launch with {old}, or start over with another directory"
                )

    def apply_overrides(
        self, saved: Declared, override: Sequence[str]
    ) -> tuple[list[str], list[str]]:
        """Compare with the declaration of the launch that made the checkpoint; apply the overrides.

        Call it once the checkpoint is loaded.

        Args:
            saved: Its declaration.
            override: Names of the hyperparameters that take the code's value.

        Returns:
            (all messages, those that change bits).
        """
        told: list[str] = []
        doubts: list[str] = []
        for name in sorted(set(saved) & set(self.declared)):
            old = saved[name]
            new = self.declared[name]
            if old["class"] != new["class"]:
                told.append(
                    f"{name} is {_with_article(new['class'])} now, the checkpoint's is "
                    f"{_with_article(old['class'])}: it took over what "
                    "the two have in common"
                )
                doubts.append(f"{name} of another class")
                continue
            for key, was, now in _differences(old["values"], new["values"]):
                word = _override_name(key)
                if word in override:
                    self._apply_declared(name, key, was)
                    told.append(f"{name} {key} overridden: {_value_text(was)} → {_value_text(now)}")
                    doubts.append(f"{name} {key} overridden")
                else:
                    told.append(
                        f"{name} {key} is {_value_text(now)} in the code now and was "
                        f"{_value_text(was)}: the checkpoint's goes "
                        f"on (Options(override=({word!r},)) takes the code's)"
                    )
                    new["values"][key] = was  # so that it is reported again at the next resume
        return told, doubts

    def _part_values(self, name: str) -> dict[str, Any]:
        part = self._others[name]
        if name in self._optimizers:
            return self._values_of_groups(name, getattr(part, "param_groups", []))
        if name not in self._schedules:
            return {}
        found = {}
        for key, value, raw in _iterate_plain_values(part.state_dict()):
            if not _RUNNING.intersection(key.split("/")):
                found[key] = value
                # A copy: loading the checkpoint changes the values of the part itself.
                self._raw[name, key] = copy.deepcopy(raw)
        return found

    def _values_of_groups(self, name: str, groups: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return the values by key for all groups; per group where the groups differ."""
        each: list[dict[str, Any]] = []
        for number, group in enumerate(groups):
            said = dict(group)
            # Once a schedule has begun, the value in the code is the initial rate.
            if "initial_lr" in group:
                said["lr"] = group["initial_lr"]
            plain = _iterate_plain_values(
                {key: value for key, value in said.items() if key not in _DERIVED}
            )
            each.append({})
            for key, value, raw in plain:
                each[-1][key] = value
                kept = copy.deepcopy(raw)
                self._raw[name, _group_key(number, key)] = kept
                self._raw[name, key] = kept
        found: dict[str, Any] = {}
        for key in {key: None for values in each for key in values}:
            first = each[0].get(key, _MISSING)
            if all(key in values and values[key] == first for values in each):
                found[key] = first
            else:
                found.update(
                    {
                        _group_key(n, key): values[key]
                        for n, values in enumerate(each)
                        if key in values
                    }
                )
        return found

    def _apply_declared(self, name: str, key: str, was: Any) -> None:
        part = self._others[name]
        now = self._raw[name, key]
        if name not in self._optimizers:
            # Through the state, because a part may keep a value under another attribute than the
            # state's key (GradScaler does).
            state = part.state_dict()
            _set_at_path(state, key.split("/"), now)
            part.load_state_dict(state)
            return
        number, word = _split_group_key(key)
        for at, group in enumerate(part.param_groups):
            if number in (None, at) and word == "lr":
                self._apply_learning_rate(part, at, group, was, float(now))
            elif number in (None, at):
                _set_at_path(group, word.split("/"), now)

    def _apply_learning_rate(
        self, optimizer: Any, at: int, group: dict[str, Any], was: Any, now: Any
    ) -> None:
        """Give a group the rate in the code, at its present position in the schedule."""
        rate = now
        if "initial_lr" in group:
            if was:
                # What the schedule has made of its base rate so far, applied to the new one.
                rate = float(group["lr"]) / was * now
            else:
                rate = now
            group["initial_lr"] = now
        if isinstance(group["lr"], torch.Tensor):
            # In place: a captured or compiled step reads this very tensor.
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate
        for name in self._schedules:
            for schedule in _schedules(self._others[name]):
                if getattr(schedule, "optimizer", None) is optimizer and hasattr(
                    schedule, "base_lrs"
                ):
                    schedule.base_lrs[at] = now
                    schedule._last_lr[at] = rate


def _iterate_plain_values(state: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield path, JSON form and value of all plain values in `state`; others are left out."""
    plain = _plain_value(state)
    if plain is not _MISSING:
        yield path, plain, state
        return
    inside: Iterable[tuple[Any, Any]] = ()
    if isinstance(state, Mapping):
        inside = state.items()
    elif isinstance(state, (list, tuple)):
        inside = enumerate(state)
    for key, value in inside:
        yield from _iterate_plain_values(value, f"{path}/{key}" if path else str(key))


def _plain_value(value: Any) -> Any:
    """Return a comparable value that JSON accepts: numbers, words, lists of them."""
    if isinstance(value, torch.Tensor) and value.numel() == 1:
        value = value.item()
    if isinstance(value, Counter):  # the milestones of a schedule
        value = sorted(value.elements())
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)) and all(
        isinstance(v, (bool, int, float, str)) for v in value
    ):
        return list(value)
    return _MISSING


def _differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Yield the key, the old and the new value of each difference.

    Skip keys without a counterpart.
    """
    for key in new:
        number, word = _split_group_key(key)
        was = old.get(key, old.get(word, _MISSING))
        if was is not _MISSING and was != new[key]:
            yield key, was, new[key]
    for key in old:  # the groups differed then, and are equal now
        number, word = _split_group_key(key)
        if number is not None and key not in new and word in new and old[key] != new[word]:
            yield key, old[key], new[word]


def _group_key(number: int, key: str) -> str:
    return f"of group {number} {key}"


def _split_group_key(key: str) -> "tuple[int | None, str]":
    """Return the group number of a key, None for all groups, and the key without it."""
    words = key.split(" ", 3)
    if words[:2] == ["of", "group"]:
        return (int(words[2]), words[3])
    return (None, key)


def _override_name(key: str) -> str:
    """Return the name used to override a hyperparameter."""
    return _split_group_key(key)[1].rsplit("/", 1)[-1]


def _set_at_path(state: Any, path: list[str], value: Any) -> None:
    for key in path[:-1]:
        if isinstance(state, (list, tuple)):
            state = state[int(key)]
        else:
            state = state[key]
    state[path[-1]] = value


def _schedules(schedule: Any) -> Iterator[Any]:
    yield schedule
    for inner in getattr(schedule, "_schedulers", ()):
        yield from _schedules(inner)


def _value_text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return str(value)


def _with_article(kind: str) -> str:
    if kind[:1] in "AEIOU" or kind[:3] in ("SGD", "RMS", "NAd", "LBF"):
        return f"an {kind}"
    return f"a {kind}"


Tensors = Dict[str, torch.Tensor]


class RestoredState:
    """The result of `RunState.restore`.

    Attributes:
        parts: The restored parts, in words.
        changed: Settings that differ from those of the checkpoint, in words; empty if none.
        told: Hyperparameters of the code that differ from those of the checkpoint, a line each.
        rng: The random state of this rank, not restored yet; None if the checkpoint has none for
            it.
        grads: Gradients of a half-done accumulation, not restored yet.
        evaluating: Modules in evaluation mode, by model.
        found: What the run was not given, as `StateSearch.found`.
        content: As `StateSearch.content`.
        proof: The result of a replay, as `StepProof.result`.
        late: Changes after the step of the checkpoint that it does not contain, in words.
    """

    def __init__(
        self,
        parts: list[str],
        document: Mapping[str, Any],
        here: Mapping[str, Any],
        settings: Mapping[str, Any],
        grads: Mapping[str, Tensors],
        rank: int,
        inexact: Sequence[str] = (),
        told: Sequence[str] = (),
        doubts: Sequence[str] = (),
    ) -> None:
        self.parts = parts
        self.grads = grads
        self.told = list(told)
        self._doubts = list(doubts)
        self._data = document.get("data", {})
        self._inexact = list(inexact)
        self.evaluating: dict[str, list[str]] = document.get("evaluating", {})
        self.late: Sequence[str] = ()
        self.proof: dict[str, Any] = self._data.get("proof", {})
        self.content: dict[str, Any] = self._data.get("content", {})
        found: dict[str, list[str]] = self._data.get("not_given", {})
        new = tuple(line.partition(" (not in the checkpoint)")[0] for line in inexact)
        self.found = {kind: names for kind, names in found.items() if kind not in new}
        self._old = document["environment"]
        self._new = here
        self._sampled = document.get("compared") != WHOLE
        states = document["rng"]
        alike = self._old.get("ranks", 1) == here["ranks"] and rank < len(states)
        self.rng: dict[str, Any] | None = states[rank] if alike else None
        self.changed = describe_changes(
            document["settings"], encoding.encode_value(dict(settings), no_tensor, "settings")
        )
        if self.rng is not None:
            kinds = [kind for kind in self.rng if kind not in ("ahead", "head")]
            parts.append(f"random state of {', '.join(kinds)}")

    @property
    def not_restored(self) -> list[str]:
        """The parts that could not be restored, in words."""
        random = ["random state (another number of ranks): seeded again"]
        if self.rng is not None:
            random = rng.unrestorable_parts(self.rng)
        return [*random, *self._inexact]

    @property
    def not_given(self) -> str:
        """What the run was not given although it changes, in words, as far as it was seen."""
        return in_words(self.found)

    def guarantee(self) -> str:
        """Describe whether the run continues bit for bit as without the interruption."""
        late = dict.fromkeys([*self._data.get("late", ()), *self.late])
        doubts = [*self.not_restored, *self._doubts, *late]
        if self._data.get("draws"):
            doubts.append("the stream has no state_dict and draws random numbers while it is read")
        proved = self.proof.get("steps", 0)
        if self.proof.get("difference"):
            doubts.append(f"a replay of {proved} steps: {self.proof['difference']}")
        unseeded = self._data.get("ahead") and not self._data.get("seeded")
        return guarantee(
            self._old, self._new, ", ".join(doubts), self.changed, sampled=self._sampled,
            proved=proved,
            complete=not self.found,
            unknown="whether making a sample draws random numbers, as run.seeded is not used" if unseeded else "",
        )  # fmt: skip


def no_tensor(path: str, tensor: torch.Tensor) -> str:
    """Refuse a tensor where only plain values are expected.

    Raises:
        CannotStore: Always.
    """
    raise encoding.CannotStore(f"{path} is a tensor; only plain values are expected there")
