"""Compares a saved state with the present one: names, flags and values of its tensors.

`DistributedDataParallel` puts ``module.`` before every name, `torch.compile` puts ``_orig_mod.``
before or into it. A checkpoint has the names of the bare model, so that it fits with and without
them. Only the prefix that a wrapper really added is removed: a layer that a person called
``module`` keeps its name.

Every library stores averages in its own form: ours has a mapping ``average``,
`torch.optim.swa_utils.AveragedModel` is a module whose names begin with ``module.``, others have a
mapping ``shadow`` or the names at the top. All of them contain the names of the model's own
weights, so these are searched for.
"""

from __future__ import annotations

from typing import (
    Any,
    Container,
    Dict,
    Iterable,
    Iterator,
    Mapping,
    Protocol,
    Sequence,
)

import torch

from rgt_train.exits import UsageError

_WRAPPERS: "dict[str, str]" = {
    "DistributedDataParallel": "module",
    "DataParallel": "module",
    "FullyShardedDataParallel": "_fsdp_wrapped_module",
    "OptimizedModule": "_orig_mod",
    "CheckpointWrapper": "_checkpoint_wrapped_module",
}
"""Class of a wrapper → the attribute that holds what it wraps."""
_MOST_NAMES = 8


class Spec(Protocol):
    """A tensor, or what is known of one."""

    @property
    def dtype(self) -> torch.dtype:
        """Its dtype."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""


def bare_names(model: torch.nn.Module) -> dict[str, str]:
    """Return key of ``model.state_dict()`` → name in a checkpoint.

    Raises:
        ValueError: Two keys would get one name.
    """
    names = strip_wrapper_names(model, model.state_dict())
    taken: dict[str, str] = {}
    for key, name in names.items():
        if name in taken:
            raise ValueError(f"{taken[name]} and {key} would both be saved as {name}")
        taken[name] = key
    return names


def strip_wrapper_names(model: torch.nn.Module, keys: Iterable[str]) -> dict[str, str]:
    """Return key → the key without the parts that wrappers in `model` have added to it.

    The names of parameters and buffers are not always keys of the state: some wrappers remove their
    part from those.
    """
    added = _added_prefixes(model)
    return {key: _bare_key(key, added) for key in keys}


def list_parameters(model: torch.nn.Module) -> list[tuple[str, torch.nn.Parameter]]:
    """Return the bare name of each parameter, and the parameter."""
    named = dict(model.named_parameters())
    names = strip_wrapper_names(model, named)
    return [(names[key], parameter) for key, parameter in named.items()]


def find_mismatches(
    saved: Mapping[str, Spec], here: Mapping[str, Spec], names: Mapping[str, str]
) -> tuple[list[str], list[str]]:
    """Return why the tensors `saved` do not fit `here`, and which would be loaded with other precision.

    Args:
        saved: Bare name → tensor, or its dtype and shape.
        here: Key → the same.
        names: Key → bare name.
    """
    wanted = {names[key]: tensor for key, tensor in here.items()}
    problems: list[str] = []
    for kind, left, right in (("missing", wanted, saved), ("unexpected", saved, wanted)):
        absent = [name for name in left if name not in right]
        if absent:
            more = ""
            if len(absent) > _MOST_NAMES:
                more = f" and {len(absent) - _MOST_NAMES} more"
            problems.append(f"{len(absent)} {kind}: {', '.join(absent[:_MOST_NAMES])}{more}")
    both = [(name, saved[name], tensor) for name, tensor in wanted.items() if name in saved]
    shapes = [
        f"{name} {tuple(old.shape)} → {tuple(new.shape)}"
        for name, old, new in both
        if old.shape != new.shape
    ]
    dtypes: dict[bool, list[str]] = {False: [], True: []}
    for name, old, new in both:
        if old.dtype != new.dtype:
            # Another precision of a float is often intended; an integer as a float never is.
            recast = old.dtype.is_floating_point and new.dtype.is_floating_point
            dtypes[recast].append(f"{name} {old.dtype} → {new.dtype}".replace("torch.", ""))
    problems += [
        _listed(kind, names)
        for kind, names in (("shape", shapes), ("dtype", dtypes[False]))
        if names
    ]
    return problems, [_listed("precision", names) for names in [dtypes[True]] if names]


def _listed(kind: str, names: Sequence[str]) -> str:
    more = ""
    if len(names) > _MOST_NAMES:
        more = f" and {len(names) - _MOST_NAMES} more"
    return f"{len(names)} of another {kind}: {', '.join(names[:_MOST_NAMES])}{more}"


def _added_prefixes(model: torch.nn.Module) -> list[tuple[str, str]]:
    """Return (path of a wrapper, component it adds after its path), the outermost first."""
    found = []
    # A module at two places has keys under both.
    for path, module in model.named_modules(remove_duplicate=False):
        # By name, because the wrappers' modules need not be installed or imported.
        for kind in type(module).__mro__:
            attribute = _WRAPPERS.get(kind.__name__)
            if attribute is not None and hasattr(module, attribute):
                found.append((path, attribute))
                break
    return sorted(set(found), key=lambda entry: len(entry[0]))


def _bare_key(key: str, added: list[tuple[str, str]]) -> str:
    drop = set()
    parts = key.split(".")
    for path, attribute in added:
        above: list[str] = []
        if path:
            above = path.split(".")
        depth = len(above)
        if parts[: depth + 1] == [*above, attribute]:
            drop.add(depth)
    return ".".join(part for number, part in enumerate(parts) if number not in drop)


_SHOWN = 3


def frozen_parameters(models: Mapping[str, torch.nn.Module]) -> dict[str, list[str]]:
    """Return model → names of its parameters without gradient."""
    return {
        name: [key for key, parameter in list_parameters(model) if not parameter.requires_grad]
        for name, model in models.items()
    }


def restore_requires_grad(
    models: Mapping[str, torch.nn.Module], saved: Mapping[str, Sequence[str]]
) -> list[str]:
    """Restore which parameters need gradients, as `frozen_parameters` returned it.

    Return the changes in words.
    """
    changed: dict[bool, list[str]] = {False: [], True: []}
    for name, frozen in saved.items():
        for key, parameter in list_parameters(models[name]):
            wanted = key not in frozen
            if parameter.requires_grad != wanted:
                parameter.requires_grad_(wanted)
                changed[wanted].append(key)
    return [
        _requires_grad_text(how, names)
        for how, names in zip(("frozen", "trained"), changed.values())
        if names
    ]


def evaluating_modules(models: Mapping[str, torch.nn.Module]) -> dict[str, list[str]]:
    """Return model → names of its modules in evaluation mode."""
    found: dict[str, list[str]] = {}
    for name, model in models.items():
        named = dict(model.named_modules())
        names = strip_wrapper_names(model, named)
        found[name] = [names[key] for key, module in named.items() if not module.training]
    return found


def restore_modes(models: Mapping[str, torch.nn.Module], saved: Mapping[str, Sequence[str]]) -> str:
    """Restore the modes, as `evaluating_modules` returned them; return the change in words.

    A loop may freeze layers once, or never switch back after a validation; a relaunch does not come
    to that line again.
    """
    changed: list[str] = []
    calls = {True: "train", False: "eval"}
    for name, model in models.items():
        named = dict(model.named_modules())
        for key, bare in strip_wrapper_names(model, named).items():
            wanted = bare not in saved.get(name, ())
            if name in saved and named[key].training != wanted:
                named[key].training = wanted
                changed.append(f"{bare or name}.{calls[wanted]}()")
    if not changed:
        return ""
    more = ""
    if len(changed) > _SHOWN:
        more = f" and {len(changed) - _SHOWN} more"
    return f"modules are in the mode of the checkpoint again: {', '.join(changed[:_SHOWN])}{more}"


def unfreeze_parameters(models: Mapping[str, torch.nn.Module], names: Container[str]) -> None:
    """Let the parameters `names` take gradients temporarily."""
    for model in models.values():
        for key, parameter in list_parameters(model):
            if key in names:
                parameter.requires_grad_(True)


def _requires_grad_text(how: str, names: Sequence[str]) -> str:
    more = ""
    if len(names) > _SHOWN:
        more = f" and {len(names) - _SHOWN} more"
    plural = ""
    if len(names) > 1:
        plural = "s"
    return (
        f"requires_grad ({len(names)} parameter{plural} {how} again: "
        f"{', '.join(names[:_SHOWN])}{more})"
    )


def keep_groups(before: list[dict[str, Any]], optimizer: Any) -> None:
    """Move the loaded hyperparameters into the groups of `before`.

    torch's optimizers replace their groups when they load, and the loop may hold one in a
    variable. Other objects are left alone.
    """
    is_of_torch = type(optimizer).load_state_dict.__module__ == torch.optim.Optimizer.__module__
    if is_of_torch and len(before) == len(optimizer.param_groups):
        for kept, loaded in zip(before, optimizer.param_groups):
            if kept is not loaded:
                kept.clear()
                kept.update(loaded)
        optimizer.param_groups[:] = before


def restore_dtypes(optimizer: Any, saved: Mapping[str, Any]) -> None:
    """Restore the dtype of tensors that `optimizer` cast while loading the state `saved`.

    ``torch.optim.Optimizer.load_state_dict`` casts every tensor of a parameter's state to the dtype
    of the parameter (torch 2.13, ``_process_value_according_to_param_policy``): 32-bit master
    weights of a bfloat16 model would be restored with 16 bits.
    """
    here = getattr(optimizer, "param_groups", ())
    there = saved.get("param_groups", ())
    for group, old in zip(here, there):
        for parameter, number in zip(group["params"], old["params"]):
            values = optimizer.state.get(parameter, {})
            for key, value in saved.get("state", {}).get(number, {}).items():
                if key in values:
                    values[key] = _with_saved_dtypes(value, values[key])


def differences(saved: Any, here: Any, name: str) -> str | None:
    """Return which values of the state `saved` differ in the state `here`; None if none do.

    Args:
        saved: The state that was given to the object.
        here: The state that the object returns now.
        name: The object.
    """
    found = list(_differences(saved, here, name))
    if not found:
        return None
    more = ""
    if len(found) > _SHOWN:
        more = f" and {len(found) - _SHOWN} more"
    return f"{', '.join(found[:_SHOWN])}{more} (its load_state_dict changed what it was given)"


def _differences(saved: Any, here: Any, path: str) -> Iterator[str]:
    if isinstance(saved, torch.Tensor):
        how = _difference(saved, here)
        if how:
            yield f"{path} {how}"
        return
    inside = _child_items(saved)
    others = dict(_child_items(here))
    for key, value in inside:
        yield from _differences(value, others.get(key), f"{path}/{key}")
    old, new = (each.tolist() if hasattr(each, "tolist") else each for each in (saved, here))
    if not inside and old != new and repr(old) != repr(new):  # a NaN equals itself here
        yield f"{path} {old!r:.40} → {new!r:.40}"


def _child_items(value: Any) -> list[tuple[Any, Any]]:
    if isinstance(value, Mapping):
        return list(value.items())
    if isinstance(value, (list, tuple)):
        return list(enumerate(value))
    return []


def _difference(saved: torch.Tensor, here: Any) -> str:
    # Nothing to compare: the object keeps the very tensor that it was given.
    if here is saved:
        return ""
    if not isinstance(here, torch.Tensor):
        return "is gone"
    if here.dtype != saved.dtype:
        return f"{saved.dtype} → {here.dtype}".replace("torch.", "")
    if here.shape != saved.shape:
        return f"{tuple(saved.shape)} → {tuple(here.shape)}"
    if torch.equal(_raw_bytes(saved), _raw_bytes(here)):
        return ""
    return "has other bits"


def _raw_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """Return the bytes: as bytes a NaN equals itself, and -0.0 differs from 0.0."""
    return tensor.detach().cpu().reshape(-1).view(torch.uint8)


def _with_saved_dtypes(saved: Any, found: Any) -> Any:
    """Return `found` with the tensors of `saved` if the dtype differs."""
    if isinstance(saved, torch.Tensor) and isinstance(found, torch.Tensor):
        if saved.dtype == found.dtype:
            return found
        return saved.to(found.device)
    if isinstance(saved, dict) and isinstance(found, dict):
        found.update(
            {
                key: _with_saved_dtypes(value, found[key])
                for key, value in saved.items()
                if key in found
            }
        )
    elif type(saved) is type(found) and type(saved) in (list, tuple) and len(saved) == len(found):
        return type(saved)(map(_with_saved_dtypes, saved, found))
    return found


Weights = Dict[str, torch.Tensor]
PART = "ema"
"""The part of a run that keeps averages; ``ema.NAME`` where it was given several."""
_PREFIXES = ("module.", "_orig_mod.", "ema_model.")
"""Prefixes that wrappers and averaging libraries add to a name."""
_DEPTH = 2


def average_parts(objects: Mapping[str, Any]) -> list[str]:
    """Return the names of the parts of a checkpoint that keep averages."""
    return sorted(name for name in objects if name == PART or name.startswith(f"{PART}."))


def replace_with_averages(
    models: Mapping[str, Weights], states: Mapping[str, Any]
) -> tuple[dict[str, Weights], str]:
    """Return the weights with the averaged ones replacing the trained ones, and a description.

    Args:
        models: The trained weights by model.
        states: The saved state of each part that keeps averages.

    Raises:
        UsageError: Averages are stored in a form without names, or the model they belong to is
            ambiguous.
    """
    found: dict[str, Weights] = {}
    for part, state in states.items():
        model = _model_of(part, state, models)
        found[model] = by_name(state, models[model])
    result: dict[str, Weights] = {}
    texts = []
    complete = True
    for name, weights in models.items():
        averages = found.get(name, {})
        result[name] = {**weights, **averages}
        complete = complete and set(weights) == set(averages)
        texts.append(_replacement_text(name, weights, averages))
    if complete:
        return result, "averaged weights"
    return result, ", ".join(texts)


def _model_of(part: str, state: Any, models: Mapping[str, Weights]) -> str:
    """Return the model whose averages a part keeps: by the part's name, or by its weight names."""
    own = part[len(PART) + 1 :]
    fitting = [
        name for name in ([own] if own in models else models) if by_name(state, models[name])
    ]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        why = f"fits {' and '.join(fitting)}"
    else:
        why = "has no weights under the names of a model"
    raise UsageError(
        f"{part} keeps averaged weights, but {why}: --raw writes the weights that were trained "
        "instead"
    )


def by_name(state: Any, model: Mapping[str, torch.Tensor], depth: int = _DEPTH) -> Weights:
    """Return the tensors in `state` that match weights of `model`, from the best matching mapping.

    Args:
        state: The saved state of a part that keeps averages.
        model: The weights by name.
        depth: How many nested mappings to search.
    """
    if not isinstance(state, Mapping):
        return {}
    found: Weights = {}
    for key, value in state.items():
        name = _unwrapped(key, model)
        own = model.get(name)
        if (
            isinstance(own, torch.Tensor)
            and isinstance(value, torch.Tensor)
            and value.shape == own.shape
        ):
            found[name] = value
    if depth:
        inside = [by_name(value, model, depth - 1) for value in state.values()]
    else:
        inside = []
    # Averages may be nested: the mapping with the most matching weights is the one.
    return max([found, *inside], key=len)


def _unwrapped(key: Any, model: Mapping[str, torch.Tensor]) -> str:
    name = str(key)
    while name not in model and name.startswith(_PREFIXES):
        name = name.partition(".")[2]
    return name


def _replacement_text(name: str, weights: Weights, averaged: Weights) -> str:
    left = [key for key in weights if key not in averaged]
    if not averaged:
        return f"weights of {name} as trained"
    if not left:
        return f"averaged weights of {name}"
    most_left = 4
    more = ""
    if len(left) > most_left:
        more = f" and {len(left) - most_left} more"
    return f"averaged weights of {name} with {', '.join(left[:most_left])}{more} as trained"


def check_fit(name: str, model: torch.nn.Module, saved: Mapping[str, Any], where: str) -> list[str]:
    """Return the weights whose precision the load changes, in words.

    Raises:
        UsageError: The checkpoint does not fit.
    """
    names = bare_names(model)
    here = {
        key: value for key, value in model.state_dict().items() if isinstance(value, torch.Tensor)
    }
    tensors = {key: value for key, value in saved.items() if isinstance(value, torch.Tensor)}
    problems, recast = find_mismatches(tensors, here, names)
    if problems:
        raise UsageError(f"{name} of {where} does not fit this {name}: {'; '.join(problems)}")
    return [f"{name}: {words}" for words in recast]


def check_names(kind: str, saved: Iterable[str], here: Iterable[str]) -> None:
    """Check that a checkpoint has the parts of this run.

    Raises:
        UsageError: It has others.
    """
    if set(saved) != set(here):
        missing = sorted(set(here) - set(saved))
        unexpected = sorted(set(saved) - set(here))
        raise UsageError(
            f"the checkpoint has the {kind} {sorted(saved)}, this run has {sorted(here)} "
            f"(missing {missing}, unexpected {unexpected})"
        )
