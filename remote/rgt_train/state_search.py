"""Searches for state that a run was not given.

A run restores what it was given. State that it was not given starts again after a resume, and
nothing fails: the training goes on with other weights. So such state is searched for where a search
is cheap: every optimizer that steps is seen by a hook, objects with ``state_dict`` and plain
attributes of modules are compared between saves, and of the variables of the loop those that it
carries from one step (or epoch) to the next, which its bytecode shows.
"""

from __future__ import annotations

import dis
import functools
import gc
import os
import re
import sys
import types
import zlib
from bisect import bisect_right
from collections import deque
from contextlib import suppress
from itertools import chain, compress, islice
from typing import (
    Any,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from weakref import WeakKeyDictionary

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from rgt_train.checkpoint.encoding import random_state
from rgt_train.checkpoint.snapshot import outside_compile
from rgt_train.data.sampler import BatchPlan


class StateSurvey:
    """The plain state in some objects, by path, in a form that can be compared.

    Args:
        given: The ids of objects to leave out.
        most: Largest number of values that are read.
    """

    def __init__(self, given: Iterable[int], most: int = 4000) -> None:
        self.found: dict[str, Any] = {}
        self._seen, self._most = set(given), most
        self._kept: list[Any] = []

    def add_value(self, path: str, value: Any, depth: int = 4) -> None:
        """Add `value` and its content down to `depth`."""
        # A hash, so that a long text is not kept for the comparison.
        if isinstance(value, str):
            self.found[path] = hash(value)
            return
        if value is None or isinstance(value, (bool, int, float)):
            self.found[path] = repr(value)
            return
        aside = isinstance(value, (type, types.ModuleType, types.FunctionType))
        if aside or id(value) in self._seen or len(self.found) > self._most:
            return
        self._seen.add(id(value))
        self._kept.append(value)  # another object could get its id
        state = random_state(value)
        if state is not None:
            self.found[path] = zlib.crc32(repr(getattr(state, "tolist", lambda: state)()).encode())
        elif isinstance(value, torch.Tensor):
            if not value.requires_grad:  # of this step only, or a parameter
                self.found[path] = _sample_values(value)
        elif _module_of(type(value)) == "numpy" and hasattr(value, "flat"):
            self.found[path] = repr(value.flat[:: value.size // 64 + 1].tolist())
        elif depth > 0:
            self._add_inside(path, value, depth - 1)

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
        elif _is_surveyed(value):
            for name, entry in list(vars(value).items()):
                self.add_value(f"{path}.{name}", entry, depth)


def _last_entry(value: Any) -> Sequence[Any]:
    if isinstance(value, (list, deque)) and value:
        return [value[-1]]
    return ()


def _is_surveyed(value: Any) -> bool:
    """Return whether the attributes of `value` may be state of a training."""
    if hasattr(type(value), "__next__") or not hasattr(value, "__dict__"):
        return False  # asked of the class: an object may make up its attributes
    module = _module_of(type(value))
    if module.startswith("torch."):
        return module.startswith("torch.utils.data")
    aside = ("rgt_train", "tqdm", "logging", "threading", "matplotlib", "wandb", "rich")
    return module.partition(".")[0] not in aside and not isinstance(value, torch.nn.Module)


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


_ACCESS = re.compile(r"(LOAD|STORE|DELETE)_(?:FAST|NAME|GLOBAL|DEREF|CLOSURE)(?!_AND_CLEAR)")
_JUMPS = ("JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_ABSOLUTE", "JUMP_BACKWARD_NO_INTERRUPT", "JUMP")


@functools.lru_cache(maxsize=64)
def carried_names(code: types.CodeType, offset: int) -> set[str]:
    """Return the names that `code` may read after the instruction at `offset` before it assigns them.

    Those assigned by ``for`` alone are left out: their iterator says where it is.
    """
    steps = list(dis.get_instructions(code))
    offsets = [step.offset for step in steps]
    reads: list[set[str]] = []
    writes: list[set[str]] = []
    nexts: list[list[int]] = []
    assigned: set[str] = set()
    by_loop = False
    for number, step in enumerate(steps):
        read: set[str] = set()
        written: set[str] = set()
        if isinstance(step.argval, tuple):
            names = step.argval
        else:
            names = (step.argval,)
        kinds = _ACCESS.findall(step.opname)
        for kind, name in zip(kinds, names):
            if kind != "LOAD":
                written.add(name)
            elif name not in written:
                read.add(name)
        stores = "STORE" in kinds
        if stores and not by_loop:
            assigned |= written
        by_loop = step.opname == "FOR_ITER" or (
            by_loop and (stores or step.opname.startswith("UNPACK"))
        )
        following = []
        is_loop = step.opname == "FOR_ITER" and number == bisect_right(offsets, offset) - 1
        jumps = step.opcode in dis.hasjrel or step.opcode in dis.hasjabs
        if jumps and not is_loop:  # of that loop the body alone, without the code after it
            following.append(bisect_right(offsets, step.argval) - 1)
        if step.opname not in _JUMPS and not step.opname.startswith(("RETURN", "RAISE", "RERAISE")):
            following.append(number + 1)
        reads.append(read)
        writes.append(written)
        nexts.append([each for each in following if each < len(steps)])
    live: list[set[str]] = [set() for _ in steps]
    start = bisect_right(offsets, offset) - 1
    # Backwards, until nothing changes: whether a name is read later depends on the following
    # instructions.
    changed = True
    while changed:
        changed = False
        for number in reversed(range(len(steps))):
            after: set[str] = set().union(*(live[each] for each in nexts[number]))
            now = reads[number] | (after - writes[number])
            if now != live[number]:
                live[number], changed = now, True
    carried = set().union(*(live[each] for each in nexts[start]))
    targets = set().union(*writes) - assigned
    return {name for name in carried - targets if not name.startswith("__")}


def user_frames(most: int = 6) -> list[types.FrameType]:
    """Return the frames of a person's own code that lead here, the innermost first."""
    libraries = (os.path.dirname(__file__), os.path.dirname(os.__file__), "<frozen")
    found: list[types.FrameType] = []
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None and len(found) < most:
        file = frame.f_code.co_filename
        if not file.startswith(libraries) and "site-packages" not in file:
            found.append(frame)
        frame = frame.f_back
    return found


def _variables_of(function: types.FunctionType) -> dict[str, Any]:
    """Return the variables outside of it that `function` reads or writes."""
    code, cells = function.__code__, function.__closure__ or ()
    names = {*code.co_names} & {*function.__globals__}
    found = {name: function.__globals__[name] for name in names}
    for name, cell in zip(code.co_freevars, cells):
        with suppress(ValueError):  # not assigned yet
            found[name] = cell.cell_contents
    return found


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
    "attribute": "changed; make it a buffer, or restore it by get_extra_state",
    "loader": "changed; add it: extra={…}",
    "search": "so not all was examined",
    "count": "starts again from 0: run.enumerate(loader), run.step_now",
    "variable": "changed by the loop; extra={…}, run.step_now or run.draw_ahead",
}
"""Kind of state → how to give it."""


class StateSearch:
    """Searches for state that changes and that the run was not given.

    Args:
        models: Name → module of the run.
        others: Name → optimizer, scheduler, scaler, …, of the run.
        optimizers: Names of its optimizers.
        where: Returns (step, epoch) of the run.
        say: Receives a line about the findings.
        carried: What an earlier launch has found, from its checkpoint.
    """

    def __init__(
        self,
        models: Mapping[str, torch.nn.Module],
        others: Mapping[str, Any],
        optimizers: Iterable[str],
        where: Callable[[], tuple[int, int]],
        say: Callable[[str], None],
        carried: Mapping[str, Sequence[str]],
    ) -> None:
        self._models, self._others, self._where, self._say = models, others, where, say
        self._optimizers = [others[name] for name in optimizers]
        # State that is given now is no finding any more.
        given = {name.partition(".")[0] for name in others}
        self.found = {kind: list(names) for kind, names in carried.items() if kind not in given}
        self._fresh: dict[str, list[str]] = {}
        self._steps = self._saves = 0
        self._saved_at = (-1, -1)
        self._before: dict[str, tuple[int, dict[str, Any]]] = {}
        self._stepped: "WeakKeyDictionary[Any, int]" = WeakKeyDictionary()
        self._known = {id(optimizer) for optimizer in self._optimizers}
        note = outside_compile(self._note_optimizer)
        self.close = register_optimizer_step_post_hook(note).remove

    def after_step(self) -> None:
        """Examine the loop at the end of each of the first steps."""
        self._steps += 1
        if self._steps == 1:
            # One walk through the process for both: it takes longer than a small step.
            counters: list[Any] = []
            stateful: list[Any] = []

            def list_both() -> None:
                for each in _list_objects(lambda kind: kind is enumerate or _has_state(kind)):
                    if type(each) is enumerate:
                        counters.append(each)
                    else:
                        stateful.append(each)

            self._examine_parts(
                list_both,
                lambda: self._find_counts(counters),
                self._compare_loop,
                lambda: self._find_objects(stateful),
            )
        elif self._steps == 2:
            self._examine_parts(self._compare_loop, self._find_optimizers)
        elif self._steps == 3:
            self._examine_parts(self._compare_loop, self._find_objects)

    def next_epoch(self) -> None:
        """Examine what the loop carries from epoch to epoch; called by the loop over them."""
        self._examine_parts(self._compare_epochs)

    def at_save(self) -> dict[str, list[str]]:
        """Examine everything for a save, once a step; return kind → names of the findings so far."""
        if self._saved_at == self._where():
            return self.found
        self._saved_at = self._where()
        self._saves += 1
        parts = [self._compare_loop, self._compare_attributes, self._find_optimizers]
        if self._saves in (2, 4, 8, 16, 64, 256):  # it walks through all objects of the process
            parts.append(self._find_objects)
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
            fresh, self._fresh = self._fresh, {}
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
                saved |= _tensor_ids(part.state_dict())
        for optimizer in others:
            moments = _tensor_ids(optimizer.state)
            kind = "optimizer"
            if id(optimizer) in held:
                kind = "inner"
            if moments - saved or (not moments and kind == "optimizer"):
                self._note_found(kind, type(optimizer).__name__)

    def _given_ids(self) -> set[int]:
        """Return the ids of everything that the run was given, with its content."""
        found: set[int] = set()
        stream = self._others.get("stream")
        level: list[Any] = [*self._models.values(), *self._others.values()]
        # A stream without a state of its own is not saved, so its objects are examined.
        if stream is not None and not stream.own_state:
            level.remove(stream)
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
        return [path for path, value in found.items() if before.get(path, value) != value]

    def _compare_epochs(self) -> None:
        self._compare_loop("epoch")

    def _compare_loop(self, scope: str = "step") -> None:
        """Find variables that the loop carries to its next step, or to its next epoch."""
        survey = StateSurvey(self._given_ids())
        step, epoch = self._where()
        # A counter derived from the run's own step continues correctly after a resume.
        near = {repr(step + difference) for difference in (-1, 0, 1)}
        derived: set[str] = set()
        for frame in user_frames():
            known = set(survey.found)
            for name in sorted(carried_names(frame.f_code, frame.f_lasti)):
                value = frame.f_locals.get(name, frame.f_globals.get(name))
                survey.add_value(name, value)
                same_module = getattr(value, "__module__", "") == frame.f_globals.get("__name__")
                if same_module and isinstance(value, types.FunctionType):
                    for outer, content in sorted(_variables_of(value).items()):
                        survey.add_value(outer, content)
            if "step_now" in frame.f_code.co_names:
                derived |= {path for path in {*survey.found} - known if survey.found[path] in near}
        found = {path: value for path, value in survey.found.items() if path not in derived}
        if scope == "epoch":
            epoch = 0
        elif self._steps == 1:
            roots = {re.split(r"[.\[]", path)[0] for path in found}
            carried = self.found.pop("variable", [])  # but for those that an edited loop lacks
            for name in carried:
                if name.split(".")[0] in roots:
                    self.found.setdefault("variable", []).append(name)
        for path in self._changed_paths(scope, epoch, found):
            self._note_found("variable", ".".join(re.split(r"\[", path)[0].split(".")[:2]))

    def _compare_attributes(self) -> None:
        """Find plain attributes that change: of the modules, and of given objects of a person's own."""
        survey = StateSurvey(
            [id(part) for part in (*self._models.values(), *self._others.values())]
        )
        usual = {*vars(torch.nn.Module()), "_flat_weights"}
        for model in self._models.values():
            for path, module in model.named_modules():
                kind = type(module)
                own = kind.get_extra_state is not torch.nn.Module.get_extra_state
                wrapper = _module_of(kind).startswith(
                    ("torch._", "torch.nn.parallel", "torch.dist")
                )
                if own or wrapper:
                    continue
                for name, value in list(vars(module).items()):
                    if name not in usual:
                        survey.add_value(f"{path}.{name}".lstrip("."), value, 1)
        for name, part in self._others.items():
            top = _module_of(type(part)).partition(".")[0]
            if top in ("torch", "rgt_train") or isinstance(part, torch.nn.Module):
                continue
            state = part.state_dict()
            known = {*state, "state", "param_groups", "defaults"}
            for key, value in list(getattr(part, "__dict__", {}).items()):
                if key not in known and not (_tensor_ids(value) & _tensor_ids(state)):
                    survey.add_value(f"{name}.{key}", value, 1)
        for path in self._changed_paths("attributes", 0, survey.found):
            self._note_found("attribute", re.split(r"\[", path)[0])

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
            name, label = type(each).__name__, "object"
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
                own = [t for t in chain(each.parameters(), each.buffers()) if id(t) not in given]
                survey.found[path] = [_sample_values(tensor) for tensor in own[:8]]
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
            "count": "",
            "loader": "",
        }
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


def _tensor_ids(value: Any) -> set[int]:
    if isinstance(value, torch.Tensor):
        return {id(value)}
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, (list, tuple, deque)):
        return set().union(*map(_tensor_ids, value))
    return set()


def _list_objects(wanted: Callable[[type], bool]) -> list[Any]:
    """Return all objects of the process whose class is `wanted`.

    A program holds millions of objects of a few hundred classes: every class is asked once, and the
    objects are gone through without Python code. The list of all of them is dropped at once.
    """
    everything = gc.get_objects()
    # Kept, because each look at an object costs a cache miss, and there are half a million of them.
    types_of = [*map(type, everything)]
    kinds = {kind for kind in {*types_of} if wanted(kind)}
    return [*compress(everything, map(kinds.__contains__, types_of))]


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
