"""The full state of a training run: taken apart for a checkpoint, put back from one."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any, Callable, Dict, List, Mapping, Optional, Protocol, Sequence, Set, Tuple

import torch

from rgt_train import exact, frozen, keys, rng, tree
from rgt_train.collected import MODEL_FILE, TRAINER_FILE, Collected
from rgt_train.exits import UsageError
from rgt_train.fingerprint import changes, environment
from rgt_train.held import Held
from rgt_train.hyperparameters import Declared, Hyperparameters
from rgt_train.loaded import Loaded
from rgt_train.progress import Progress
from rgt_train.restored import Restored, Tensors, no_tensor

STREAM = "stream"
"""Name of the part that reads the data of a run."""
_GROUPS = (
    "; make every parameter group before the Run is made, also those that are trained later: requires_grad says "
    "what is trained, and is kept"
)


class Stateful(Protocol):
    """Anything that can be saved and restored: an optimizer, a scheduler, a GradScaler, an EMA."""

    def state_dict(self) -> Dict[str, Any]:
        """Return the state."""

    def load_state_dict(self, state_dict: Dict[str, Any]) -> Any:
        """Take the state over."""


class RunState:
    """Collects the state of the objects of a run, and puts it back.

    Args:
        models: Name → module.
        others: Name → optimizer, scheduler, scaler, EMA, ….
        progress: The counters; restored in place.
        sampler: What `EpochSampler.state` returned for this launch.
        settings: Plain values worth comparing at a resume (learning rate, sizes, …).
        world: Ranks of the run.
        rank: Number of this one.

    Attributes:
        steady: Names of the `others` whose tensors change only inside ``optimizer.step()`` (the optimizers
            themselves) or just before the checkpoint of their step (an EMA).
        hooked: Whether every optimizer tells before it changes anything; else nothing is steady.
        optimizers: Names of the `others` that are optimizers; the weights that they step are steady, too.
        random: The random states of all ranks where there are several; None takes this process's.
        small: Names of the `others` that what comes after an epoch may change, and that are small: schedulers, scalers.
        hyperparameters: What the code of this launch says of optimizers and schedules; None compares nothing.
        override: Names of those that a resume takes from the code and not from the checkpoint.
        data: Returns what is known of the loading of the data.
        held: What they were right after the last step of an epoch, until the next one begins; else None.
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
    ) -> None:
        self.models, self.others, self.progress = dict(models), dict(others), progress
        self._sampler, self._settings = dict(sampler), dict(settings)
        self.world, self.rank = world, rank
        self.steady: Set[str] = set()
        self.hooked = False
        self.optimizers: Set[str] = set()
        self.random: Optional[List[Any]] = None
        self.small: Set[str] = set()
        self.hyperparameters: Optional[Hyperparameters] = None
        self.override: Sequence[str] = ()
        self.data: Callable[[], Dict[str, Any]] = dict
        self.held: Optional[Held] = None

    @property
    def sampler(self) -> Dict[str, int]:
        """What the data order of this launch is made of."""
        return self._sampler

    @property
    def settings(self) -> Dict[str, Any]:
        """The settings of this launch."""
        return self._settings

    @property
    def declared(self) -> Declared:
        """What the code says of the hyperparameters, for a checkpoint."""
        return self.hyperparameters.declared if self.hyperparameters else {}

    def refuse(self, document: Mapping[str, Any], where: str) -> None:
        """See that the optimizers are of the classes that the state in the checkpoint `where` is of.

        Raises:
            UsageError: One is not.
        """
        if self.hyperparameters:
            self.hyperparameters.refuse(document.get("declared", {}), where)

    def settle(self, document: Mapping[str, Any]) -> Tuple[List[str], List[str]]:
        """Compare hyperparameters when a checkpoint is loaded; return what is told, and what makes other bits."""
        if not self.hyperparameters:
            return [], []
        return self.hyperparameters.settle(document.get("declared", {}), self.override)

    def collect(self, random: Optional[Sequence[Any]] = None) -> Collected:
        """Take the state apart as it is now; tensors are referred to, not copied.

        Args:
            random: The random states of all ranks; None takes `random` of this object, else this process's.

        Raises:
            UsageError: It holds something that cannot be stored.
        """
        found = Collected()
        random = self.random if random is None else random
        try:
            models = {name: self._collect_model(found, name) for name in self.models}
            with self.held_settings():
                objects = {name: self._collect_other(found, name) for name in self.others}
            found.document = {
                "models": models,
                "objects": objects,
                "grads": self._collect_grads(found) if self.progress.micro else None,
                "frozen": frozen.flags(self.models),
                "declared": self.declared,
                "data": self.data(),
                "progress": self.progress.state(),
                "sampler": self._sampler,
                "settings": tree.encode(self._settings, no_tensor, "settings"),
                "environment": environment(self.world),
                "rng": list(random) if random is not None else [self.random_here()],
            }
        except (tree.CannotStore, ValueError) as error:
            raise UsageError(f"this state cannot be stored safely: {error}") from error
        return found

    def hold(self, random: Optional[Dict[str, Any]] = None) -> None:
        """Keep what is small as it is now, right after the last step of an epoch, for the saves until `held` is None.

        Args:
            random: The random state of this process; None takes it as it is.
        """
        live = {name for name, other in self.others.items() if isinstance(other, torch.nn.Module)}
        watched = {name: self.others[name] for name in live | self.small | self.optimizers | self.steady}
        self.held = Held(self.models, watched, self.small, self.optimizers, random or rng.capture())

    def state_of(self, name: str) -> Dict[str, Any]:
        """Return the state of one of the `others`."""
        return self.held.of(name, self.others[name]) if self.held else self.others[name].state_dict()

    def held_settings(self) -> "AbstractContextManager[None]":
        """Give the optimizers the hyperparameters of the end of the epoch, if they are held, for a moment."""
        return self.held.settings() if self.held else nullcontext()

    def random_here(self) -> Dict[str, Any]:
        """Return the random state of this process."""
        return self.held.random if self.held else rng.capture()

    def estimate(self) -> int:
        """Return about how many bytes a checkpoint will have: two moments a weight are assumed."""
        tensors = [t for model in self.models.values() for t in model.state_dict().values()]
        size = sum(t.numel() * t.element_size() for t in tensors if isinstance(t, torch.Tensor))
        return size * (3 if self.others else 1) + 1024 * len(tensors)

    def restore(self, loaded: Loaded) -> Restored:
        """Put everything back but random state and gradients, which the caller does last.

        Raises:
            UsageError: The checkpoint is intact but belongs to another model, optimizer or data set. Nothing has
                been changed where names or shapes of a model differ.
        """
        document, where = loaded.document, loaded.directory
        if document.get("layout") == "sharded":
            raise UsageError(
                f"{where} was saved by a run whose model is sharded (fully_shard); launch it as it was, on any number "
                "of ranks, or give another --out"
            )
        if document["sampler"] != self._sampler:
            raise UsageError(
                f"{where} was made with other data settings: "
                f"{changes(document['sampler'], self._sampler)}; its position would mean nothing here"
            )
        _same_names("models", document["models"], self.models)
        _same_names("parts", document["objects"], self.others)
        self.refuse(document, where)
        weights = {name: loaded.value(document["models"][name], MODEL_FILE) for name in self.models}
        for name, model in self.models.items():
            _check_fit(name, model, weights[name], where)
        done: List[str] = []
        for name, model in self.models.items():
            _load_module(name, model, weights[name], where)
            done.append(name)
        inexact: List[str] = []
        for name, other in self.others.items():
            saved = loaded.value(document["objects"][name], TRAINER_FILE, own=True)
            if isinstance(other, torch.nn.Module):
                _check_fit(name, other, saved, where)
                _load_module(name, other, saved, where)
            else:
                inexact += _load_other(name, other, saved, where)
            done.append(name)
        done += frozen.put_back(self.models, document.get("frozen", {}))
        p = self.progress
        p.load(document["progress"])
        done.append(f"data position (epoch {p.epoch + 1}, step {p.done_steps} of it)")
        if p.micro:
            done.append(f"gradients of {p.micro} batches")
        if p.best is not None:
            done.append(f"best {p.best:.4f} of step {p.best_step}")
        grads = loaded.value(document["grads"], TRAINER_FILE, own=True) if document["grads"] else {}
        told, doubts = self.settle(document)
        return Restored(
            done, document, environment(self.world), self._settings, grads, self.rank, inexact, told, doubts
        )

    def give_grads(self, grads: Mapping[str, Tensors]) -> None:
        """Put saved gradients back; after anything that clears them, before the first batch."""
        for name, saved in grads.items():
            parameters = dict(keys.parameters(self.models[name]))
            for key, grad in saved.items():
                parameters[key].grad = grad.to(parameters[key].device)

    def _collect_model(self, found: Collected, name: str) -> Any:
        model = self.models[name]
        prefix = "" if len(self.models) == 1 else f"{name}."
        still = self._trained() if self.hooked else set()
        names = keys.bare_names(model)
        state = {names[key]: value for key, value in model.state_dict().items()}

        def put(path: str, tensor: torch.Tensor) -> str:
            return found.put(MODEL_FILE, prefix + path, tensor, _address(tensor) in still)

        return {key: tree.encode(value, put, key) for key, value in state.items()}

    def _trained(self) -> Set[int]:
        """Return the addresses of the weights that an optimizer steps.

        No others: a teacher, a target network or a codebook moves in the forward pass, often by ``.data``, and is among
        the parameters of an optimizer often enough. What has neither a gradient nor a moment was never stepped.
        """
        found: Set[int] = set()
        for name in self.optimizers:
            moments = getattr(self.others[name], "state", {})
            for group in getattr(self.others[name], "param_groups", []):
                for parameter in group["params"]:
                    if parameter.requires_grad and (parameter.grad is not None or moments.get(parameter)):
                        found.add(_address(parameter))
        return found

    def _collect_other(self, found: Collected, name: str) -> Any:
        other = self.others[name]
        state = self.state_of(name)
        if isinstance(other, torch.nn.Module):
            names = keys.bare_names(other)
            state = {names[key]: value for key, value in state.items()}
        steady = self.hooked and name in self.steady

        def put(path: str, tensor: torch.Tensor) -> str:
            return found.put(TRAINER_FILE, path, tensor, steady)

        return tree.encode(state, put, name)

    def _collect_grads(self, found: Collected) -> Any:
        grads = {
            name: {key: p.grad for key, p in keys.parameters(model) if p.grad is not None}
            for name, model in self.models.items()
        }
        return tree.encode(grads, lambda path, tensor: found.put(TRAINER_FILE, path, tensor, False), "grad")


def _address(tensor: torch.Tensor) -> int:
    try:
        return tensor.data_ptr()
    except RuntimeError:
        return 0  # it has no memory of its own (a sparse one): refused later, by its name


def _check_fit(name: str, model: torch.nn.Module, saved: Mapping[str, Any], where: str) -> None:
    names = keys.bare_names(model)
    here = {key: value for key, value in model.state_dict().items() if isinstance(value, torch.Tensor)}
    tensors = {key: value for key, value in saved.items() if isinstance(value, torch.Tensor)}
    problems = keys.compare(tensors, here, names)
    if problems:
        raise UsageError(f"{name} of {where} does not fit this {name}: {'; '.join(problems)}")


def _load_module(name: str, model: torch.nn.Module, saved: Mapping[str, Any], where: str) -> None:
    state = {key: saved[bare] for key, bare in keys.bare_names(model).items()}
    load_into(name, model.load_state_dict, state, where)


def _load_other(name: str, other: Stateful, saved: Dict[str, Any], where: str) -> List[str]:
    """Load an optimizer, a scheduler, …; return what it did not take over as it was, in words."""
    load_into(name, other.load_state_dict, saved, where)
    if name == STREAM:
        doubt: str = getattr(
            other, "doubt", ""
        )  # asked for its state before its first batch, it would begin to read
        return [doubt] if doubt else []
    if isinstance(saved.get("param_groups"), list):
        exact.uncast(other, saved)
    changed = exact.differences(saved, other.state_dict(), name)
    return [changed] if changed else []


def load_into(
    name: str, load_state: Callable[[Dict[str, Any]], Any], state: Dict[str, Any], where: str
) -> None:
    """Load a part of the checkpoint `where`.

    Raises:
        UsageError: It does not fit.
    """
    try:
        load_state(state)
    except (RuntimeError, ValueError, KeyError, TypeError) as error:
        hint = _GROUPS if "parameter group" in str(error) else ""
        raise UsageError(f"{name} of {where} does not fit this {name}: {error}{hint}") from error


def _same_names(kind: str, saved: Mapping[str, Any], here: Mapping[str, Any]) -> None:
    if set(saved) != set(here):
        missing, unexpected = sorted(set(here) - set(saved)), sorted(set(saved) - set(here))
        raise UsageError(
            f"the checkpoint has the {kind} {sorted(saved)}, this run has {sorted(here)} "
            f"(missing {missing}, unexpected {unexpected})"
        )


__all__ = ["Restored", "RunState", "Stateful", "load_into"]
