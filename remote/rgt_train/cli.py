"""The command line. Torch is imported as late as possible, so that a misspelt option is reported at once."""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from typing import Sequence

from rgt_train import exits
from rgt_train.config import SHIPPED, TASKS, Field, merge_config
from rgt_train.exits import RanksError, StopRequest
from rgt_train.tracking.report import check_names, print_line

_FLAGS = {
    "task": f"what to train: {', '.join(TASKS)}, or module:Class of your own",
    "epochs": "epochs in all",
    "seed": "seed of data, order, weights and dropout",
    "log_every": "steps between log lines",
    "save_every": "steps between checkpoints; 0 (default) chooses from the measured cost of a save",
    "steps_per_epoch": "optimizer steps of an epoch; 0 takes all samples",
    "max_unsaved": (
        "steps that may be unsaved while the disk refuses; 0 (default) is two save intervals"
    ),
    "hold_limit": "seconds to wait for the disk before exit code 74",
    "device": "auto, cpu, cuda or cuda:N",
    "parallel": (
        "how the ranks of a torchrun launch share the model: none, ddp, fsdp, shard_grad_op or hsdp"
    ),
    "threads": "CPU threads of torch",
}


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of ``python -m rgt_train``."""
    result = argparse.ArgumentParser(
        prog="python -m rgt_train",
        description="Trains, survives being killed at any moment, resumes when launched again the "
        "same way.",
        epilog="`python -m rgt_train export OUT --to F.safetensors` writes the weights of a run; "
        "`python -m rgt_train mirror list|upload|download|load` handles a second copy by hand. "
        "Exit codes: 0 done, 75 asked to stop (launch again), 74 nothing can be saved, 2 not "
        "started.",
        allow_abbrev=False,
    )
    result.add_argument(
        "--config",
        metavar="FILE",
        action="append",
        default=[],
        help=f"YAML or JSON file, or {' or '.join(SHIPPED)}; may be repeated, later ones win; "
        "options beat them; the variable DEV_MODE=true adds dev as the last one",
    )
    result.add_argument("--out", metavar="DIR", help="the run directory; created if missing")
    result.add_argument(
        "--smoke", metavar="N", type=int, help="run N steps on the CPU, write nothing, exit"
    )
    result.add_argument(
        "--overfit-one-batch",
        metavar="N",
        nargs="?",
        const=100,
        type=int,
        help="train N steps (100) on the first batch alone, write nothing, and exit with 1 unless "
        "the loss falls",
    )
    result.add_argument(
        "--estimate-batch",
        metavar="BYTES",
        nargs="?",
        const="",
        help="find the largest batch that fits by trial, and exit; BYTES such as 8GB (needed on a "
        "CPU), otherwise the free memory of the GPU",
    )
    result.add_argument(
        "--set",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="any key of the config; may be repeated",
    )
    for name, text in _FLAGS.items():
        result.add_argument(f"--{name.replace('_', '-')}", metavar=name.upper(), help=text)
    return result


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code.

    Args:
        argv: The arguments without the program; None takes those of the process.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] == ["export"]:
        from rgt_train import export

        return int(export.main(words[1:]))
    if words[:1] == ["mirror"]:
        from rgt_train import mirror_command

        return mirror_command.main(words[1:])
    options = build_parser().parse_args(words)
    stop = StopRequest()
    try:
        return _run_training(options, stop)
    except exits.UsageError as error:
        exits.NotStarted.of(error)  # prints it
        return exits.USAGE
    except exits.TrainingStop as error:
        return int(error.code or 0)
    except RanksError as error:
        print(f"rgt_train: {error}", file=sys.stderr, flush=True)
        return exits.FAILED
    except KeyboardInterrupt:
        print_line("interrupted again: leaving without a save")
        return 130
    except OSError as error:
        traceback.print_exc()
        print_line(f"rgt_train: {type(error).__name__}: {error}")
        return exits.FAILED
    finally:
        stop.close()


def _run_training(options: argparse.Namespace, stop: StopRequest) -> int:
    given: dict[str, str | None] = {name: getattr(options, name) for name in _FLAGS}
    files = list(options.config)
    if is_dev_mode(os.environ.get("DEV_MODE", "")) and "dev" not in files:
        files.append("dev")
    config = merge_config(files, given, _fields_of_own_task, _parse_pairs(options.set))
    check_names(config.names("loggers"))
    if options.smoke is not None and options.smoke < 1:
        raise exits.UsageError(f"--smoke {options.smoke}: at least 1 step")
    if options.overfit_one_batch is not None and options.overfit_one_batch < 2:
        raise exits.UsageError(f"--overfit-one-batch {options.overfit_one_batch}: at least 2 steps")
    trials = (options.smoke, options.estimate_batch, options.overfit_one_batch)
    if trials == (None, None, None) and not options.out:
        raise exits.UsageError("--out DIR is missing (or try it first with --smoke 2)")
    _import_torch()
    from rgt_train import loop

    if options.overfit_one_batch is not None:
        from rgt_train import overfit

        return overfit.check_task(config, options.overfit_one_batch)
    if options.estimate_batch is not None:
        return loop.estimate_batch(config, options.estimate_batch)
    if options.smoke is not None:
        return loop.run_smoke_test(config, options.smoke)
    return loop.train(config, os.path.abspath(options.out), stop)


def is_dev_mode(text: str) -> bool:
    """Return whether the variable ``DEV_MODE`` of this `text` asks for the config ``dev``.

    Raises:
        UsageError: It is neither yes nor no: a typing error must not start the full training.
    """
    word = text.strip().lower()
    if word in ("true", "1", "yes", "on"):
        return True
    if word not in ("", "false", "0", "no", "off"):
        raise exits.UsageError(f"DEV_MODE is {text!r}: set it to true or false")
    return False


def _fields_of_own_task(name: str) -> Sequence[Field]:
    _import_torch()
    from rgt_train import tasks

    return tasks.own_fields(name)


def _import_torch() -> None:
    try:
        import torch  # noqa: F401
    except Exception as error:
        raise exits.UsageError(
            f"torch is not importable by {sys.executable}: {type(error).__name__}: {error}. "
            "Install torch >= 2.4 there, or launch with the Python that has it"
        ) from error


def _parse_pairs(texts: list[str]) -> dict[str, str]:
    result: dict[str, str] = {}
    for text in texts:
        key, sign, value = text.partition("=")
        if not sign:
            raise exits.UsageError(f"--set {text}: expected KEY=VALUE")
        result[key.strip()] = value.strip()
    return result
