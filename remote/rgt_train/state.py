"""The full state of a training run as the files of a checkpoint."""

from __future__ import annotations

import io
import os
from typing import Any, Callable, Dict, List, Mapping, Optional, Protocol

import torch

from rgt_train import rng
from rgt_train.exits import UsageError
from rgt_train.hashing import HashingFile
from rgt_train.progress import Progress
from rgt_train.store import Writer

MODEL_FILE = "model.pt"
TRAINER_FILE = "trainer.pt"


class Stateful(Protocol):
    """Anything that can be saved and restored: an optimizer, a scheduler, a GradScaler, an EMA."""

    def state_dict(self) -> Dict[str, Any]:
        """Return the state."""

    def load_state_dict(self, state_dict: Dict[str, Any]) -> Any:
        """Take the state over."""


class RunState:
    """Collects the state of the objects of a run, and puts it back.

    ``model.pt`` has the weights and buffers, ``trainer.pt`` everything else. Both load with
    ``torch.load(weights_only=True)``.

    Args:
        models: Name → module.
        others: Name → optimizer, scheduler, scaler, EMA, ….
        progress: The counters; restored in place.
        sampler: What `EpochSampler.state` returned for this launch.
        settings: Plain values worth comparing at a resume (learning rate, sizes, …).
    """

    def __init__(
        self,
        models: Mapping[str, torch.nn.Module],
        others: Mapping[str, Stateful],
        progress: Progress,
        sampler: Mapping[str, int],
        settings: Mapping[str, Any],
    ) -> None:
        self._models, self._others, self._progress = dict(models), dict(others), progress
        self._sampler, self._settings = dict(sampler), dict(settings)

    def writers(self) -> Dict[str, Writer]:
        """Return the writers of the files; they read the state at the time they are called."""
        return {
            MODEL_FILE: lambda file: torch.save(self._model_state(), _as_file(file)),
            TRAINER_FILE: lambda file: torch.save(self._trainer_state(), _as_file(file)),
        }

    def frozen_writers(self) -> Dict[str, Writer]:
        """Return writers of the state as it is now, kept in memory until they are dropped."""
        frozen: Dict[str, Writer] = {}
        for name, state in ((MODEL_FILE, self._model_state()), (TRAINER_FILE, self._trainer_state())):
            buffer = io.BytesIO()
            torch.save(state, buffer)
            frozen[name] = _writer_of(buffer.getvalue())
        return frozen

    def estimate(self) -> int:
        """Return about how many bytes a checkpoint will have: two moments a weight are assumed."""
        tensors = [t for model in self._models.values() for t in model.state_dict().values()]
        size = sum(t.numel() * t.element_size() for t in tensors if isinstance(t, torch.Tensor))
        return size * (3 if self._others else 1) + 1024 * len(tensors)

    def restore(self, directory: str) -> "Restored":
        """Load everything but the random state, which the caller puts back last.

        Raises:
            UsageError: The checkpoint is intact but belongs to another model, optimizer or data set.
        """
        weights = load(os.path.join(directory, MODEL_FILE))
        saved = load(os.path.join(directory, TRAINER_FILE))
        if saved["sampler"] != self._sampler:
            raise UsageError(
                f"{directory} was made with other data settings: "
                f"{_changes(saved['sampler'], self._sampler)}; its position would mean nothing here"
            )
        _same_names("models", weights, self._models)
        _same_names("parts", saved["objects"], self._others)
        done: List[str] = []
        for name, model in self._models.items():
            _load_into(name, model.load_state_dict, weights[name], directory)
            done.append(name)
        for name, other in self._others.items():
            _load_into(name, other.load_state_dict, saved["objects"][name], directory)
            done.append(name)
        self._progress.load(saved["progress"])
        kinds = ", ".join(saved["rng"])
        done += [f"data position (epoch {self._progress.epoch + 1}, step {self._progress.done_steps} of it)"]
        done += [f"random state of {kinds}"]
        if self._progress.best is not None:
            done.append(f"best {self._progress.best:.4f} of step {self._progress.best_step}")
        changed = _changes(saved["settings"], self._settings)
        return Restored(done, changed, _changes(saved["environment"], environment()), saved["rng"])

    def _model_state(self) -> Dict[str, Any]:
        return {name: model.state_dict() for name, model in self._models.items()}

    def _trainer_state(self) -> Dict[str, Any]:
        return {
            "progress": self._progress.state(),
            "sampler": self._sampler,
            "settings": self._settings,
            "environment": environment(),
            "objects": {name: other.state_dict() for name, other in self._others.items()},
            "rng": rng.capture(),
        }


class Restored:
    """What `RunState.restore` did.

    Attributes:
        parts: What was restored, in words.
        changed: Settings that differ from those of the checkpoint, in words; empty if none.
        environment: Likewise for versions, device and threads: where it is not empty, bits may differ.
        rng: The random state, still to be put back.
    """

    def __init__(self, parts: List[str], changed: str, environment: str, rng_state: Dict[str, Any]) -> None:
        self.parts, self.changed, self.environment, self.rng = parts, changed, environment, rng_state

    def guarantee(self) -> str:
        """Say in words whether the run goes on with the bits it would have had without the interruption."""
        if self.environment:
            return f"bits may differ from the uninterrupted run: {self.environment}"
        if torch.cuda.is_available():
            return "same torch, device and threads: bit for bit where the CUDA kernels are deterministic"
        return "same torch, device and threads: the run goes on bit for bit"


def environment() -> Dict[str, Any]:
    """Return what decides, beside the state, which bits a step computes."""
    cuda = torch.cuda.is_available()
    return {
        "torch": str(torch.__version__),
        "threads": torch.get_num_threads(),
        "device": torch.cuda.get_device_name() if cuda else "cpu",
    }


def check_loadable(directory: str) -> None:
    """Load a checkpoint back the way a resume will.

    Raises:
        UsageError: Its state holds objects that a safe load refuses; better known now than after a kill.
    """
    for name in (MODEL_FILE, TRAINER_FILE):
        load(os.path.join(directory, name))


def load(path: str) -> Dict[str, Any]:
    """Load a file of a checkpoint to the CPU, never unpickling arbitrary objects.

    Raises:
        UsageError: It holds objects beyond tensors and plain values.
    """
    try:
        content: Dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        reason = str(error).strip().splitlines()
        raise UsageError(f"{path} cannot be loaded safely: {reason[0] if reason else error!r}") from error
    return content


def _load_into(
    name: str, load_state: Callable[[Dict[str, Any]], Any], state: Dict[str, Any], where: str
) -> None:
    try:
        load_state(state)
    except (RuntimeError, ValueError, KeyError) as error:
        raise UsageError(f"{name} of {where} does not fit this {name}: {error}") from error


def _same_names(kind: str, saved: Mapping[str, Any], here: Mapping[str, Any]) -> None:
    if set(saved) != set(here):
        raise UsageError(f"the checkpoint has the {kind} {sorted(saved)}, this run has {sorted(here)}")


def _changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    keys = [key for key in {**old, **new} if old.get(key) != new.get(key)]
    return ", ".join(f"{key} {old.get(key)} → {new.get(key)}" for key in keys)


def _writer_of(data: bytes) -> Writer:
    def write(file: HashingFile) -> None:
        file.write(data)

    return write


def _as_file(file: Optional[HashingFile]) -> Any:
    return file  # torch's stubs ask for IO[bytes]; it uses write and flush only
