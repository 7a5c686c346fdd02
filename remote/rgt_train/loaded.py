"""A checkpoint read back: every byte compared with its checksum, nothing unpickled."""

from __future__ import annotations

import json
import warnings
from typing import Any, Dict, Mapping

import torch

from rgt_train import layout, manifest, tree
from rgt_train.collected import STATE_FILE
from rgt_train.durable import StrPath
from rgt_train.exits import UsageError


class Loaded:
    """A verified checkpoint whose tensors are still in its files.

    Attributes:
        directory: Where it is.
        manifest: Its manifest.
        document: What `RunState.collect` put beside the tensors, not yet decoded.

    Args:
        directory: The checkpoint.

    Raises:
        Damaged: A byte is not what was written.
        UsageError: It is intact but not one of ours.
    """

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self._verified = manifest.open_verified(directory)
        self.manifest: Mapping[str, Any] = self._verified.body
        views = self._verified.views
        self._tensors: Dict[str, Dict[str, torch.Tensor]] = {}
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message=".*not writable.*")  # they are only read
                for name in views:
                    if name.endswith(".safetensors"):
                        self._tensors[name] = layout.read(views[name])
            self.document: Dict[str, Any] = json.loads(bytes(views[STATE_FILE]))
        except (KeyError, ValueError) as error:
            raise UsageError(f"{directory} is intact but cannot be understood: {error!r}") from error

    def tensors(self, file: str) -> Dict[str, torch.Tensor]:
        """Return name → tensor of one file; they are the file's own bytes: read them only, before `close`."""
        return self._tensors.get(file, {})

    def value(self, encoded: Any, file: str, *, own: bool = False) -> Any:
        """Return a part of the document with its tensors in place.

        Args:
            encoded: The part.
            file: Where its tensors are.
            own: Whether the tensors must outlive this object (they are copied then).
        """
        found = self.tensors(file)
        return tree.decode(encoded, lambda name: found[name].clone() if own else found[name])

    def close(self) -> None:
        """Let go of the files."""
        self._tensors.clear()
        self._verified.release()


def weights(directory: StrPath) -> Dict[str, torch.Tensor]:
    """Return the weights and buffers in the checkpoint `directory`, every byte compared with its checksum.

    Raises:
        Damaged: A byte is not what was written.
        Foreign: It is of another format.
    """
    from rgt_train.collected import MODEL_FILE

    loaded = Loaded(str(directory))
    result = {name: tensor.clone() for name, tensor in loaded.tensors(MODEL_FILE).items()}
    loaded.close()
    return result
