"""What a run cannot be made of is said in one line, with what to give instead."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from rgt_train import UsageError, callbacks
from rgt_train.checkpoint import RunState, mirror_places
from rgt_train.loop import device_of
from rgt_train.ranks import choose, sharded_state


def launched(patch: pytest.MonkeyPatch, world: int | None) -> None:
    """Be rank 0 of a launch by torchrun; None: by nothing."""
    for name in (
        "RANK",
        "WORLD_SIZE",
        "LOCAL_RANK",
        "LOCAL_WORLD_SIZE",
        "SLURM_PROCID",
        "SLURM_NTASKS",
    ):
        patch.delenv(name, raising=False)
    if world is not None:
        patch.setenv("RANK", "0")
        patch.setenv("WORLD_SIZE", str(world))
        patch.setenv("MASTER_PORT", "29500")


@pytest.mark.parametrize(
    ("kind", "world", "told"),
    [
        ("none", 2, r"2 ranks were launched, but parallel is none: give --parallel"),
        ("fsdp", None, r"parallel is fsdp: launch it with torchrun --nproc-per-node N"),
        ("hsdp", 3, r"hsdp needs an even number of ranks, not 3"),
    ],
)
def test_ranks_that_do_not_fit(
    monkeypatch: pytest.MonkeyPatch, kind: str, world: int | None, told: str
) -> None:
    launched(monkeypatch, world)
    with pytest.raises(UsageError, match=told):
        choose.join_ranks(kind)


def test_one_process_trains_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for world in (None, 1):
        launched(monkeypatch, world)
        assert choose.join_ranks("none").world == 1


def test_a_device_that_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UsageError, match=r"unknown device 'gpu0': use auto, cpu, cuda or cuda:N"):
        device_of("gpu0")
    with pytest.raises(
        UsageError, match=r"device cuda:1 was asked for, but torch .* sees no CUDA device"
    ):
        device_of("cuda:1")
    assert device_of("auto") == torch.device("cpu")


def test_fsdp1_is_refused_by_its_name() -> None:
    class FullyShardedDataParallel(torch.nn.Module):
        pass

    model = torch.nn.Sequential(FullyShardedDataParallel())
    nothing = cast(Any, None)
    with pytest.raises(
        UsageError, match=r"\(FSDP1\) is not supported: shard with torch's fully_shard"
    ):
        choose.persister(
            {"model": model}, nothing, nothing, nothing, nothing, nothing, nothing, background=False
        )


def parts(models: dict[str, Any], others: dict[str, Any]) -> RunState:
    return cast(RunState, SimpleNamespace(models=models, others=others, optimizers=set(others)))


@pytest.mark.parametrize(
    ("model", "optimizer", "told"),
    [
        ("net", "net", r"cannot call both a model and an optimizer 'net'"),
        ("a/b", "opt", r"cannot have a part called 'a/b'"),
        ("objects", "opt", r"cannot have a part called 'objects'"),
        ("net", "rank3", r"cannot have a part called 'rank3'"),
    ],
)
def test_names_of_sharded_parts_are_kept_apart(model: str, optimizer: str, told: str) -> None:
    sharded_state.check_part_names(parts({"net": 0}, {"opt": 0}))
    with pytest.raises(UsageError, match=told):
        sharded_state.check_part_names(parts({model: 0}, {optimizer: 0}))


def test_an_optimizer_is_made_after_the_model_was_sharded() -> None:
    model, before = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    state = parts({"net": model}, {"opt": torch.optim.SGD(model.parameters(), lr=0.1)})
    assert sharded_state.models_of_optimizers(state)["opt"][0] == "net"
    state = parts({"net": model}, {"opt": torch.optim.SGD(before.parameters(), lr=0.1)})
    with pytest.raises(
        UsageError, match=r"opt has parameters that are of no model.*after fully_shard"
    ):
        sharded_state.models_of_optimizers(state)
    with pytest.raises(
        UsageError, match=r"opt is a dict: a sharded model needs an optimizer of torch\.optim"
    ):
        sharded_state.models_of_optimizers(parts({"net": model}, {"opt": {}}))


def test_a_mirror_that_is_no_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(
        UsageError, match=r"mirror runs/a: give an absolute path, or a URL such as s3://"
    ):
        mirror_places.FolderPlace("runs/a")
    with pytest.raises(UsageError, match=r"mirror .*/file is not a directory"):
        mirror_places.FolderPlace(str(tmp_path / "file"))
    with pytest.raises(FileNotFoundError):  # a volume that is not mounted is not made up
        mirror_places.FolderPlace(str(tmp_path / "not/mounted"))

    def without(missing: str) -> Callable[[str], Any]:
        def found(name: str) -> Any:
            if name.startswith(missing):
                raise ModuleNotFoundError(f"No module named {name!r}")
            return import_module(name)

        return found

    monkeypatch.setattr(mirror_places, "import_module", without("fsspec"))
    with pytest.raises(
        UsageError, match=r"mirror s3://bucket/run needs fsspec: pip install fsspec, and s3fs"
    ):
        mirror_places.ObjectStorePlace("s3://bucket/run")


def test_a_trainer_without_our_callback() -> None:
    trainer = SimpleNamespace(callbacks=[])
    with pytest.raises(
        UsageError, match=r"SimpleNamespace has none of RgtCallback, RgtLightningCallback"
    ):
        callbacks.resume(trainer)
    with pytest.raises(UsageError, match=r"among its callbacks"):
        callbacks.resume(SimpleNamespace(callback_handler=trainer))
