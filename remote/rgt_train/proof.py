"""Proves that a relaunch continues bit for bit: another process repeats steps from a checkpoint.

The first checkpoint that a launch writes is linked into a directory of its own, and the command of
this process is launched there a second time. It resumes from that checkpoint as any relaunch does,
makes the same steps, writes down losses and weights, and ends. So everything counts that a relaunch
would do: state that the run was not given starts again, and other losses or weights show it.

It proves those steps and no others: state that acts later (a schedule, patience) is not seen. It
needs memory for a second copy, in main memory or on the GPU, and a script that may run twice
at the same time up to its `Run`. One process is proved, not several ranks, nor a notebook, which
has no command.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from typing import Any, Callable, Mapping

import torch

from rgt_train.checkpoint.diskio import remove_path, replace_file
from rgt_train.checkpoint.store import Checkpoint
from rgt_train.exits import UsageError

VARIABLE = "RGT_TRAIN_REPLAY"
"""Environment variable of the second process: run directory, its substitute, steps."""
_ANSWER = "replay.json"


def digest_weights(models: Mapping[str, torch.nn.Module]) -> str:
    """Return a checksum of all weights and buffers."""
    digest = hashlib.blake2b(digest_size=16)
    for name in sorted(models):
        for key, value in models[name].state_dict().items():
            if isinstance(value, torch.Tensor):
                flat = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
                digest.update(f"{name}/{key}".encode())
                # Not by `numpy()`: torch does not require NumPy.
                digest.update(ctypes.string_at(flat.data_ptr(), flat.numel()))
    return digest.hexdigest()


class StepReplay:
    """The second process: repeats steps in a substitute for the run directory, then ends.

    Args:
        facts: The content of `VARIABLE`.

    Attributes:
        out: The run directory.
        directory: The substitute.
    """

    def __init__(self, facts: Mapping[str, Any]) -> None:
        self.out = str(facts["out"])
        self.directory = str(facts["directory"])
        self._left = int(facts["steps"])
        self._losses: dict[str, str] = {}

    @classmethod
    def of_process(cls) -> "StepReplay" | None:
        """Return the replay that this process is for; None in a training."""
        text = os.environ.get(VARIABLE)
        if not text:
            return None
        return cls(json.loads(text))

    def after_step(
        self, step: int, loss: float | None, models: Mapping[str, torch.nn.Module]
    ) -> None:
        """Write down a step; end the process after the last one."""
        self._losses[str(step)] = repr(loss)
        self._left -= 1
        if self._left == 0:
            answer = {"losses": self._losses, "weights": digest_weights(models)}
            replace_file(os.path.join(self.directory, _ANSWER), json.dumps(answer).encode())
            # At once: no handler at the exit may save or log in the name of the run.
            os._exit(0)


class StepProof:
    """The training: writes down its steps after a checkpoint, and has them repeated.

    Args:
        out: The run directory.
        steps: How many steps; 0 proves nothing.
        models: Name → module.
        say: Receives the result.
        result: That of an earlier launch.

    Attributes:
        result: ``steps``, ``step`` of the checkpoint, and ``difference`` in words, for the
            checkpoints; empty without a proof.
    """

    def __init__(
        self,
        out: str,
        steps: int,
        models: Mapping[str, torch.nn.Module],
        say: Callable[[str], None],
        result: Mapping[str, Any],
    ) -> None:
        self.result = dict(result)
        self._out = out
        self._steps = steps
        self._models = models
        self._say = say
        self._active = steps > 0
        self._begin = 0
        self._copy = ""
        self._losses: dict[str, str] = {}
        self._weights = ""
        self._child: "subprocess.Popen[bytes] | None" = None

    def begin_save(self, step: int) -> None:
        """Choose the checkpoint of `step` unless an earlier one is on the disk."""
        if self._active and not self._copy:
            self._begin = step
            self._losses = {}
            self._weights = ""

    def after_step(self, step: int, loss: float | None) -> None:
        """Write down a step after the chosen checkpoint; look for the result."""
        if not self._active:
            return
        if self._child is not None:
            if self._child.poll() is not None:
                self._judge_replay()
        elif self._begin and step <= self._begin + self._steps:
            self._losses[str(step)] = repr(loss)
            if step == self._begin + self._steps:
                self._weights = digest_weights(self._models)
                self._launch_replay()

    def keep_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Keep the chosen checkpoint."""
        if not self._active or self._copy or checkpoint.step != self._begin:
            return
        # On the file system of the run, for hard links, and under a name that the next launch
        # removes.
        self._copy = tempfile.mkdtemp(prefix=".tmp-replay-", dir=self._out)
        place = os.path.join(self._copy, "checkpoints", os.path.basename(checkpoint.path))
        try:
            # Linked: the retention may delete the checkpoint, and a copy would need its space once
            # more.
            shutil.copytree(checkpoint.path, place, copy_function=os.link)
        except (OSError, shutil.Error):  # a file system without hard links
            shutil.rmtree(place, ignore_errors=True)
            shutil.copytree(checkpoint.path, place)
        self._launch_replay()

    def wait_result(self, wait: Callable[[float], bool]) -> None:
        """Wait for the result at the end of the run, unless `wait` returns True: then give it up."""
        while self._child is not None and self._child.poll() is None:
            if wait(0.1):
                self._child.kill()
                self._child.wait()
                self._child = None
        if self._child is not None:
            self._judge_replay()
        if self._active:
            self._end_proof(
                {}, f"nothing is proved: there were no {self._steps} steps after a checkpoint"
            )

    def _launch_replay(self) -> None:
        """Launch the replay as soon as checkpoint and steps are there."""
        if not self._copy or not self._weights:
            return
        command = command_of_process()
        if not command:
            self._end_proof(
                {}, "nothing is proved: this process has no command that could be repeated"
            )
            return
        facts = {"out": self._out, "directory": self._copy, "steps": self._steps}
        environment = {
            **os.environ,
            VARIABLE: json.dumps(facts),
            # What this process has added to its path, its copy needs to find as well.
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        }
        with open(os.path.join(self._copy, "replay.log"), "wb") as log:
            self._child = subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def _judge_replay(self) -> None:
        """Compare the steps of the replay with those of the run."""
        if self._child is not None:
            code = self._child.returncode
        else:
            code = None
        self._child = None
        try:
            with open(os.path.join(self._copy, _ANSWER), encoding="utf-8") as file:
                answer = json.load(file)
        except (OSError, ValueError):
            with open(os.path.join(self._copy, "replay.log"), errors="replace") as file:
                last = file.read().strip().rpartition("\n")[2]
            self._end_proof(
                {}, f"nothing is proved: the replay ended with exit code {code}: {last[:200]}"
            )
            return
        difference = ""
        if answer["weights"] != self._weights:
            difference = f"other weights after step {self._begin + self._steps}"
        for step, loss in self._losses.items():
            if answer["losses"].get(step) != loss:
                difference = (
                    f"step {step} has another loss, {answer['losses'].get(step)} for {loss}"
                )
                break
        told = (
            f"proved over {self._steps} steps: a relaunch from step {self._begin} makes the "
            "same weights"
        )
        if difference:
            told = (
                f"not proved: a relaunch from step {self._begin} makes other weights: {difference}"
            )
        self._end_proof({"steps": self._steps, "step": self._begin, "difference": difference}, told)

    def _end_proof(self, result: Mapping[str, Any], told: str) -> None:
        self._active = False
        self.result = dict(result)
        if self._copy:
            remove_path(self._copy)
        self._say(told)


def command_of_process() -> list[str]:
    """Return the command that launches this process again; empty if it has none."""
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    file = getattr(main, "__file__", None)
    if spec is not None:
        return [
            sys.executable,
            "-m",
            spec.name.rpartition(".__main__")[0] or spec.name,
            *sys.argv[1:],
        ]
    if file is None or not os.path.exists(file):
        return []
    return [sys.executable, os.path.abspath(file), *sys.argv[1:]]


def refuse_training(out: str) -> None:
    """Check that a run in `out` may train in this process.

    Raises:
        UsageError: The process repeats steps of another run.
    """
    replay = StepReplay.of_process()
    if replay is not None and replay.out != out:
        raise UsageError(f"the replay of {replay.out} came to an unfinished run in {out}")
