"""The full state of a training run: collected for a checkpoint, restored from one.

A checkpoint at the last step of an epoch is made before the scheduler of the epoch steps and before
the validation: a resume does both again. A later save (after a signal in the validation, or for a
new best) must therefore not hold a scheduler that has stepped already, or it would step twice.
Small parts are kept as they were; weights, moments and averages are not copied, but their changes
are detected.
"""

from __future__ import annotations

import copy
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import (
    Any,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
    Union,
)

import torch
from torch.optim.swa_utils import AveragedModel

from rgt_train.checkpoint import encoding, matching
from rgt_train.checkpoint.encoding import LooseTensors, Stateful, own_state, tensor_ids
from rgt_train.checkpoint.receipt import (
    Declared,
    Hyperparameters,
    RestoredState,
    Tensors,
    describe_changes,
    environment,
    no_tensor,
)
from rgt_train.checkpoint.safetensors import (
    MODEL_FILE,
    TRAINER_FILE,
    Collected,
    LoadedCheckpoint,
    TensorSpec,
    spec_of,
    unfit,
)
from rgt_train.checkpoint.snapshot import ContentWitness, version_of
from rgt_train.data import rng
from rgt_train.data.position import Progress
from rgt_train.exits import UsageError

__all__ = ["RestoredState", "RunState", "Stateful", "load_into"]


class EpochEnd:
    """The state right after the last step of an epoch.

    Args:
        models: Name → module.
        others: Name → optimizer, scheduler, scaler, EMA, ….
        small: Names of the `others` that are kept as they are (schedulers, scalers).
        optimizers: Names of those whose hyperparameters are kept.
        random: The random state.
    """

    def __init__(
        self,
        models: Mapping[str, torch.nn.Module],
        others: Mapping[str, Any],
        small: set[str],
        optimizers: set[str],
        random: dict[str, Any],
    ) -> None:
        self.random = random
        self._small = {name: others[name] for name in sorted(small)}
        self._objects = {
            name: copy.deepcopy(part.state_dict()) for name, part in self._small.items()
        }
        self._groups: list[tuple[dict[str, Any], dict[str, Any]]] = []
        for name in sorted(optimizers):
            for group in getattr(others[name], "param_groups", []):
                kept = {key: value for key, value in group.items() if key != "params"}
                self._groups.append((group, copy.deepcopy(kept)))
        self._parts = {
            name: part for name, part in {**others, **models}.items() if name not in small
        }
        found = self._current_tensors()
        self._versions = {path: version_of(tensor) for path, tensor in found.items()}
        self._witness = ContentWitness([_local_tensor(tensor) for tensor in found.values()])
        for window, held in self._witness.moves:
            # On the GPU's own stream, before the loop can change anything.
            held.copy_(window)

    def state_of_part(self, name: str, part: Any) -> dict[str, Any]:
        """Return the state of a part: the kept one, otherwise the present one."""
        if name in self._objects:
            return dict(self._objects[name])
        state: dict[str, Any] = part.state_dict()
        return state

    @contextmanager
    def kept_settings(self) -> Iterator[None]:
        """Give the optimizers the kept hyperparameters temporarily."""
        now = [
            ({key: group[key] for key in kept if key in group}, group)
            for group, kept in self._groups
        ]
        try:
            for group, kept in self._groups:
                group.update(kept)
            yield
        finally:
            for values, group in now:
                group.update(values)

    def is_unchanged(self) -> bool:
        """Return whether nothing has changed since, as known so far; random state aside."""
        kept = [self._objects, *(values for _, values in self._groups)]
        now: list[Any] = [{name: part.state_dict() for name, part in self._small.items()}]
        for group, values in self._groups:
            now.append({key: group.get(key) for key in values})
        # The text of large tensors is shortened, and `differences` does not see what was added.
        same = repr(kept) == repr(now) and matching.differences(kept, now, "") is None
        return same and not self.describe_changed()

    def describe_changed(self) -> str:
        """Return which tensors have changed since, as known so far, in words; empty if none."""
        now = self._current_tensors()
        names = [path for path in self._versions if path not in now]
        if not names:
            others = self._witness.find_changed(
                [_local_tensor(now[path]) for path in self._versions]
            )
            unlike = {list(self._versions)[number] for number in others}
            told = self._versions.items()
            names = [
                path for path, version in told if path in unlike or version_of(now[path]) != version
            ]
        shown = 3
        more = ""
        if len(names) > shown:
            more = f" and {len(names) - shown} more"
        return ", ".join(names[:shown]) + more

    def _current_tensors(self) -> dict[str, torch.Tensor]:
        return {
            path: tensor
            for name, part in self._parts.items()
            for path, tensor in _iterate_tensors(name, part.state_dict())
        }


def _local_tensor(tensor: Any) -> torch.Tensor:
    """Return the local memory of `tensor`: this rank's part if sharded; empty if it has none."""
    found: torch.Tensor
    # A DTensor: each rank compares only what it holds.
    if hasattr(tensor, "to_local"):
        found = tensor.to_local()
    else:
        found = tensor
    # Sparse and meta tensors, and subclasses that wrap others, have no memory of their own to
    # compare.
    plain = (
        found.layout is torch.strided
        and not found.is_meta
        and not hasattr(found, "__tensor_flatten__")
    )
    if plain:
        return found
    return torch.empty(0, device="cpu")


def _iterate_tensors(path: str, value: Any) -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(value, torch.Tensor):
        yield path, value
    elif isinstance(value, Mapping):
        for key, entry in value.items():
            yield from _iterate_tensors(f"{path}/{key}", entry)
    elif isinstance(value, (list, tuple)):
        for number, entry in enumerate(value):
            yield from _iterate_tensors(f"{path}/{number}", entry)


_SIZES = {"accumulate", "steps_per_epoch"}
"""Sizes of the data order that may change, as may the size of a batch if the order does not depend
on it.
"""
LOOSE = "parameters"
"""Name of the part that holds the tensors of optimizers that belong to no model."""
STREAM = "stream"
"""Name of the part that reads the data of a run."""
_GROUPS = (
    "; make every parameter group before the Run is made, also those that are trained later: "
    "requires_grad says what is trained, and is kept"
)


class CannotLoad(UsageError):
    """State that a relaunch could not load, although it could be stored."""


class RunState:
    """Collects the state of the objects of a run, and restores it.

    Args:
        models: Name → module.
        others: Name → optimizer, scheduler, scaler, EMA, ….
        progress: The counters; restored in place.
        sampler: The result of `EpochSampler.state` for this launch.
        settings: Plain values to compare at a resume (learning rate, sizes, …).
        world: Ranks of the run.
        rank: Number of this one.
        steady: Names of the `others` whose tensors change only inside ``optimizer.step()`` (the
            optimizers themselves) or just before the checkpoint of their step (an EMA).
        optimizers: Names of the `others` that are optimizers; the weights that they step are
            steady, too.
        small: Names of the small `others` that may change after an epoch: schedulers, scalers.
        hyperparameters: The declaration of this launch for optimizers and schedules; None compares
            nothing.
        override: Names of those that a resume takes from the code and not from the checkpoint.
        data: Returns the facts about the loading of the data.

    Attributes:
        hooked: Whether every optimizer calls a hook before a change; otherwise nothing is steady.
        random: The random states of all ranks if there are several; None takes this process's.
        epoch_end: The small state right after the last step of an epoch, until the next one begins;
            otherwise None.
        late: Changes between a step and the next batch, in words: a resume leaves them out.
        ahead: The random states before the batches that are drawn and not used yet.
        head: The random state at the beginning of the epoch: a resume draws the same there.
        evaluating: Model → its modules in evaluation mode when they were last looked at.
        keeps_gradients: Returns whether gradients may outlive a step, so that a save needs them.
        zeroes_gradients: Returns whether the loop sets gradients to zero in place, so that a save
            needs their names.
    """

    def __init__(
        self,
        models: Mapping[str, torch.nn.Module],
        others: Mapping[str, Stateful],
        progress: Progress,
        sampler: Mapping[str, int],
        settings: Mapping[str, Any],
        *,
        world: int = 1,
        rank: int = 0,
        steady: Iterable[str] = (),
        optimizers: Iterable[str] = (),
        small: Iterable[str] = (),
        hyperparameters: Hyperparameters | None = None,
        override: Sequence[str] = (),
        data: Callable[[], dict[str, Any]] = dict,
    ) -> None:
        self.models = dict(models)
        self.others = dict(others)
        self.progress = progress
        self.sampler = dict(sampler)
        self.settings = dict(settings)
        self.world, self.rank = world, rank
        self.steady = set(steady)
        self.optimizers = set(optimizers)
        self.small = set(small)
        self.hyperparameters = hyperparameters
        self.override = override
        self.data = data
        self.hooked = False
        self.random: list[Any] | None = None
        self.epoch_end: EpochEnd | None = None
        self.ahead: list[Any] = []
        self.head: dict[str, Any] | None = None
        self.keeps_gradients: Callable[[], bool] = bool
        self.zeroes_gradients: Callable[[], bool] = bool
        self.evaluating: dict[str, list[str]] = {}
        self._modes: list[bool] = []
        self.late: list[str] = []
        self._built = self._look_at_build()
        self._tried = False

    @classmethod
    def from_parts(
        cls,
        model: Any,
        parts: Mapping[str, Parts | None],
        extra: Any,
        stream: Stateful | None,
        **more: Any,
    ) -> "RunState":
        """Build it from the parts of a person's loop.

        Args:
            model: The module, or several by name.
            parts: ``optimizer``, ``scheduler``, ``scaler`` and ``ema``, each one object or several
                by name.
            extra: A person's own state.
            stream: The reader of the data, if it has a state.
            **more: Further arguments of `RunState`.

        Raises:
            UsageError: Something is of a kind that cannot be saved, or a name to override is
                unknown.
        """
        check_parts(model, parts)
        if isinstance(model, torch.nn.Module):
            models = {"model": model}
        else:
            models = dict(model)
        others = flatten_parts({**parts, "extra": own_state(extra), "stream": stream})
        optimizers = set(flatten_parts({"optimizer": parts["optimizer"]}))
        loose = find_loose_tensors(
            models, {name: others[name] for name in sorted(optimizers)}, extra
        )
        if loose:
            others[LOOSE] = LooseTensors(loose)
        schedules = set(flatten_parts({"scheduler": parts["scheduler"], "scaler": parts["scaler"]}))
        said = Hyperparameters(others, optimizers, schedules)
        said.check_override_names(more.get("override", ()))
        return cls(
            models, others, steady={*optimizers,
            *counted_averages(flatten_parts({"ema": parts["ema"]}))}, optimizers=optimizers,
            small={*schedules, *({"extra"} & set(others))}, hyperparameters=said, **more,
        )  # fmt: skip

    @property
    def declared(self) -> Declared:
        """The hyperparameters in the code, for a checkpoint."""
        if self.hyperparameters:
            return self.hyperparameters.declared
        return {}

    def refuse_other_classes(self, document: Mapping[str, Any], where: str) -> None:
        """Check that the checkpoint `where` has the data and the classes of optimizers of this run.

        Raises:
            UsageError: It has not.
        """
        saved = document.get("sampler", self.sampler)
        here = self.sampler
        keys = {*saved, *here} - _SIZES
        if "indices" in here and saved.get("indices") == here["indices"]:
            keys -= {"order", "batch_size"}  # the order of the batches follows
        if "order" not in here:
            keys.discard("batch_size")
        if here.get("samples") == 0:
            keys.discard("samples")  # a stream, or no data: they follow from the sizes
        if any(saved.get(key) != here.get(key) for key in keys):
            raise UsageError(
                f"{where} was made with other data settings: {describe_changes(saved, here)}; "
                "its position would mean nothing here"
            )
        if self.hyperparameters:
            self.hyperparameters.refuse_other_classes(document.get("declared", {}), where)

    def same_parts(self, saved: Iterable[str], here: Iterable[str]) -> list[str]:
        """Check that this run has the parts of a checkpoint.

        A part may be new: state that the run was not given before. A scaler may also be gone.

        Returns:
            The new parts and those that are gone, in words.

        Raises:
            UsageError: Another part is gone.
        """
        if _without_scalers({*saved} - {*here}):
            matching.check_names("parts", saved, here)
        new = [f"{name} (not in the checkpoint): it starts afresh" for name in {*here} - {*saved}]
        gone = [f"{name} of the checkpoint (this run has none)" for name in {*saved} - {*here}]
        return sorted(new + gone)

    def load_counters(self, document: Mapping[str, Any], doubts: list[str]) -> list[str]:
        """Load the counters; return what was restored, in words.

        The position in the epoch is converted if the size of a batch or the accumulation changed:
        the same samples are left then.

        Args:
            document: That of the checkpoint, checked by `refuse_other_classes`.
            doubts: Receives the changed sizes.
        """
        p = self.progress
        saved = document["sampler"]
        p.load(document["progress"])
        sizes = ("batch_size", *sorted(_SIZES))
        here = {key: self.sampler.get(key) for key in sizes}
        resized = describe_changes({key: saved.get(key) for key in sizes}, here)
        if resized:
            doubts.append(resized)
            unit = 1
            # Offsets count samples, or batches if a sampler makes those.
            if "order" not in saved or "indices" in saved:
                unit = saved["batch_size"]
            if (
                saved["accumulate"] != here["accumulate"]
                or saved["batch_size"] != here["batch_size"]
            ):
                if p.micro:
                    doubts.append(f"{p.micro} batches of an unfinished step are done again")
                p.offset += p.done_steps * saved["accumulate"] * unit
                # Counted in samples from here on: steps of another size mean nothing.
                p.done_steps, p.micro, p.micro_loss = 0, 0, 0.0
        after = ""
        if p.offset:
            after = f" after {p.offset} samples"
        done = [f"data position (epoch {p.epoch + 1}, step {p.done_steps} of it{after})"]
        if p.micro:
            done.append(f"gradients of {p.micro} batches")
        if p.best is not None:
            done.append(f"best {p.best:.4f} of step {p.best_step}")
        return done

    def apply_overrides(self, document: Mapping[str, Any]) -> tuple[list[str], list[str]]:
        """Compare hyperparameters after a load; return the messages, and those that change bits."""
        if not self.hyperparameters:
            return [], []
        return self.hyperparameters.apply_overrides(document.get("declared", {}), self.override)

    def collect_state(
        self, random: Sequence[Any] | None = None, *, draft: bool = False
    ) -> Collected:
        """Collect the present state; tensors are referenced, not copied.

        Args:
            random: The random states of all ranks; None takes `random` of this object, otherwise
                this process's.
            draft: Leave out the facts about the data, which search for state that was not given.

        Raises:
            UsageError: It holds something that cannot be stored.
        """
        self.check_build()
        found = Collected()
        if random is None:
            random = self.random
        try:
            models = {name: self._collect_model(found, name) for name in self.models}
            with self.epoch_end_settings():
                objects = {name: self._collect_other(found, name) for name in self.others}
            found.document = {
                "models": models,
                "objects": objects,
                "grads": self._collect_grads(found) if self._has_gradients_to_keep() else None,
                "zero_grads": self._names_of_zeros(),
                "frozen": matching.frozen_parameters(self.models),
                "evaluating": self.modes_of_step(),
                "declared": self.declared,
                "data": {},
                "progress": self.progress.state(),
                "sampler": self.sampler,
                "settings": encoding.encode_value(self.settings, no_tensor, "settings"),
                "environment": environment(self.world),
                "rng": list(random) if random is not None else [self.random_here()],
            }
        except (encoding.CannotStore, ValueError) as error:
            raise UsageError(f"this state cannot be stored safely: {error}") from error
        if not draft:
            found.document["data"] = {**self.data(), "late": self.late}
        if not self._tried:
            # Once is enough: the classes of the objects do not change during a launch.
            self._tried = True
            self._try_to_load(found, objects)
        return found

    def check_build(self) -> None:
        """Check that models and optimizers have the tensors and groups that they began with.

        Raises:
            CannotLoad: One has others, which the objects of a relaunch could not load.
        """
        for name, now in self._look_at_build().items():
            built = self._built.get(name, now)
            problems, _ = matching.find_mismatches(now, built, {key: key for key in built})
            if problems:
                raise CannotLoad(
                    f"{name} is not built as it was when the Run was made: {'; '.join(problems)}. "
                    "A relaunch could not load this: build it in full before the "
                    f"Run{_GROUPS if name in self.optimizers else ''}"
                )

    def explain_error(self, error: BaseException) -> UsageError | None:
        """Return a `UsageError` for an error that may come from models that were rebuilt; else None."""
        try:
            if isinstance(error, Exception):
                self.check_build()
        except CannotLoad as rebuilt:
            return CannotLoad(f"{rebuilt}. After that: {type(error).__name__}: {error}")
        return None

    def _look_at_build(self) -> dict[str, dict[str, TensorSpec]]:
        """Return the names, shapes and dtypes in every module, and the groups of every optimizer."""
        found: dict[str, dict[str, TensorSpec]] = {}
        for name, part in {**self.models, **self.others}.items():
            if isinstance(part, torch.nn.Module):
                names = matching.bare_names(part)
                tensors = {
                    key: t for key, t in part.state_dict().items() if isinstance(t, torch.Tensor)
                }
                found[name] = {
                    names[key]: spec_of("", key, tensor) for key, tensor in tensors.items()
                }
            elif name in self.optimizers:
                groups = enumerate(getattr(part, "param_groups", []))
                found[name] = {
                    f"parameter group {number}": TensorSpec(
                        "", "", torch.int64, (len(group["params"]),)
                    )
                    for number, group in groups
                }
        return found

    def _try_to_load(self, found: Collected, objects: Mapping[str, Any]) -> None:
        """Load the state of each optimizer, schedule and scaler into a copy of it that shares its tensors.

        Raises:
            CannotLoad: One does not take its own state, or changes it.
        """
        tensors = {
            part.spec.key: part.tensor for part in found.parts if part.spec.file == TRAINER_FILE
        }
        shared = [
            *tensors.values(),
            *(p for model in self.models.values() for p in model.parameters()),
        ]
        refusal = ""
        for name in self.optimizers | (self.small - {"extra"}):
            with suppress(Exception):  # an object that cannot be copied is judged at the resume
                # The memo lets deepcopy keep the tensors: a copy of all moments may not fit into
                # memory.
                copied = copy.deepcopy(self.others[name], {id(tensor): tensor for tensor in shared})
                saved = encoding.decode_value(objects[name], tensors.__getitem__)
                problem: object = None
                try:
                    copied.load_state_dict(saved)
                    if name in self.optimizers:
                        matching.restore_dtypes(copied, saved)
                    problem = matching.differences(saved, copied.state_dict(), name)
                except (RuntimeError, ValueError, KeyError, TypeError) as error:
                    problem = error
                if problem:
                    refusal = f"{name} cannot load its own state: {problem}"
        if refusal:
            raise CannotLoad(
                f"{refusal}. A relaunch would continue with another state, or not at all"
            )

    def keep_epoch_end(self, random: dict[str, Any] | None = None) -> None:
        """Keep the small state right after the last step of an epoch, for saves until the next one.

        Args:
            random: The random state of this process; None takes the present one.
        """
        self.modes_of_step()
        live = {name for name, other in self.others.items() if isinstance(other, torch.nn.Module)}
        watched = {
            name: self.others[name] for name in live | self.small | self.optimizers | self.steady
        }
        self.epoch_end = EpochEnd(
            self.models, watched, self.small, self.optimizers, random or self.random_here()
        )

    def state_of(self, name: str) -> dict[str, Any]:
        """Return the state of one of the `others`."""
        if self.epoch_end:
            return self.epoch_end.state_of_part(name, self.others[name])
        return self.others[name].state_dict()

    def epoch_end_settings(self) -> "AbstractContextManager[None]":
        """Give the optimizers the kept hyperparameters of the end of the epoch temporarily."""
        if self.epoch_end:
            return self.epoch_end.kept_settings()
        return nullcontext()

    def random_here(self) -> dict[str, Any]:
        """Return the random state of this process."""
        if self.epoch_end:
            return self.epoch_end.random
        random = rng.capture_states()
        if self.ahead:
            random["ahead"] = list(self.ahead)
        if self.head is not None:
            random["head"] = self.head
        return random

    def note_modes(self) -> None:
        """Note the modes of the models at the end of a step."""
        self._modes = [model.training for model in self.models.values()]

    def modes_of_step(self) -> dict[str, list[str]]:
        """Return model → modules in evaluation mode at the last step; in a validation as last seen."""
        if self._modes == [model.training for model in self.models.values()]:
            self.evaluating = matching.evaluating_modules(self.models)
        return self.evaluating

    def _has_gradients_to_keep(self) -> bool:
        if self.progress.micro:
            return True
        return self.world == 1 and self.keeps_gradients() and self.can_store_grads()

    def restore(self, loaded: LoadedCheckpoint) -> RestoredState:
        """Restore all but random state and gradients, which the caller restores last.

        Raises:
            UsageError: The checkpoint is intact but belongs to another model, optimizer or data
                set. Nothing has been changed if names or shapes of a model differ.
        """
        document = loaded.document
        where = loaded.directory
        if document.get("layout") == "sharded":
            raise UsageError(
                f"{where} was saved by a run whose model is sharded (fully_shard); launch it as "
                "before, on any number of ranks, or give another --out"
            )
        self.refuse_other_classes(document, where)
        matching.check_names("models", document["models"], self.models)
        inexact = self.same_parts(document["objects"], self.others)
        recast = []
        weights = {
            name: loaded.decode_part(document["models"][name], MODEL_FILE) for name in self.models
        }
        for name, model in self.models.items():
            # All models are checked before the first is changed.
            recast += matching.check_fit(name, model, weights[name], where)
        done: list[str] = []
        for name, model in self.models.items():
            _load_module(name, model, weights[name], where)
            done.append(name)
        for name, other in self.others.items():
            if name not in document["objects"]:
                continue  # a new part
            saved = loaded.decode_part(document["objects"][name], TRAINER_FILE)
            # The AdamW and the averages of earlier versions had forms of their own (see
            # `rgt_train.loop`).
            if hasattr(other, "migrated"):
                saved = other.migrated(saved)
            if isinstance(other, torch.nn.Module):
                inexact += matching.check_fit(name, other, saved, where)
                _load_module(name, other, saved, where)
            else:
                inexact += _load_other(name, other, saved, where, exact=not recast)
            done.append(name)
        done += matching.restore_requires_grad(self.models, document.get("frozen", {}))
        told, doubts = self.apply_overrides(document)
        done += self.load_counters(document, doubts)
        grads = {}
        # Those of an unfinished step are of no use once its batches are done again.
        unfinished = document["progress"].get("micro") and not self.progress.micro
        if document["grads"] and not unfinished:
            grads = loaded.decode_part(document["grads"], TRAINER_FILE)
        elif document.get("zero_grads"):
            # Without one, an optimizer would leave out a parameter that the next step does not use.
            parameters = self._trained_tensors()
            grads = {
                name: {key: torch.zeros_like(parameters[name][key]) for key in keys}
                for name, keys in document["zero_grads"].items()
            }
        return RestoredState(
            done,
            document,
            environment(self.world),
            self.settings,
            grads,
            self.rank,
            recast + inexact,
            told,
            doubts,
        )

    def can_store_grads(self) -> bool:
        """Return whether the gradients of an unfinished accumulation can be stored (not if sparse)."""
        try:
            self._collect_grads(Collected())
        except encoding.CannotStore:
            return False
        return True

    def restore_grads(self, grads: Mapping[str, Tensors]) -> None:
        """Restore saved gradients; after anything that clears them, before the first batch."""
        parameters = self._trained_tensors()
        for name, saved in grads.items():
            for key, grad in saved.items():
                # A gradient must be on the device of its parameter, wherever the checkpoint was
                # made.
                parameters[name][key].grad = grad.to(parameters[name][key].device)

    def _trained_tensors(self) -> dict[str, dict[str, torch.Tensor]]:
        """Return model → name → parameter; those of no model as of ``""``."""
        found: dict[str, dict[str, torch.Tensor]] = {
            name: dict(matching.list_parameters(model)) for name, model in self.models.items()
        }
        loose = self.others.get(LOOSE)
        if isinstance(loose, LooseTensors):
            found[""] = loose.tensors
        return found

    def _collect_model(self, found: Collected, name: str) -> Any:
        model = self.models[name]
        if len(self.models) == 1:
            # Other programs load the file of a single model under the model's own names.
            prefix = ""
        else:
            prefix = f"{name}."
        if self.hooked:
            still = self._stepped_addresses()
        else:
            still = set()
        names = matching.bare_names(model)
        state = {names[key]: value for key, value in model.state_dict().items()}

        def put_tensor(path: str, tensor: torch.Tensor) -> str:
            return found.add_tensor(
                MODEL_FILE, prefix + path, tensor, _tensor_address(tensor) in still
            )

        return {key: encoding.encode_value(value, put_tensor, key) for key, value in state.items()}

    def _stepped_addresses(self) -> set[int]:
        """Return the addresses of the weights that an optimizer steps.

        No others: a teacher, a target network or a codebook moves in the forward pass, often by
        ``.data``, and may be among the parameters of an optimizer. A parameter with neither a
        gradient nor a moment was never stepped.
        """
        found: set[int] = set()
        for name in self.optimizers:
            moments = getattr(self.others[name], "state", {})
            for group in getattr(self.others[name], "param_groups", []):
                for parameter in group["params"]:
                    if parameter.requires_grad and (
                        parameter.grad is not None or moments.get(parameter)
                    ):
                        found.add(_tensor_address(parameter))
        return found

    def _collect_other(self, found: Collected, name: str) -> Any:
        other = self.others[name]
        state = self.state_of(name)
        if isinstance(other, torch.nn.Module):
            names = matching.bare_names(other)
            state = {names[key]: value for key, value in state.items()}
        steady = self.hooked and name in self.steady

        def put_tensor(path: str, tensor: torch.Tensor) -> str:
            return found.add_tensor(TRAINER_FILE, path, tensor, steady)

        return encoding.encode_value(state, put_tensor, name)

    def _names_of_zeros(self) -> dict[str, list[str]]:
        """Return model → parameters whose gradients the next step sets to zero in place."""
        if not self.zeroes_gradients():
            return {}
        return {name: [*grads] for name, grads in self._list_grads().items()}

    def _list_grads(self) -> dict[str, dict[str, torch.Tensor]]:
        return {
            name: {key: p.grad for key, p in parameters.items() if p.grad is not None}
            for name, parameters in self._trained_tensors().items()
        }

    def _collect_grads(self, found: Collected) -> Any:
        return encoding.encode_value(
            self._list_grads(),
            lambda path, tensor: found.add_tensor(TRAINER_FILE, path, tensor, False),
            "grad",
        )


def _tensor_address(tensor: torch.Tensor) -> int:
    try:
        return tensor.data_ptr()
    except RuntimeError:
        return 0  # it has no memory itself (a sparse one): refused later, by its name


def _without_scalers(names: Iterable[str]) -> set[str]:
    return {name for name in names if name.split(".")[0] != "scaler"}


def _load_module(name: str, model: torch.nn.Module, saved: Mapping[str, Any], where: str) -> None:
    state = {key: saved[bare] for key, bare in matching.bare_names(model).items()}
    load_into(name, model.load_state_dict, state, where)


def _load_other(
    name: str, other: Stateful, saved: dict[str, Any], where: str, *, exact: bool
) -> list[str]:
    """Load an optimizer, a scheduler, ….

    Return the parts that it changed while loading, in words. If `exact`, an optimizer's state keeps
    the precision that it was saved with.
    """
    groups = [*getattr(other, "param_groups", ())]
    load_into(name, other.load_state_dict, saved, where)
    matching.keep_groups(groups, other)
    if name == STREAM:
        # A request for its state before its first batch would make it read.
        doubt: str = getattr(other, "order_doubt", "")
        if doubt:
            return [doubt]
        return []
    if exact and isinstance(saved.get("param_groups"), list):
        matching.restore_dtypes(other, saved)
    changed = matching.differences(saved, other.state_dict(), name)
    if changed:
        return [changed]
    return []


def load_into(
    name: str, load_state: Callable[[dict[str, Any]], Any], state: dict[str, Any], where: str
) -> None:
    """Load a part of the checkpoint `where`.

    Raises:
        UsageError: It does not fit.
    """
    try:
        load_state(state)
    except (RuntimeError, ValueError, KeyError, TypeError) as error:
        hint = ""
        if "parameter group" in str(error):
            hint = _GROUPS
        raise UsageError(f"{name} of {where} does not fit this {name}: {error}{hint}") from error


Parts = Union[Stateful, Mapping[str, Stateful]]
"""One object with state, or several by name."""


def find_loose_tensors(
    models: Mapping[str, torch.nn.Module], optimizers: Mapping[str, Any], extra: Any
) -> dict[str, torch.Tensor]:
    """Return the tensors that the optimizers change and that nothing else saves, by name.

    An image, a temperature, the weight of a loss term or a layer in a plain list: an optimizer
    takes them without a module. Some optimizers save copies in another precision themselves.
    """
    saved = {id(p) for model in models.values() for p in model.parameters()}
    saved |= tensor_ids(extra)
    found: dict[str, torch.Tensor] = {}
    for name, optimizer in optimizers.items():
        groups = getattr(optimizer, "param_groups", [])
        tensors = [tensor for group in groups for tensor in group["params"]]
        if not {*map(id, tensors)} <= saved:
            saved |= tensor_ids(optimizer.state_dict())
        for number, tensor in enumerate(tensors):
            if id(tensor) not in saved:
                saved.add(id(tensor))
                found[f"{name}/{number}"] = tensor
    return found


def counted_averages(parts: Mapping[str, Stateful]) -> set[str]:
    """Return the names of the averaged weights that change only by operations that torch counts.

    For others it is unknown: many update their average by ``.data``, which is not detected. They
    are copied at once, unless their `counted_averages` is True.
    """
    return {
        n
        for n, part in parts.items()
        if isinstance(part, AveragedModel) or getattr(part, "counted", None) is True
    }


def flatten_parts(parts: Mapping[str, Parts | None]) -> dict[str, Stateful]:
    """Return the existing parts, those of a mapping as ``optimizer.name``."""
    found: dict[str, Stateful] = {}
    for name, part in parts.items():
        if isinstance(part, Mapping):
            found.update({f"{name}.{key}": value for key, value in part.items()})
        elif part is not None:
            found[name] = part
    return found


def check_parts(model: Any, parts: Mapping[str, Any]) -> None:
    """Check that the parts of a run can be saved and loaded again.

    Raises:
        UsageError: A part is of a kind that cannot.
    """
    if torch.get_default_device().type == "meta":
        raise UsageError(
            "torch.set_default_device('meta') is in force, so that the tensors of loaders would "
            "have no values: set another device, or use `with torch.device('meta'):`, before the Run"
        )
    if isinstance(model, Mapping):
        models = model
    else:
        models = {"model": model}
    for name, module in models.items():
        if not isinstance(module, torch.nn.Module):
            raise UsageError(
                f"{name} is a {type(module).__name__}, not a torch.nn.Module (several go in by name)"
            )
        for key, weight in module.named_parameters():
            if weight.is_meta or torch.nn.parameter.is_lazy(weight):
                raise UsageError(f"{key} of {name} {unfit(weight)}")
    for kind, part in parts.items():
        if isinstance(part, Mapping):
            named_parts = part
        else:
            named_parts = {"": part}
        for name, one in named_parts.items():
            where = f"{kind} {name}".rstrip()
            if isinstance(one, (list, tuple)):
                raise UsageError(
                    f'{where} is a {type(one).__name__}: give several by name, as {kind}={{"a": …, '
                    '"b": …}, so that a '
                    "resume knows which is which"
                )
            if one is not None and not (
                hasattr(one, "state_dict") and hasattr(one, "load_state_dict")
            ):
                raise UsageError(
                    f"{where} is a {type(one).__name__}, which has no state_dict and load_state_dict"
                )
            if type(one).__name__ == "ZeroRedundancyOptimizer":
                raise UsageError(
                    f"{where} is a ZeroRedundancyOptimizer, whose state is in parts on the ranks: "
                    "use fully_shard (FSDP2), or the plain optimizer"
                )
