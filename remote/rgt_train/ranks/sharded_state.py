"""The state of a run whose tensors are spread over the ranks: collected, staged, restored.

Tensors go by name into torch's sharded format; everything else goes into one JSON document that
loads without building objects. Values that differ between ranks although they are not sharded
(batch normalisation's statistics) are kept for every rank.

torch's own functions give each tensor under its fully qualified name, for every wrapper of the
module, as a `DTensor` that knows this rank's part of it. Plain values (learning rates, betas) are
kept apart from the tensors: they go into a file that loads without building objects.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Dict, Iterable, Mapping, cast

import torch
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)

from rgt_train.checkpoint import encoding, matching
from rgt_train.checkpoint.receipt import environment
from rgt_train.checkpoint.safetensors import WHOLE
from rgt_train.checkpoint.state import RestoredState, RunState, load_into
from rgt_train.exits import UsageError

__all__ = [
    "LAYOUT",
    "OBJECTS",
    "CollectedState",
    "StagingBuffers",
    "check_data",
    "check_names",
    "check_part_names",
    "models_of_optimizers",
    "restore_all",
    "room_for",
    "take_state",
]

# Flat: moments are named by parameter, so they fit any number of ranks and groups.
FLAT = StateDictOptions(flatten_optimizer_state_dict=True)

Tensors = Dict[str, torch.Tensor]
Plain = Dict[str, Any]


def collect_values(
    models: Mapping[str, torch.nn.Module],
    optimizers: Mapping[str, tuple[str, torch.optim.Optimizer]],
) -> tuple[Tensors, Plain]:
    """Return the tensors and the plain values of models and optimizers. Collective.

    Args:
        models: The modules by name.
        optimizers: By name: the name of the module whose parameters it changes, and the optimizer.

    Returns:
        (tensors by ``NAME/KEY``, plain values likewise).
    """
    tensors: Tensors = {}
    plain: Plain = {}
    for name, model in models.items():
        _split_plain_values(name, get_model_state_dict(model), tensors, plain)
    for name, (owner, optimizer) in optimizers.items():
        _split_plain_values(
            name, get_optimizer_state_dict(models[owner], optimizer, options=FLAT), tensors, plain
        )
    return tensors, plain


def load_values(
    models: Mapping[str, torch.nn.Module],
    optimizers: Mapping[str, tuple[str, torch.optim.Optimizer]],
    tensors: Tensors,
    plain: Plain,
) -> None:
    """Load a saved state into models and optimizers. Collective.

    Raises:
        UsageError: It does not fit them; the message lists missing and extra names.
    """
    both: dict[str, Any] = {**tensors, **plain}
    for name, model in models.items():
        check_same_names(name, _entries_below(both, name), get_model_state_dict(model))
        set_model_state_dict(model, _entries_below(both, name))
    for name, (owner, optimizer) in optimizers.items():
        try:
            set_optimizer_state_dict(
                models[owner], optimizer, _entries_below(both, name), options=FLAT
            )
        except (RuntimeError, KeyError, ValueError, AssertionError) as error:
            raise UsageError(
                f"{name} of the checkpoint does not fit this {name}: {error}"
            ) from error


def check_same_names(name: str, saved: Mapping[str, Any], here: Mapping[str, Any]) -> None:
    """Compare the names of two states.

    Raises:
        UsageError: They differ.
    """
    missing = sorted(set(here) - set(saved))
    extra = sorted(set(saved) - set(here))
    if missing or extra:
        raise UsageError(
            f"{name} does not fit: missing {names_text(missing)}; unexpected {names_text(extra)}"
        )


def names_text(names: list[str]) -> str:
    """Return some names and the number of the others."""
    if not names:
        return "nothing"
    most_names = 8
    more = ""
    if len(names) > most_names:
        more = f" and {len(names) - most_names} more"
    return ", ".join(names[:most_names]) + more


def _split_plain_values(
    name: str, state: Mapping[str, Any], tensors: Tensors, plain: Plain
) -> None:
    for key, value in state.items():
        if isinstance(value, torch.Tensor):
            tensors[f"{name}/{key}"] = value
        else:
            plain[f"{name}/{key}"] = value


def _entries_below(state: Mapping[str, Any], name: str) -> dict[str, Any]:
    start = name + "/"
    return {key[len(start) :]: value for key, value in state.items() if key.startswith(start)}


LAYOUT = "sharded"
"""Value of ``layout`` in the document of such a checkpoint."""
OBJECTS = "objects/"
"""Prefix of the tensor names of parts that are neither model nor optimizer."""
_EACH = re.compile(r"rank\d+/")
"""Prefix of the names of values that each rank has separately."""


@dataclass(frozen=True)
class CollectedState:
    """A collected state.

    Attributes:
        tensors: By name; a `DTensor` is this rank's part of it.
        plain: Plain values of models and optimizers, by name.
        objects: Schedulers, scalers and the like, with their tensors named.
    """

    tensors: dict[str, torch.Tensor]
    plain: dict[str, Any]
    objects: dict[str, Any]

    def build_document(self, state: RunState, random: list[Any]) -> dict[str, Any]:
        """Return all values that are not tensors.

        Raises:
            UsageError: It holds something that cannot be stored.
        """
        try:
            return {
                "layout": LAYOUT,
                "compared": WHOLE,
                "models": sorted(state.models),
                "plain": encoding.encode_value(self.plain, _no_tensor, "state"),
                "objects": self.objects,
                "frozen": matching.frozen_parameters(state.models),
                "evaluating": state.modes_of_step(),
                "declared": state.declared,
                "data": {**state.data(), "late": state.late},
                "progress": state.progress.state(),
                "sampler": state.sampler,
                "settings": encoding.encode_value(state.settings, _no_tensor, "settings"),
                "environment": environment(state.world),
                "rng": random,
            }
        except (encoding.CannotStore, ValueError) as error:
            raise UsageError(f"this state cannot be stored safely: {error}") from error


def take_state(state: RunState) -> CollectedState:
    """Collect the present state; tensors are referenced, not copied. Collective.

    Raises:
        UsageError: It holds something that cannot be stored.
    """
    # Before anything is read: see there.
    _reshard_modules(state)
    state.check_build()
    with state.epoch_end_settings():
        tensors, plain = collect_values(state.models, models_of_optimizers(state))
    for name, buffer in _own_buffers(state, tensors).items():
        tensors[f"rank{state.rank}/{name}"] = buffer

    def put_tensor(path: str, tensor: torch.Tensor) -> str:
        tensors[OBJECTS + path] = tensor
        return path

    try:
        others = {
            name: other for name, other in state.others.items() if name not in state.optimizers
        }
        objects = {
            name: encoding.encode_value(state.state_of(name), put_tensor, name) for name in others
        }
    except (encoding.CannotStore, ValueError) as error:
        raise UsageError(f"this state cannot be stored safely: {error}") from error
    return CollectedState(tensors, plain, objects)


def _reshard_modules(state: RunState) -> None:
    """Let every sharded module hold shards again.

    After a validation the outermost one still holds whole tensors, which are other parameters than
    the optimizer's.
    """
    for model in state.models.values():
        for module in model.modules():
            # An `FSDPModule`, recognised by its methods.
            if hasattr(module, "set_requires_gradient_sync") and hasattr(module, "reshard"):
                cast(Any, module).reshard()


def models_of_optimizers(state: RunState) -> dict[str, tuple[str, torch.optim.Optimizer]]:
    """Return by the name of each optimizer: the model whose parameters it changes, and it.

    Raises:
        UsageError: It is not a `torch.optim.Optimizer`, or its parameters belong to no model of the
            run.
    """
    found: dict[str, tuple[str, torch.optim.Optimizer]] = {}
    for name in sorted(state.optimizers):
        optimizer: Any = state.others[name]
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise UsageError(
                f"{name} is a {type(optimizer).__name__}: a sharded model needs an optimizer of "
                "torch.optim"
            )
        mine = {id(p) for group in optimizer.param_groups for p in group["params"]}
        for model, module in state.models.items():
            # By identity: after fully_shard an optimizer made before still has the old parameters.
            if mine <= {id(p) for p in module.parameters()}:
                found[name] = model, optimizer
                break
        else:
            raise UsageError(
                f"{name} has parameters that are of no model of this run: create it after "
                "fully_shard"
            )
    return found


class StagingBuffers:
    """A copy of the tensors in main memory, in buffers allocated once and used for every save."""

    def __init__(self) -> None:
        self._held: dict[str, torch.Tensor] = {}

    def copy_tensors(self, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Return the present values of the tensors, independent of later changes."""
        for name in [name for name in self._held if name not in tensors]:
            del self._held[name]
        with torch.no_grad():
            for name, tensor in tensors.items():
                held = self._held.get(name)
                if held is None or _buffer_kind(held) != _buffer_kind(tensor):
                    # copy=True: on a CPU, to() would return the live tensor itself.
                    self._held[name] = tensor.detach().to("cpu", copy=True)
                else:
                    _local_tensor(held).copy_(_local_tensor(tensor))
        return dict(self._held)


def restore_all(
    state: RunState,
    taken: CollectedState,
    document: Mapping[str, Any],
    loaded: Mapping[str, torch.Tensor],
    where: str,
) -> RestoredState:
    """Restore the objects of the run from a loaded state, all but the random state. Collective.

    Args:
        state: The run's.
        taken: Its collected state, whose tensors already hold the loaded values.
        document: The document of plain values.
        loaded: Tensors of schedulers and the like, by name.
        where: The checkpoint, for messages.

    Raises:
        UsageError: It does not fit.
    """
    done = [*state.models, *sorted(state.optimizers)]
    names = {name for name in taken.tensors if _is_common(name)}
    plain = encoding.decode_value(document["plain"], _no_tensor_back)
    load_values(
        state.models,
        models_of_optimizers(state),
        {name: taken.tensors[name] for name in names},
        plain,
    )
    for prefix in prefixes_without_moments(state, loaded):
        # torch has made moments for them, as after a first step.
        optimizer: Any = state.others[prefix.partition("/")[0]]
        optimizer.state.clear()
    for name, buffer in _own_buffers(state, taken.tensors).items():
        saved = taken.tensors.get(f"rank{state.rank}/{name}")
        # On another number of ranks, no rank is the one that the buffer belonged to.
        if saved is not None and document["environment"].get("ranks") == state.world:
            buffer.copy_(saved)
    inexact = state.same_parts(document["objects"], _objects_of(state))
    for name, encoded in document["objects"].items():
        if name not in state.others:
            continue  # a scaler that this run does not have
        value = encoding.decode_value(encoded, lambda key: loaded[OBJECTS + key])
        load_into(name, state.others[name].load_state_dict, value, where)
        done.append(name)
    told, doubts = state.apply_overrides(document)
    done += state.load_counters(document, doubts)
    here = environment(state.world)
    return RestoredState(
        done, document, here, state.settings, {}, state.rank, inexact, told, doubts
    )


def _objects_of(state: RunState) -> list[str]:
    return [name for name in state.others if name not in state.optimizers]


def prefixes_without_moments(state: RunState, saved: Iterable[str]) -> tuple[str, ...]:
    """Return the prefixes of the moments of optimizers that have none among the `saved` names.

    Such a checkpoint was made before the optimizer's first step, in an accumulation.
    """
    names = [*saved]
    prefixes = [f"{name}/state." for name in sorted(state.optimizers)]
    return tuple(
        prefix for prefix in prefixes if not any(name.startswith(prefix) for name in names)
    )


def stepped_parameters(names: Iterable[str]) -> set[str]:
    """Return the parameters with optimizer state in a checkpoint with tensors of these `names`."""
    behind = (
        name.split("/state.", 1)[1]
        for name in names
        if name.startswith("optimizer") and "/state." in name
    )
    return {name.rsplit(".", 1)[0] for name in behind}


def check_data(state: RunState, document: Mapping[str, Any], where: str) -> None:
    """Check that a checkpoint was made with the data order and the parts of this run.

    Raises:
        UsageError: It was not.
    """
    state.refuse_other_classes(document, where)
    state.same_parts(document["objects"], _objects_of(state))


def check_names(
    saved: Mapping[str, tuple[int, ...]], here: Mapping[str, torch.Tensor], where: str
) -> None:
    """Check that names and shapes of a checkpoint are those of this run.

    Raises:
        UsageError: They are not; the text lists them.
    """
    shared = {name for name in saved if _is_common(name)}
    mine = {name for name in here if _is_common(name)}
    problems = []
    if mine - shared:
        problems.append(f"missing {names_text(sorted(mine - shared))}")
    if shared - mine:
        problems.append(f"unexpected {names_text(sorted(shared - mine))}")
    other = [
        f"{name} {tuple(saved[name])} → {tuple(here[name].shape)}"
        for name in sorted(shared & mine)
        if tuple(saved[name]) != tuple(here[name].shape)
    ]
    if other:
        problems.append(f"of another shape: {names_text(other)}")
    if problems:
        raise UsageError(f"{where} does not fit this model and optimizer: {'; '.join(problems)}")


def check_part_names(state: RunState) -> None:
    """Check that the names of models and optimizers separate their tensors from all others.

    Raises:
        UsageError: One of them does not.
    """
    for name in sorted({*state.models, *state.optimizers}):
        if "/" in name or name + "/" == OBJECTS or _EACH.fullmatch(name + "/"):
            raise UsageError(
                f"a sharded run cannot have a part called {name!r}: give it a name without / that "
                "is neither objects nor rank with a number"
            )
    both = sorted(set(state.models) & set(state.optimizers))
    if both:
        raise UsageError(f"a sharded run cannot call both a model and an optimizer {both[0]!r}")


def room_for(
    saved: Mapping[str, tuple[tuple[int, ...], torch.dtype]], here: Mapping[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """Return the tensors to read a checkpoint into.

    The tensors of models and optimizers are used directly, new ones for all others. Sharded tensors
    of an object (averaged weights of a sharded model) are restored with the same shards: its own
    `load_state_dict` copies a `DTensor` into a `DTensor`. A buffer that each rank has separately
    must not be read into its own memory: the model's common value is written there first.

    Args:
        saved: Shape and dtype of each tensor of the checkpoint.
        here: The tensors of this run.
    """
    wanted: dict[str, torch.Tensor] = {}
    for name, (shape, dtype) in saved.items():
        own = here.get(name)
        if _is_common(name):
            if own is not None:
                wanted[name] = own
        elif own is not None and type(own).__name__ == "DTensor" and tuple(own.shape) == shape:
            wanted[name] = torch.empty_like(own, dtype=dtype)
        elif own is not None or name.startswith(OBJECTS):
            wanted[name] = torch.empty(shape, dtype=dtype, device="cpu")
    return wanted


def _is_common(name: str) -> bool:
    """Return whether a tensor is of a model or an optimizer, and the same for all ranks."""
    return not (name.startswith(OBJECTS) or _EACH.match(name))


def _own_buffers(state: RunState, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return the buffers that every rank has separately."""
    if state.world == 1:
        return {}
    found: dict[str, torch.Tensor] = {}
    for name, model in state.models.items():
        buffers = dict(model.named_buffers())
        for key, bare in matching.strip_wrapper_names(model, buffers).items():
            full = f"{name}/{bare}"
            buffer = buffers[key]
            if full in tensors and type(buffer).__name__ != "DTensor":
                found[full] = buffer
    return found


def _buffer_kind(tensor: Any) -> "tuple[Any, ...]":
    return (
        tuple(tensor.shape),
        tensor.dtype,
        tuple(_local_tensor(tensor).shape),
        getattr(tensor, "placements", None),
    )


def _local_tensor(tensor: Any) -> torch.Tensor:
    found: torch.Tensor
    if hasattr(tensor, "to_local"):
        found = tensor.to_local()
    else:
        found = tensor
    return found.detach()


def _no_tensor(path: str, tensor: torch.Tensor) -> str:
    raise encoding.CannotStore(f"{path} is a tensor; only plain values are expected there")


def _no_tensor_back(name: str) -> torch.Tensor:
    raise UsageError(f"the checkpoint has a tensor where only plain values belong: {name}")
