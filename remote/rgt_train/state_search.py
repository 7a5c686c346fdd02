"""Searches for state that a run was not given.

A run restores what it was given. State that it was not given starts again after a resume, and
nothing fails: the training goes on with other weights. So such state is searched for where a search
is cheap: every optimizer that steps is seen by a hook, objects with ``state_dict`` and plain
attributes of modules are compared between saves, and of the variables of the loop those that it
carries from one step (or epoch) to the next, which its bytecode shows.
"""

from __future__ import annotations

import functools
import gc
import io
import os
import re
import sys
import time
import types
import zlib
from collections import deque
from contextlib import suppress
from itertools import chain, compress, islice
from typing import Any, Callable, Dict, Iterable, Iterator, Mapping, Sequence
from weakref import WeakKeyDictionary, ref

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.data.dataloader import _BaseDataLoaderIter

from rgt_train.checkpoint.encoding import tensor_ids
from rgt_train.checkpoint.snapshot import outside_compile, version_of
from rgt_train.data.rng import find_generators, random_state
from rgt_train.data.sampler import BatchPlan
from rgt_train.loop_code import (
    carried_names,
    counts_batches,
    names_of_loop,
    reads_first,
)

_ASIDE = (
    "rgt_train", "tqdm", "logging", "threading", "matplotlib", "wandb", "rich", "torchmetrics",
)  # fmt: skip
"""Packages whose objects change and are no state of a training."""


class StateSurvey:
    """The plain state in some objects, by path, in a form that can be compared.

    Args:
        given: The ids of objects to leave out.
        most: Largest number of values that are read.
    """

    def __init__(self, given: Iterable[int], most: int = 4000) -> None:
        self.found: dict[str, Any] = {}
        self._seen = set(given)
        self._most = most
        self._kept: list[Any] = []

    def add_value(self, path: str, value: Any, depth: int = 4) -> None:
        """Add `value` and its content down to `depth`."""
        # A hash, so that a long text is not kept for the comparison.
        if isinstance(value, str):
            self.found[path] = hash(value)
            return
        if value is None or isinstance(value, (bool, int, float)):
            if not _is_clock_reading(value):
                self.found[path] = repr(value)
            return
        aside = isinstance(value, (type, types.ModuleType))
        if aside or id(value) in self._seen or len(self.found) > self._most:
            return
        self._seen.add(id(value))
        self._kept.append(value)  # another object could get its id
        state = random_state(value)
        if state is not None:
            # All numbers: the text of a long tensor leaves out most of them.
            if hasattr(state, "tolist"):
                state = state.tolist()
            self.found[path] = zlib.crc32(repr(state).encode())
        elif isinstance(value, torch.Tensor):
            if not value.requires_grad:  # of this step only, or a parameter
                # A few rows of a large queue may have been written, and none of the sampled ones.
                self.found[path] = version_of(value), _sample_values(value)
        elif _module_of(type(value)) == "numpy" and hasattr(value, "flat"):
            some = value.flat[:: value.size // 64 + 1].tolist()
            self.found[path] = 0, (value.shape, repr(some))
        elif depth > 0:
            self._add_inside(path, value, depth - 1)

    def add_graphs(self, path: str, value: Any) -> None:
        """Add the tensors with a graph in a variable that the next step reads, such as a hidden state.

        Elsewhere such tensors are of one step only.
        """
        if isinstance(value, torch.Tensor) and value.grad_fn is not None and value.dim():  # no loss
            self.found[path] = _sample_values(value)
        elif isinstance(value, (list, tuple)):
            for number, entry in enumerate(value[:32]):
                self.add_graphs(f"{path}[{number}]", entry)

    def add_module(self, path: str, module: torch.nn.Module) -> None:
        """Add the plain attributes of a module, and its buffers that its ``state_dict`` leaves out."""
        usual = {*vars(torch.nn.Module()), "_flat_weights"}
        # What a hook of torch's own computes before each forward pass: a normalised weight.
        usual |= {getattr(hook, "name", "") for hook in module._forward_pre_hooks.values()}
        for name, value in list(vars(module).items()):
            if name not in usual:
                self.add_value(f"{path}.{name}".lstrip("."), value, 1)
                if reads_first(type(module).forward, name):
                    self.add_graphs(f"{path}.{name}".lstrip("."), value)
        for hook in (*module._forward_hooks.values(), *module._forward_pre_hooks.values()):
            self.add_value(f"{path}.{getattr(hook, '__name__', 'hook')}".lstrip("."), hook, 2)
        for name in sorted(module._non_persistent_buffers_set):
            self.add_value(f"{path}.{name}".lstrip("."), module._buffers.get(name), 1)

    def _add_inside(self, path: str, value: Any, depth: int) -> None:
        if isinstance(value, (list, tuple, deque, dict, set, frozenset)):
            # The length shows that a list grows, even if only its first entries are read.
            self.found[f"{path}["] = len(value)
            pairs: Iterable[tuple[Any, Any]] = enumerate(value)
            if isinstance(value, dict):
                pairs = list(value.items())
            # The last one as well: a history is changed at its end.
            for key, entry in chain(islice(pairs, 32), enumerate(_last_entry(value))):
                self.add_value(f"{path}[{key!r:.40}]", entry, depth)
        elif isinstance(value, types.MethodType):
            self.add_value(path, value.__self__, depth)
        elif isinstance(value, functools.partial):
            self.add_value(path, (value.func, value.args, value.keywords), depth)
        elif isinstance(value, types.FunctionType) and _is_own_code(value.__code__.co_filename):
            # What a callback keeps for itself; its globals are those of its module.
            for name, cell in zip(value.__code__.co_freevars, value.__closure__ or ()):
                with suppress(ValueError):  # not assigned yet
                    self.add_value(f"{path}.{name}", cell.cell_contents, depth)
        elif _is_surveyed(value):
            slots = [name for kind in type(value).__mro__ for name in _slots_of(kind)]
            entries = {name: getattr(value, name) for name in slots if hasattr(value, name)}
            entries.update(getattr(value, "__dict__", {}))
            for name, entry in entries.items():
                self.add_value(f"{path}.{name}", entry, depth)


def _filled_paths(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Return the paths that had None before and hold something with content after."""
    empty = [path for path, value in before.items() if value == _NONE and path not in after]
    return [
        path for path in empty if any(each.startswith((f"{path}.", f"{path}[")) for each in after)
    ]


def _is_clock_reading(value: Any) -> bool:
    """Return whether `value` is a recent time, with which loops measure how long a step takes."""
    if type(value) is not float or value.is_integer():
        return False
    hour_s = 3600.0
    clocks = (time.time(), time.perf_counter(), time.monotonic())
    return any(now - hour_s <= value <= now for now in clocks)


def _last_entry(value: Any) -> Sequence[Any]:
    if isinstance(value, (list, deque)) and value:
        return [value[-1]]
    return ()


def _slots_of(kind: type) -> Sequence[str]:
    slots = vars(kind).get("__slots__", ())
    if isinstance(slots, str):
        slots = (slots,)
    return [name for name in slots if not name.startswith("__")]


def _is_surveyed(value: Any) -> bool:
    """Return whether the attributes of `value` may be state of a training."""
    if hasattr(type(value), "__next__") or not (
        hasattr(value, "__dict__") or hasattr(type(value), "__slots__")
    ):
        return False  # asked of the class: an object may make up its attributes
    module = _module_of(type(value))
    if module.startswith("torch."):
        return module.startswith("torch.utils.data")
    return module.partition(".")[0] not in _ASIDE and not isinstance(value, torch.nn.Module)


def _module_of(kind: type) -> str:
    """Return the module of a class: some classes made in C have a descriptor in its place."""
    return str(kind.__module__)


def _sample_values(tensor: torch.Tensor) -> Any:
    """Return shape and some values of `tensor`; nothing of one without memory of its own."""
    try:
        part = tensor.detach()
        if part.is_contiguous():
            part = part.view(-1)[:: part.numel() // 64 + 1]
        else:  # without a copy of all
            part = part[(slice(4),) * part.dim()]
        return tuple(tensor.shape), repr(part.tolist())
    except (RuntimeError, NotImplementedError, TypeError, ValueError):
        return None


_LIBRARIES = (os.path.dirname(__file__), os.path.dirname(os.__file__), "<frozen")


@functools.lru_cache(maxsize=4096)  # asked for each module and frame at each save
def _is_own_code(file: str) -> bool:
    """Return whether `file` is a person's own, and not of a library."""
    return not file.startswith(_LIBRARIES) and "site-packages" not in file


def user_frames(most: int = 6) -> list[types.FrameType]:
    """Return the frames of a person's own code that lead here, the innermost first."""
    found: list[types.FrameType] = []
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None and len(found) < most:
        if _is_own_code(frame.f_code.co_filename):
            found.append(frame)
        frame = frame.f_back
    return found


def _variables_of(function: types.FunctionType) -> dict[str, Any]:
    """Return the variables outside of it that `function` reads or writes."""
    code = function.__code__
    cells = function.__closure__ or ()
    names = {*code.co_names} & {*function.__globals__}
    found = {name: function.__globals__[name] for name in names}
    for name, cell in zip(code.co_freevars, cells):
        with suppress(ValueError):  # not assigned yet
            found[name] = cell.cell_contents
    return found


_NONE = repr(None)
_EMA = re.compile(r"AveragedModel|ModelEma(V\d)?|EMA|ExponentialMovingAverage|EMAModel|LitEma")
"""Classes of averaged weights, of torch and of libraries."""
_ADVICE = {
    "optimizer": "add it as optimizer=",
    "inner": "inside a given object, whose state_dict must contain its state",
    "scheduler": "add it as scheduler=",
    "scaler": "add it as scaler=",
    "ema": "add it as ema=",
    "model": "changed; add it by name: model={…}",
    "object": "changed; add it: extra={…}",
    "attribute": "changed; make it a persistent buffer, or restore it by get_extra_state",
    "loader": "changed; add it: extra={…}",
    "search": "so not all was examined",
    "gradient": "they outlive a step, and no rank has those of all: accumulate=N and run.micro()",
    "count": "starts again from 0: run.enumerate(loader), run.step_now",
    "rest": "a resume leaves fewer batches than len(loader): for batch in loader",
    "variable": "changed by the loop; extra={…}, run.step_now or run.draw_ahead",
    "iterator": "a relaunch begins it again: read it by Run(…, stream=loader) and run.stream()",
    "content": (
        "not that of the launch before: make it from the epoch and seeds alone, or keep "
        "it: extra={…}"
    ),
}
"""Kind of state → how to give it."""


_OTHER_LOADER = "of another DataLoader"


class StateSearch:
    """Searches for state that changes and that the run was not given.

    Args:
        models: Name → module of the run.
        others: Name → optimizer, scheduler, scaler, …, of the run.
        optimizers: Names of its optimizers.
        where: Returns (step, epoch) of the run.
        say: Receives a line about the findings.
        carried: What an earlier launch has found, from its checkpoint.
        content: The `content` of an earlier launch, from its checkpoint.
        save_next: Returns whether a save is due after the next step.
        loses_gradients: `rgt_train.boundary.StepBoundary.loses_gradients`.

    Attributes:
        found: Kind → names of the findings so far.
        content: The epoch, and a checksum of each array that its steps read and do not assign, by
            path. If a relaunch has others in the same epoch, they were made from something that it
            lacks: labels of the weights at the epoch's beginning, a split without a seed.
    """

    def __init__(
        self,
        models: Mapping[str, torch.nn.Module],
        others: Mapping[str, Any],
        optimizers: Iterable[str],
        where: Callable[[], tuple[int, int]],
        say: Callable[[str], None],
        carried: Mapping[str, Sequence[str]],
        content: Mapping[str, Any] | None = None,
        save_next: Callable[[], bool] = lambda: False,
        loses_gradients: Callable[[], bool | None] = lambda: None,
    ) -> None:
        self._save_next = save_next
        self._loses_gradients = loses_gradients
        self.content = dict(content or {})
        self._models = models
        self._others = others
        self._where = where
        self._say = say
        self._optimizers = [others[name] for name in optimizers]
        # State that is given now is no finding any more.
        given = {name.partition(".")[0] for name in others}
        self.found = {kind: list(names) for kind, names in carried.items() if kind not in given}
        self._fresh: dict[str, list[str]] = {}
        self._steps = self._saves = 0
        self._is_done = False  # until the next epoch
        self._walked: int | None = None
        self._saved_at = (-1, -1)
        self._before: dict[str, tuple[int, dict[str, Any]]] = {}
        self._iterators: dict[str, int] = {}
        self._loaders: list[tuple[Any, int]] = []
        self._stepped: "WeakKeyDictionary[Any, int]" = WeakKeyDictionary()
        self._known = {id(optimizer) for optimizer in self._optimizers}
        note = outside_compile(self._note_optimizer)
        self.close = register_optimizer_step_post_hook(note).remove

    def after_step(self) -> None:
        """Examine the loop at the end of each of the first steps.

        The second one walks through all objects of the process, so that a relaunch reaches its
        first step sooner. If the second one is saved, the first one walks: a checkpoint needs
        something to compare with.
        """
        self._steps += 1
        if self._is_done:
            return
        parts: list[Callable[[], None]] = []
        if self._steps <= 3:
            parts += [self._compare_loop, self._find_gradients]
        if self._steps == 2:
            parts.append(self._find_optimizers)
        if self._walked is None:
            if self._steps > 1 or self._save_next():
                parts += self._parts_of_walk()
        elif self._steps == self._walked + 1:
            parts.append(self._compare_loaders)
        elif self._steps == self._walked + 2:
            parts.append(self._find_objects)
        if self._steps == 1 or self.content.get("epoch") != self._where()[1]:
            parts.append(self._compare_content)
        if parts:
            self._examine_parts(*parts)
        self._is_done = self._walked is not None and self._steps > max(3, self._walked + 2)

    def _parts_of_walk(self) -> list[Callable[[], None]]:
        """Return the parts with which later steps and saves compare, and that walk through all objects."""
        self._walked = self._steps
        counters: list[Any] = []
        stateful: list[Any] = []
        iterators: list[Any] = []

        def list_all() -> None:
            for each in _list_objects(_is_examined):
                if type(each) is enumerate:
                    counters.append(each)
                elif isinstance(each, _BaseDataLoaderIter):
                    iterators.append(each)
                else:
                    stateful.append(each)

        return [
            self._compare_attributes,
            self._compare_globals,
            list_all,
            lambda: self._find_counts(counters),
            lambda: self._find_objects(stateful),
            lambda: self._note_loaders(iterators),
        ]

    def next_epoch(self) -> None:
        """Examine what the loop carries from epoch to epoch; called by the loop over them."""
        self._is_done = False
        self._examine_parts(self._compare_epochs)

    def at_save(self) -> dict[str, list[str]]:
        """Examine everything for a save, once a step; return kind → names of the findings so far."""
        if self._saved_at == self._where():
            return self.found
        self._saved_at = self._where()
        self._saves += 1
        parts: list[Callable[[], None]] = [
            self._compare_loop,
            self._compare_attributes,
            self._find_optimizers,
            self._find_gradients,
            self._compare_globals,
        ]
        if self._walked is None and self._steps:
            parts += self._parts_of_walk()
        elif self._saves in (1, 3, 7, 15, 63, 255) and self._walked != self._steps:
            parts.append(self._find_objects)  # it walks through all objects of the process
        self._examine_parts(*parts)
        return self.found

    def _examine_parts(self, *parts: Callable[[], None]) -> None:
        """Call `parts` and report what they found; an error in one must not end the training."""
        for part in parts:
            try:
                part()
            except Exception as error:
                self._note_found("search", f"{type(error).__name__}: {error}"[:200])
        if self._fresh:
            fresh = self._fresh
            self._fresh = {}
            self._say(f"step {self._where()[0]}: the run was not given {in_words(fresh)}")

    def _note_found(self, kind: str, name: str) -> None:
        names = self.found.setdefault(kind, [])
        if name not in names:
            names.append(name)
            self._fresh.setdefault(kind, []).append(name)

    def _note_optimizer(self, optimizer: Any, *_: Any) -> None:
        if id(optimizer) not in self._known:
            step = self._where()[0]
            if self._stepped.setdefault(optimizer, step) != step:  # not one for a single step
                self._known.add(id(optimizer))

    def _find_optimizers(self) -> None:
        """Find optimizers that have stepped in two steps and whose state is in no given state."""
        others = [each for each in self._stepped if id(each) in self._known]
        if not others:
            return
        held = {id(value) for part in self._optimizers for value in _attributes(part)}
        saved: set[int] = set()
        for part in self._others.values():
            if not isinstance(part, torch.nn.Module):
                saved |= tensor_ids(part.state_dict())
        for optimizer in others:
            moments = tensor_ids(optimizer.state)
            kind = "optimizer"
            if id(optimizer) in held:
                kind = "inner"
            if moments - saved or (not moments and kind == "optimizer"):
                self._note_found(kind, type(optimizer).__name__)

    def _find_gradients(self) -> None:
        """Find gradients that the loop accumulates over steps and that are not saved."""
        lost = self._loses_gradients()
        if lost:
            self._note_found("gradient", "gradients")
        elif lost is not None:
            self.found.pop("gradient", None)  # of an earlier launch, whose code was another

    def _given_ids(self) -> set[int]:
        """Return the ids of everything that the run was given, with its content."""
        found: set[int] = set()
        stream = self._others.get("stream")
        level: list[Any] = [*self._models.values(), *self._others.values()]
        # A stream without a state of its own is not saved, so its objects are examined.
        if stream is not None and not stream.own_state:
            level.remove(stream)
            found.update(map(id, find_generators(stream.source)))
        for _ in range(5):
            inside: list[Any] = []
            for each in level:
                if id(each) in found:
                    continue
                found.add(id(each))
                if isinstance(each, torch.nn.Module):
                    found.update(map(id, each.modules()))
                    found.update(map(id, chain(each.parameters(), each.buffers())))
                elif isinstance(each, (list, tuple, deque)):
                    inside += each
                elif isinstance(each, dict):
                    inside += each.values()
                else:
                    inside += _attributes(each)
            level = inside
        return found

    def _changed_paths(self, scope: str, epoch: int, found: dict[str, Any]) -> list[str]:
        """Return the paths in `found` that differ from those of the same scope and epoch before."""
        since, before = self._before.get(scope, (epoch, {}))
        self._before[scope] = epoch, found
        # A new epoch changes much on purpose; only steps of one epoch are compared.
        if since != epoch:
            return []
        changed = [path for path, value in found.items() if before.get(path, value) != value]
        return [*changed, *_filled_paths(before, found), *_filled_paths(found, before)]

    def _compare_epochs(self) -> None:
        self._compare_loop("epoch")

    def _compare_loop(self, scope: str = "step") -> None:
        """Find variables that the loop carries to its next step, or to its next epoch."""
        survey = StateSurvey(self._given_ids())
        iterators: dict[str, int] = {}
        step, epoch = self._where()
        # A counter derived from the run's own step continues correctly after a resume.
        near = {repr(step + difference) for difference in (-1, 0, 1)}
        derived: set[str] = set()
        counted: list[str] = []
        for frame in user_frames():
            known = set(survey.found)
            codes = [frame.f_code]
            for name in sorted(carried_names(frame.f_code, frame.f_lasti)):
                value = frame.f_locals.get(name, frame.f_globals.get(name))
                survey.add_value(name, value)
                survey.add_graphs(name, value)
                if _is_iterator(value) and not _source_of(value):
                    iterators[name] = id(value)
                elif _is_iterator(value) and counts_batches(frame.f_code, name):
                    counted.append(f"next({name})")
                same_module = getattr(value, "__module__", "") == frame.f_globals.get("__name__")
                if same_module and isinstance(value, types.FunctionType):
                    codes.append(value.__code__)
                    for outer, content in sorted(_variables_of(value).items()):
                        survey.add_value(outer, content)
            if any("step_now" in code.co_names for code in codes):
                added = {*survey.found} - known
                derived |= {path for path in added if survey.found[path] in near}
        found = {path: value for path, value in survey.found.items() if path not in derived}
        if scope == "step":
            if not counted:
                self.found.pop("rest", None)  # of an earlier launch, whose code was another
            for name in counted:
                self._note_found("rest", name)
            self._iterators, before = iterators, self._iterators
            for name, identity in iterators.items():
                if before.get(name) == identity:  # it outlives a step
                    self._note_found("iterator", name)
        if scope == "epoch":
            epoch = 0
        elif self._steps == 1:
            roots = {re.split(r"[.\[]", path)[0] for path in found}
            for kind in ("variable", "iterator"):  # but for those that an edited loop lacks
                for name in self.found.pop(kind, []):
                    of_file = name.rpartition(".")[0] in sys.modules
                    root = name.split(".")[0]
                    if of_file or root in {*roots, *iterators, _OTHER_LOADER}:
                        self.found.setdefault(kind, []).append(name)
        for path in self._changed_paths(scope, epoch, found):
            words = re.split(r"\[", path)[0].split(".")
            self._note_found("variable", ".".join(words[:2]))

    def _compare_attributes(self) -> None:
        """Find plain attributes that change: of the modules, and of given objects of a person's own."""
        survey = StateSurvey(
            [id(part) for part in (*self._models.values(), *self._others.values())]
        )
        for model in self._models.values():
            for path, module in model.named_modules():
                kind = type(module)
                own = kind.get_extra_state is not torch.nn.Module.get_extra_state
                wrapper = _module_of(kind).startswith(
                    ("torch._", "torch.nn.parallel", "torch.dist")
                )
                if own or wrapper:
                    continue
                survey.add_module(path, module)
        for name, part in self._others.items():
            top = _module_of(type(part)).partition(".")[0]
            if top in ("torch", "rgt_train") or isinstance(part, torch.nn.Module):
                continue
            state = part.state_dict()
            known = {*state, "state", "param_groups", "defaults"}
            for key, value in list(getattr(part, "__dict__", {}).items()):
                hooks = key.startswith("_optimizer_")  # torch's own
                if not hooks and key not in known and not (tensor_ids(value) & tensor_ids(state)):
                    survey.add_value(f"{name}.{key}", value, 1)
        for path in self._changed_paths("attributes", 0, survey.found):
            self._note_found("attribute", re.split(r"\[", path)[0])

    def _compare_content(self) -> None:
        """Compare, in the first step of a launch, the arrays that it has made; note those of an epoch."""
        epoch, last = self._where()[1], self.content
        arrays: dict[str, int] = {}
        self.content = {"epoch": epoch, "arrays": arrays}
        before: Mapping[str, int] = {}
        if self._steps == 1 and last.get("epoch") == epoch:
            before = last["arrays"]
        survey = StateSurvey(self._given_ids(), most=400)
        for frame in user_frames():
            for name in sorted({*frame.f_locals} - names_of_loop(frame.f_code, frame.f_lasti)):
                survey.add_value(name, frame.f_locals[name])
        changing = {name.split(".")[0] for name in self.found.get("variable", ())}
        for path, value in survey.found.items():
            root = re.split(r"[.\[]", path)[0]
            in_list = isinstance(value, str) and re.match(r"\w+\[\d", path)
            if (in_list or isinstance(value, tuple)) and root not in changing:
                if isinstance(value, tuple):
                    value = value[1]  # not how often it was written
                arrays[path] = zlib.crc32(repr(value).encode())
                if before.get(path, arrays[path]) != arrays[path]:
                    self._note_found("content", root)

    def _compare_globals(self) -> None:
        """Find variables of a person's other modules that change; the loop's own are seen with it."""
        survey = StateSurvey(self._given_ids())
        own = [id(frame.f_globals) for frame in user_frames()]
        for name, module in list(sys.modules.items()):
            file = getattr(module, "__file__", None)
            if isinstance(file, str) and _is_own_code(file) and id(vars(module)) not in own:
                for key, value in list(vars(module).items()):
                    if not key.startswith("__"):
                        survey.add_value(f"{name.replace('.', '/')}.{key}", value, 2)
        for path in self._changed_paths("globals", 0, survey.found):
            name = ".".join(re.split(r"\[", path)[0].split(".")[:2])
            self._note_found("variable", name.replace("/", "."))

    def _note_loaders(self, iterators: Sequence[Any]) -> None:
        """Note how far iterators of other loaders are, in the first step."""
        own = _reachable_ids(self._others.get("stream"))
        for each in iterators:
            if id(each) not in own and not _source_of(each):
                self._loaders.append((ref(each), each._num_yielded))
        named = self.found.get("iterator", [])
        if not self._loaders and _OTHER_LOADER in named:
            named.remove(_OTHER_LOADER)

    def _compare_loaders(self) -> None:
        """Find iterators of other loaders that advance with the steps, in a ``zip`` for example."""
        found = [(noted(), yielded) for noted, yielded in self._loaders]
        moved = [each is not None and each._num_yielded > yielded for each, yielded in found]
        if any(moved) and not self.found.get("iterator"):
            self._note_found("iterator", _OTHER_LOADER)

    def _find_counts(self, counters: Sequence[Any]) -> None:
        """Find the ``enumerate`` objects among `counters` that number batches or epochs of the run."""
        numbered = {name for name in map(_source_of, counters) if name}
        if not numbered:
            self.found.pop("count", None)  # of an earlier launch, whose code was another
        for name in sorted(numbered):
            self._note_found("count", f"enumerate({name})")

    def _find_objects(self, stateful: Sequence[Any] | None = None) -> None:
        """Find objects with state, and modules, that change or that belong to the optimizers.

        Args:
            stateful: The objects of the process that have state, if they are listed already.
        """
        if stateful is None:
            stateful = _list_objects(_has_state)
        given = self._given_ids()
        objects: list[Any] = []
        survey = StateSurvey(given)
        for each in stateful:
            if type(each) is not torch.utils.data.DataLoader:
                if id(each) not in given:
                    objects.append(each)
            elif isinstance(
                vars(each).get("batch_sampler"), BatchPlan
            ):  # none if its making failed
                survey.add_value("loader", each)
        if "stream" in self._others:
            survey.add_value("loader", self._others["stream"].source)
        inner = {id(child) for each in objects for child in _inner_objects(each)}
        optimizers = {*map(id, self._optimizers), *map(id, self._stepped)}
        for each in objects:
            if id(each) in inner:
                continue
            name = type(each).__name__
            label = "object"
            if isinstance(each, torch.optim.lr_scheduler.LRScheduler):
                if id(getattr(each, "optimizer", None)) in optimizers:
                    self._note_found("scheduler", name)
                continue
            if isinstance(each, torch.amp.GradScaler):
                label = "scaler"
            elif _EMA.fullmatch(name):
                label = "ema"
            elif isinstance(each, torch.nn.Module):
                label = "model"
            # by identity: another one of the same class may have ended before
            if label in ("object", "model"):
                name = _name_object(each)
            path = f"{label} {name}[{id(each)}"
            if isinstance(each, torch.nn.Module):
                tensors = chain(each.parameters(), each.buffers())
                own = [tensor for tensor in tensors if id(tensor) not in given]
                few = own[:: len(own) // 8 + 1]
                survey.found[path] = [*map(version_of, own), *map(_sample_values, few)]
                for inside, module in each.named_modules():
                    if not _module_of(type(module)).startswith(("torch.", *_ASIDE)):
                        survey.add_module(f"{path}.{inside}", module)
            elif not isinstance(each, torch.optim.Optimizer):
                survey.add_value(path, dict(getattr(each, "__dict__", {})))
        for path in self._changed_paths("objects", 0, survey.found):
            label, _, name = re.split(r"\[", path)[0].partition(" ")
            if label in _ADVICE:
                self._note_found(label, name.split(".")[0])
            else:
                self._note_found("loader", label)


def in_words(found: Mapping[str, Sequence[str]], most: int = 6) -> str:
    """Return what `StateSearch` found as one line; empty if it is nothing."""
    told: list[str] = []
    for kind, names in found.items():
        more = ""
        if len(names) > most:
            more = f" and {len(names) - most} more"
        label = {
            "inner": "optimizer ",
            "attribute": "module attribute ",
            "variable": "variable ",
            "content": "content of ",
            "count": "",
            "rest": "",
            "gradient": "",
            "loader": "",
        }
        if not names:
            continue
        told.append(
            f"{label.get(kind, kind + ' ')}{', '.join(names[:most])}{more} ({_ADVICE[kind]})"
        )
    return "; ".join(told)


def _attributes(value: Any) -> list[Any]:
    if isinstance(value, (type, types.ModuleType, types.FunctionType)):
        return []
    return list(getattr(value, "__dict__", {}).values())


def _inner_objects(value: Any) -> Iterator[Any]:
    """Yield the objects inside one with state."""
    if isinstance(value, torch.nn.Module):
        yield from (module for module in value.modules() if module is not value)
    else:
        for each in _attributes(value):
            if isinstance(each, (list, tuple)):
                yield from each
            else:
                yield each


def _is_iterator(value: Any) -> bool:
    return hasattr(type(value), "__next__") and not isinstance(value, io.IOBase)


def _reachable_ids(value: Any, most: int = 200) -> set[int]:
    """Return the ids of what a stream reads from: iterators, and what holds them."""
    found: set[int] = set()
    level: list[Any] = [value]
    while level and len(found) < most * most:
        found.update(map(id, level))
        level = [
            each
            for each in gc.get_referents(*level)
            if id(each) not in found
            and not isinstance(
                each, (type, types.ModuleType, types.FunctionType, torch.Tensor, str)
            )
            # many entries are data, and no part of a reader
            and not (isinstance(each, (list, tuple, dict, set, deque)) and len(each) > most)
        ]
    return found


def _list_objects(wanted: Callable[[type], bool]) -> list[Any]:
    """Return all objects of the process whose class is `wanted`.

    A program holds millions of objects of a few hundred classes: every class is asked once, and the
    objects are gone through without Python code. The list of all of them is dropped at once.
    """
    wanted_types = _AnswerByType(wanted)
    everything = gc.get_objects()
    return [*compress(everything, map(wanted_types.__getitem__, map(type, everything)))]


class _AnswerByType(Dict[type, bool]):
    """Keeps what a function says about each class, and calls it once for each."""

    def __init__(self, ask: Callable[[type], bool]) -> None:
        super().__init__()
        self._ask = ask

    def __missing__(self, kind: type) -> bool:
        answer = self[kind] = self._ask(kind)
        return answer


def _is_examined(kind: type) -> bool:
    """Return whether the first step examines objects of the class `kind`."""
    return kind is enumerate or issubclass(kind, _BaseDataLoaderIter) or _has_state(kind)


def _has_state(kind: type) -> bool:
    if kind is torch.utils.data.DataLoader:
        return True
    names = {name for base in kind.__mro__ for name in vars(base)}
    aside = ("rgt_train", "torchdata", "torch._", "torch.utils.data")
    return {"state_dict", "load_state_dict"} <= names and not _module_of(kind).startswith(aside)


def _name_object(value: Any) -> str:
    """Return the class of an object, and the variable that holds it."""
    for frame in user_frames():
        for scope in (frame.f_locals, frame.f_globals):
            for name, held in list(scope.items()):
                if held is value:
                    return f"{name} ({type(value).__name__})"
    return type(value).__name__


def _source_of(counter: Any) -> str:
    """Return what an ``enumerate`` numbers: ``loader``, ``run.epochs()``, or nothing of a run."""
    package = os.path.dirname(__file__)
    level: list[Any] = [counter]
    for _ in range(6):
        inside: list[Any] = []
        for each in level:
            if isinstance(each, BatchPlan):
                return "loader"
            if isinstance(each, types.GeneratorType) and each.gi_code.co_filename.startswith(
                package
            ):
                if each.gi_code.co_name == "epochs":
                    return "run.epochs()"
                return "loader"
            frame = isinstance(each, (types.GeneratorType, types.FrameType))
            inside += [
                found
                for found in gc.get_referents(each)
                if hasattr(found, "__next__")
                or isinstance(found, (types.FrameType, BatchPlan))
                or (isinstance(found, dict) and not frame)
            ]
        level = inside[:200]
    return ""
