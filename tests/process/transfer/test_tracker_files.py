"""What `rgt verify` says of files that name the newest checkpoint, as trainers write them.

The layouts are those of the projects' sources (November 2026): DeepSpeed's engine.py, Megatron-LM's
checkpointing.py, verl's ray_trainer.py, nanotron's trainer.py, mmengine's checkpoint_hook.py,
fvcore's checkpoint.py, TensorFlow's checkpoint_management.py, NeMo's model_checkpoint.py and
danijar/elements' checkpoint.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rgt_tui.transfer import verify_directory
from tests.unit.box.checkpoint_files import torch_file, write


def deepspeed(step: int, ranks: int = 2) -> list[str]:
    files = [f"global_step{step}/mp_rank_00_model_states.pt"]
    name = "bf16_zero_pp_rank_{}_mp_rank_00_optim_states.pt"
    return files + [f"global_step{step}/{name.format(rank)}" for rank in range(ranks)]


def megatron(step: int, ranks: int = 2) -> list[str]:
    return [f"iter_{step:07d}/mp_rank_{rank:02d}/model_optim_rng.pt" for rank in range(ranks)]


def verl(step: int, ranks: int = 2) -> list[str]:
    folder = f"global_step_{step}"
    files = [f"{folder}/actor/model_world_size_2_rank_{rank}.pt" for rank in range(ranks)]
    return [*files, f"{folder}/data.pt"]


def nanotron(step: int, *, whole: bool = True) -> list[str]:
    attention = "model/model/decoder/0/pp_block/attn"
    weights = f"{attention}/model_weight_pp-rank-0-of-1_tp-rank-0-of-1.safetensors"
    files = [f"ckpt/{step}/config.yaml", f"ckpt/{step}/{weights}"]
    name = "optimizer/optimizer_pp-0-of-1_dp-0-of-1_tp-0-of-1_exp-0-of-1.pt"
    return files + ([f"ckpt/{step}/{name}"] if whole else [])


def in_trainer(*files: str) -> list[str]:
    beside = ["model.safetensors", 'trainer_state.json@text:{"global_step": 500}']
    return [f"checkpoint-500/{name}" for name in (*beside, "latest@text:global_step500", *files)]


MEGATRON = "latest_checkpointed_iteration.txt@text:"
TENSORFLOW = (
    'checkpoint@text:model_checkpoint_path: "ckpt-{0}"\nall_model_checkpoint_paths: "ckpt-{0}"'
)
NEMO = "checkpoints/m--val_loss=1.0-step={}"
DREAMER = "ckpt/20250101T000000F000000-000000012000"
GOOD = {
    "DeepSpeed": [*deepspeed(200), *deepspeed(400), "latest@text:global_step400"],
    "DeepSpeed, Trainer": in_trainer(*deepspeed(500)),
    "Megatron": [*megatron(200), *megatron(400), MEGATRON + "400"],
    "Megatron, converted": ["release/mp_rank_00/model_optim_rng.pt", MEGATRON + "release"],
    "Megatron, more ranks": [*megatron(200, 4), *megatron(400), MEGATRON + "400"],
    "verl": [*verl(20), MEGATRON + "20"],
    "nanotron": [*nanotron(10), *nanotron(20), "ckpt/latest.txt@text:20"],
    "mmengine": ["x/epoch_2.pth", "x/last_checkpoint@text:/root/work_dirs/x/epoch_2.pth"],
    "detectron2": ["model_final.pth", "last_checkpoint@text:model_final.pth"],
    "DINOv2": ["model_9.rank_0.pth", "last_checkpoint.rank_0@text:model_9.rank_0.pth"],
    "TensorFlow": ["ckpt-5.index", "ckpt-5.data-00000-of-00001", TENSORFLOW.format(5)],
    "DreamerV3": [f"{DREAMER}/agent.pkl", f"{DREAMER}/done", f"ckpt/latest@text:{DREAMER[5:]}"],
    "NeMo": [NEMO.format("99.ckpt"), NEMO.format("99-last.ckpt")],
    "Lightning": ["epoch=1-step=10.ckpt", "last.ckpt@link:epoch=1-step=10.ckpt"],
    # Of other programs, or of a person.
    "a date": ["runs/latest@text:2024-05-01", "runs/model.pt"],
    "a version": ["model.pt", "latest@text:v1.2.3"],
    "an epoch": ["step_5000/w.pt", "step_6000/w.pt", "latest.txt@text:12"],
    "a version, with steps": ["step_5/w.pt", "step_6/w.pt", "latest.txt@text:1.7.2"],
    "a sentence": ["model_5.pt", "latest.txt@text:all fine so far"],
    "a log": ["ckpt_5.pt", "latest@text:train.log"],
    # To save space.
    "stripped epochs": ["epoch_10/model.pt", "epoch_10/optimizer.pt", "epoch_9/model.pt"],
    "stripped": ["checkpoint-1/model.pt", "checkpoint-2/model.pt", "checkpoint-2/optimizer.pt"],
}
BAD = {
    "DeepSpeed without optimizer": (
        [*deepspeed(200), *deepspeed(400, 0), "latest@text:global_step200"],
        "global_step400",
    ),
    "DeepSpeed without optimizer, named": (
        [*deepspeed(200), *deepspeed(400, 0), "latest@text:global_step400"],
        "global_step400/bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt",
    ),
    "DeepSpeed without a rank": (
        [*deepspeed(200), *deepspeed(400, 1), "latest@text:global_step200"],
        "global_step400",
    ),
    "DeepSpeed with a gap": (
        [path for path in deepspeed(400, 3) if "rank_1" not in path],
        "global_step400",
    ),
    "DeepSpeed, nothing there": ([*deepspeed(200), "latest@text:global_step400"], "latest"),
    "DeepSpeed, Trainer": (in_trainer(), "checkpoint-500/latest"),
    "Megatron, nothing there": ([*megatron(200), MEGATRON + "400"], MEGATRON[:-6]),
    "Megatron without a rank": (
        [*megatron(200), *megatron(400, 1), MEGATRON + "200"],
        "iter_0000400",
    ),
    "verl, nothing there": ([*verl(20), MEGATRON + "40"], MEGATRON[:-6]),
    "verl without a rank": ([*verl(20, 1), MEGATRON + "20"], "global_step_20"),
    "nanotron, nothing there": ([*nanotron(10), "ckpt/latest.txt@text:20"], "ckpt/latest.txt"),
    "nanotron without optimizer": (
        [*nanotron(10), *nanotron(20, whole=False), "ckpt/latest.txt@text:10"],
        "ckpt/20",
    ),
    "nanotron, all gone": (["checkpoints/latest.txt@text:20", "x.pt"], "checkpoints/latest.txt"),
    "mmengine": (
        ["x/epoch_1.pth", "x/last_checkpoint@text:/root/work_dirs/x/epoch_2.pth"],
        "x/last_checkpoint",
    ),
    "detectron2": (
        ["model_0000499.pth", "last_checkpoint@text:model_final.pth"],
        "last_checkpoint",
    ),
    "DINOv2": (
        ["model_4.rank_0.pth", "last_checkpoint.rank_0@text:model_9.rank_0.pth"],
        "last_checkpoint.rank_0",
    ),
    "TensorFlow": (
        ["ckpt-5.index", "ckpt-5.data-00000-of-00001", TENSORFLOW.format(10)],
        "checkpoint",
    ),
    "TensorFlow without data": (["ckpt-5.index", TENSORFLOW.format(5)], "ckpt-5.index"),
    "DreamerV3": (
        [f"{DREAMER}/agent.pkl", f"{DREAMER}/done", f"ckpt/latest@text:{DREAMER[5:-4]}9000"],
        "ckpt/latest",
    ),
    "NeMo": (
        [NEMO.format("99.ckpt"), NEMO.format("199.ckpt"), NEMO.format("199-unfinished")],
        NEMO.format("199.ckpt"),
    ),
    "NeMo 2": (
        [NEMO.format("99/weights/x.pt"), NEMO.format("99-unfinished")],
        NEMO.format("99"),
    ),
    "Lightning": (["epoch=1-step=10.ckpt", "last.ckpt@link:epoch=2-step=20.ckpt"], "last.ckpt"),
    "transformers without a part": (
        ["checkpoint-5/model-00001-of-00002.safetensors", "checkpoint-5/config.json"],
        "checkpoint-5",
    ),
    "nanochat without optimizer": (
        ["m/model_001000.pt", "m/optim_001000_rank0.pt", "m/model_002000.pt"],
        "m/optim_002000_rank0.pt",
    ),
}


@pytest.mark.parametrize("files", GOOD.values(), ids=GOOD)
def test_a_tracker_that_names_a_complete_checkpoint_passes(
    tmp_path: Path, files: list[str]
) -> None:
    write(tmp_path, files)
    assert verify_directory(tmp_path, with_torch=False).errors == ()


@pytest.mark.parametrize(("files", "path"), BAD.values(), ids=BAD)
def test_a_tracker_of_nothing_or_a_save_that_it_does_not_name_fails(
    tmp_path: Path, files: list[str], path: str
) -> None:
    write(tmp_path, files)
    result = verify_directory(tmp_path, with_torch=False)
    assert path in [one.path for one in result.errors]
    folder = path.partition("/")[0]
    if folder.startswith(("global_step", "iter_")):
        assert folder not in [one.path for one in result.checkpoints]


def test_a_newer_save_that_lacks_nothing_is_noted_and_does_not_count(tmp_path: Path) -> None:
    """A run that was continued from an older checkpoint leaves newer ones, too."""
    write(tmp_path, [*deepspeed(200), *deepspeed(400), "latest@text:global_step200"])
    result = verify_directory(tmp_path, with_torch=False)
    assert result.errors == ()
    notes = {one.path: one.reason for one in result.unproven}
    assert notes["global_step400"] == "no complete checkpoint: latest does not name it yet"
    assert [one.path for one in result.checkpoints] == ["global_step200"]


def test_a_checkpoint_elsewhere_is_noted(tmp_path: Path) -> None:
    write(tmp_path, ["x/epoch_1.pth", "x/last_checkpoint@text:/mnt/bucket/y/epoch_2.pth"])
    result = verify_directory(tmp_path, with_torch=False)
    assert result.errors == ()
    assert (
        "which is not in this copy"
        in {one.path: one.reason for one in result.unproven}["x/last_checkpoint"]
    )


@pytest.mark.parametrize(("files", "ok"), [(2, True), (1, False), (0, False)])
def test_deepspeeds_file_says_how_many_ranks_saved(tmp_path: Path, files: int, ok: bool) -> None:
    """The only checkpoint of a run has no other to be compared with; keys as DeepSpeed 0.19 saves them."""
    write(tmp_path, [*deepspeed(400, files), "latest@text:global_step400"])
    state: dict[str, Any] = {
        "module": {},
        "optimizer": None,
        "param_shapes": [{}],
        "dp_world_size": 2,
    }
    model = tmp_path / "global_step400" / "mp_rank_00_model_states.pt"
    model.write_bytes(torch_file({**state, "ds_version": "0.19.8"}))
    result = verify_directory(tmp_path, with_torch=False)
    assert result.ok is ok
    assert [one.path for one in result.checkpoints] == ["global_step400"] * ok
