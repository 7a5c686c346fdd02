"""``python -m rgt_train export``: the weights of a run as one safetensors file."""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import Any, Mapping, Sequence

from rgt_train import exits
from rgt_train.checkpoint import diskio
from rgt_train.checkpoint.manifest import CheckpointDamaged
from rgt_train.tracking.report import print_line


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command."""
    result = argparse.ArgumentParser(
        prog="python -m rgt_train export",
        description="Writes the weights of the newest checkpoint of a run, every byte verified, as "
        "a safetensors file.",
        epilog="Exit codes: 0 written, 1 there is no good checkpoint or it cannot be written, 2 "
        "not understood.",
        allow_abbrev=False,
    )
    result.add_argument("out", metavar="OUT", help="the run directory")
    result.add_argument(
        "--to",
        metavar="F.safetensors",
        required=True,
        help="the file; replaced when it is complete",
    )
    result.add_argument(
        "--best", action="store_true", help="the best checkpoint instead of the newest"
    )
    result.add_argument(
        "--raw",
        action="store_true",
        help="the weights that were trained, where the run keeps averaged ones",
    )
    return result


def main(argv: Sequence[str]) -> int:
    """Run the command and return its exit code."""
    options = build_parser().parse_args(argv)
    try:
        line = export_weights(options.out, options.to, best=options.best, raw=options.raw)
    except exits.UsageError as error:
        print(f"rgt_train: {error}", file=sys.stderr, flush=True)
        return exits.USAGE
    except (CheckpointDamaged, OSError, ValueError) as error:
        print(f"rgt_train: not exported: {error}", file=sys.stderr, flush=True)
        return exits.FAILED
    print_line(line)
    return exits.DONE


def export_weights(out: str, to: str, *, best: bool = False, raw: bool = False) -> str:
    """Write the weights of the run in `out` to the file `to`; return a summary.

    A damaged checkpoint is skipped for the previous one, with a line that reports it; nothing in
    `out` is changed, so this may be done while the run goes on.

    Raises:
        CheckpointDamaged: No checkpoint is complete.
        UsageError: `out` is not a run directory, or its checkpoints cannot be understood.
        Unreadable: The newest checkpoint cannot be read; an older one must not replace it.
        OSError: The file could not be written; an existing one is unchanged.
    """
    # Here, because `--help` and a wrong command line need no torch.
    from rgt_train.checkpoint import safetensors

    if not os.path.isdir(out):
        raise exits.UsageError(f"{out} is not a run directory")
    path, loaded = _open_newest(out, best)
    try:
        tensors, kind, others = _select_weights(loaded, raw)
        step = int(loaded.manifest["step"])
        about = {
            "format": "pt",
            "step": str(step),
            "run": os.path.basename(os.path.abspath(out)),
            "weights": kind,
        }
        # Before the checkpoint is closed: the tensors are its mapped files.
        count, size = safetensors.write_tensors(to, tensors, about)
    finally:
        loaded.close()
    if _is_finished(out, step):
        state = "the run had finished"
    else:
        state = "the run had not finished then"
    which = "newest"
    if best:
        which = "best"
    left = ""
    if others:
        left = f"; left out, being no tensors: {', '.join(others)}"
    return (
        f"exported {count} tensor{'' if count == 1 else 's'} ({size:,} bytes, {kind}) of step "
        f"{step} to {to}: the {which} checkpoint {path}; {state}{left}"
    )


def _open_newest(out: str, best: bool) -> tuple[str, Any]:
    from rgt_train.checkpoint.safetensors import LoadedCheckpoint
    from rgt_train.checkpoint.store import CheckpointStore

    store = CheckpointStore(out, 0)
    if best:
        places = [store.best]
    else:
        # The best one last: it may be far older than the newest.
        places = [path for _, path in reversed(store.list_paths())] + [store.best]
    complaints: list[str] = []
    for path in places:
        if not diskio.is_dir(path):
            continue
        try:
            return path, LoadedCheckpoint(path)
        except CheckpointDamaged as damage:
            complaints.append(f"{path} is damaged: {damage}")
            print_line(f"passed over: {complaints[-1]}")
    if best:
        what = "best checkpoint"
    else:
        what = "checkpoint"
    raise CheckpointDamaged("; ".join(complaints) or f"{out} has no {what} yet")


def _select_weights(loaded: Any, raw: bool) -> tuple[dict[str, Any], str, list[str]]:
    """Return name → tensor, the kind of weights, and the names of values that are not tensors.

    A module's extra state may be anything.
    """
    from rgt_train.checkpoint import matching
    from rgt_train.checkpoint.safetensors import MODEL_FILE, TRAINER_FILE

    document: Mapping[str, Any] = loaded.document
    if raw:
        names = []
    else:
        names = matching.average_parts(document["objects"])
    if document.get("layout") == "sharded":
        from rgt_train.ranks import dcp_reader

        found = dcp_reader.read_weights(loaded.directory, document)
        states = dcp_reader.read_objects(loaded.directory, document, names)
    else:
        found = {
            name: loaded.decode_part(encoded, MODEL_FILE)
            for name, encoded in document["models"].items()
        }
        states = {
            name: loaded.decode_part(document["objects"][name], TRAINER_FILE) for name in names
        }
    models = {}
    for name, state in found.items():
        models[name] = {key: value for key, value in state.items() if _is_tensor(value)}
    others = sorted(set(_flatten_models(found)) - set(_flatten_models(models)))
    if not states:
        return _flatten_models(models), "weights", others
    averaged, kind = matching.replace_with_averages(models, states)
    return _flatten_models(averaged), kind, others


def _is_tensor(value: Any) -> bool:
    import torch

    return isinstance(value, torch.Tensor)


def _flatten_models(models: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the tensors of all models; those of a single one keep their names."""
    if len(models) == 1:
        return dict(next(iter(models.values())))
    return {
        f"{model}.{key}": tensor for model, state in models.items() for key, tensor in state.items()
    }


def _is_finished(out: str, step: int) -> bool:
    from rgt_train.checkpoint.resume import result_path

    try:
        with open(result_path(out), encoding="utf-8") as file:
            return int(json.load(file)["step"]) >= step
    except (OSError, ValueError, KeyError, TypeError):
        return False
