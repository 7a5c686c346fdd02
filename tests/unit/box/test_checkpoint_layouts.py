"""One recogniser over what some eighty trainers leave, and over twenty kinds of files that are no checkpoints."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from rgt_box import checkpoint_search
from rgt_wire import cut_saves
from rgt_wire.checkpoint_layouts import Checkpoint, find_checkpoints

from tests.unit.box.checkpoint_files import Expected, Layout, layouts, write

MISSED = {"SpeechBrain", "CleanRL", "EasyLM"}
"""Of the held-out set, what is known to be missed: names that only their project uses."""


def found_in(root: Path) -> list[Checkpoint]:
    paths = []
    for folder, _, names in os.walk(root):
        paths += [os.path.relpath(os.path.join(folder, name), root) for name in names]
    return find_checkpoints(
        [path for path in paths if not (root / path).is_symlink()],
        checkpoint_search.ContentReader(str(root)),
    )


def is_recognised(layout: Layout, root: Path) -> bool:
    write(root, layout.files)
    found = found_in(root)
    whole = {
        Expected(one.path, one.step, one.epoch, one.best) for one in found if not one.unfinished
    }
    return whole == set(layout.expect) and {one.path for one in found if one.unfinished} == set(
        layout.writing
    )


@pytest.mark.parametrize("layout", layouts(), ids=lambda layout: layout.name)
def test_a_layout_is_recognised(layout: Layout, tmp_path: Path) -> None:
    assert is_recognised(layout, tmp_path)


@pytest.mark.parametrize("layout", layouts("held_out.toml"), ids=lambda layout: layout.name)
def test_a_layout_that_nobody_had_in_mind_is_recognised(layout: Layout, tmp_path: Path) -> None:
    assert is_recognised(layout, tmp_path) is (layout.name not in MISSED)


@pytest.mark.parametrize("layout", layouts("third.toml"), ids=lambda layout: layout.name)
def test_a_layout_of_the_third_set_is_recognised(layout: Layout, tmp_path: Path) -> None:
    assert is_recognised(layout, tmp_path)


def test_a_cut_save_of_accelerate_is_known_by_the_others_of_its_series() -> None:
    weights = [
        f"step_{step}/{name}" for step in (5, 6, 7) for name in ("model.safetensors", "o.pt")
    ]
    last = ["step_5/random_states_0.pkl", "step_6/random_states_0.pkl"]
    extra = ["step_5/custom_checkpoint_0.pkl", "best/model.safetensors"]

    def unfinished(*files: str) -> dict[str, str]:
        return {one.path: one.unfinished for one in find_checkpoints(files) if one.unfinished}

    assert unfinished(*weights, *extra) == {}
    reason = "its random_states_0.pkl, which is written after the weights, is missing"
    assert unfinished(*weights, *last, *extra) == {"step_7": reason}
    only = weights[:4] + last + extra
    reason = "its custom_checkpoint_0.pkl, which is written after the weights, is missing"
    assert unfinished(*only) == {"step_6": reason}
    # What an older script did not register is not missing.
    assert unfinished(*only, "step_6/custom_checkpoint_0.pkl", "step_4/model.safetensors") == {
        "step_4": "its random_states_0.pkl, which is written after the weights, is missing"
    }


def test_a_trainers_save_that_was_killed_is_known_by_the_others_of_its_series() -> None:
    def unfinished(*without: int) -> dict[str, str]:
        files = [f"out/checkpoint-{step}/model.safetensors" for step in (100, 200, 300)]
        files += [
            f"out/checkpoint-{step}/trainer_state.json"
            for step in (100, 200, 300)
            if step not in without
        ]
        return {one.path: one.unfinished for one in find_checkpoints(files) if one.unfinished}

    reason = "its trainer_state.json, which is written after the weights, is missing"
    assert unfinished(300) == {"out/checkpoint-300": reason}
    assert unfinished(200) == {"out/checkpoint-200": reason}
    # Nothing says that such a file is missing where others lack it, too.
    assert unfinished(200, 300) == {}
    assert unfinished() == unfinished(100, 200, 300) == {}


@pytest.mark.parametrize(
    ("files", "unfinished"),
    [
        (
            ["ckpt/10/model/a/b/c/d/e/w.pt", "ckpt/20/model/w.pt", "ckpt/latest.txt@text:10"],
            "ckpt/20",
        ),
        (
            ["run/m-step=99.ckpt", "run/m-step=199.ckpt", "run/m-step=199-unfinished"],
            "run/m-step=199.ckpt",
        ),
        (["a/step_1/w.pt", "a/step_1/optimizer.pt", "a/step_2/w.pt"], "a/step_2"),
        (["a/step_1/w.pt", "a/step_2/w.pt", "a/step_2/optimizer.pt"], ""),
        (["tf/ckpt-5.index", "tf/ckpt-5.meta"], "tf/ckpt-5.index"),
        (["tf/model.ckpt-5.index"], "tf/model.ckpt-5.index"),
        (["step_5/m_rank0.pt", "step_5/m_rank1.pt", "step_5/m_rank3.pt"], "step_5"),
        (["c/10/model/w.pt", "c/20/model/w.pt", "c/30/model/w.pt", "c/latest.txt@text:20"], "c/30"),
        (["step_5/w.pt", "step_12/w.pt", "step_20/w.pt", "latest.txt@text:12"], "step_20"),
        (["iter_2/w.pt", "iter_4/w.pt", "latest_checkpointed_iteration.txt@text:3"], "iter_4"),
        (
            ["x/m_world_size_2_rank_0.pt", "x/latest.pt", "step_5/m_world_size_2_rank_1.pt"],
            "step_5",
        ),
    ],
)
def test_a_cut_save_is_known_by_trackers_markers_and_the_others(
    tmp_path: Path, files: list[str], unfinished: str
) -> None:
    write(tmp_path, files)
    assert [one.path for one in found_in(tmp_path) if one.unfinished] == [unfinished] * bool(
        unfinished
    )


@pytest.mark.parametrize(
    "files",
    [
        ["faiss.index", "model.safetensors"],
        ["faiss.index", "_METADATA", "d/0a"],
        ["ckpt.index", "pytorch_model.bin"],
        ["w.pt", "eval_rank0.json", "eval_rank3.json"],
        ["w.pt", "eval_rank0.pt", "eval_rank3.pt"],
        ["w.pt", "metrics_rank0.pkl", "metrics_rank3.pkl"],
        ["w.pt", "trainer_rank0.json", "trainer_rank3.json"],
        ["w.pt", "lora_rank0.pt", "lora_rank6.pt"],
        # The first rank of each machine.
        ["w.pt", "rng_rank0.pt", "rng_rank8.pt", "rng_rank16.pt"],
    ],
)
def test_files_of_another_purpose_do_not_make_a_checkpoint_incomplete(files: list[str]) -> None:
    found = find_checkpoints([f"checkpoint-100/{name}" for name in ("README.md", *files)])
    assert [(one.path, one.unfinished) for one in found] == [("checkpoint-100", "")]


@pytest.mark.parametrize("text", ["12", "1.7.2", "v1.7", "1.7.2-rc.1", "1.7.5000"])
def test_an_epoch_or_a_version_is_not_the_step_of_a_tracker(tmp_path: Path, text: str) -> None:
    write(tmp_path, ["step_5000/w.pt", "step_6000/w.pt", f"latest.txt@text:{text}"])
    assert [one.unfinished for one in found_in(tmp_path)] == ["", ""]


@pytest.mark.parametrize("reverse", [False, True])
def test_the_newest_epoch_of_a_series_is_found_in_any_order_of_the_files(reverse: bool) -> None:
    files = [f"epoch_{epoch}/model.safetensors" for epoch in (8, 9, 10)]
    complete = sorted([*files, "epoch_10/optimizer.pt"], reverse=reverse)
    assert [one.unfinished for one in find_checkpoints(complete)] == ["", "", ""]
    cut = sorted([*files, "epoch_8/optimizer.pt", "epoch_9/optimizer.pt"], reverse=reverse)
    assert [one.path for one in find_checkpoints(cut) if one.unfinished] == ["epoch_10"]


def test_the_files_of_each_checkpoint_are_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty checkpoints of 400 ranks took 7 s."""
    counted: list[str] = []
    count_kinds = cut_saves.count_kinds

    def note_call(one: Checkpoint) -> dict[str, int]:
        counted.append(one.path)
        return count_kinds(one)

    monkeypatch.setattr(cut_saves, "count_kinds", note_call)
    steps = range(1, 6)
    names = [f"zero_pp_rank_{rank}_mp_rank_00_optim_states.pt" for rank in range(9)]
    files = [f"global_step{step}/{name}" for step in steps for name in names]
    assert not any(one.unfinished for one in find_checkpoints(files))
    assert len(counted) <= len(steps)
    files.append("global_step6/mp_rank_00_model_states.pt")
    assert find_checkpoints(files)[-1].unfinished
    counted.clear()
    files.append("global_step0/mp_rank_00_model_states.pt")
    assert not any(one.unfinished for one in find_checkpoints(files))
    assert len(counted) <= len(steps) + 2


def test_a_neutral_name_beside_checkpoints_counts_where_it_says_how_far_it_was_trained(
    tmp_path: Path,
) -> None:
    """rl_games keeps its best policy as `Ant.pth`; a pretrained model has an epoch of -1, or none."""
    files = ["nn/Ant.pth@torch:epoch=300", "nn/last_Ant_ep_100_rew_2.5.pth@torch:epoch=100"]
    others = ["nn/resnet.pth@torch", "nn/yolo11n.pt@torch:epoch=-1", "sam.pth@torch:epoch=12"]
    write(tmp_path, files + others)
    assert {one.path: one.epoch for one in found_in(tmp_path)} == {
        "nn/Ant.pth": 300,
        "nn/last_Ant_ep_100_rew_2.5.pth": 100,
    }


def test_checkpoints_in_the_directories_of_trackers_count(tmp_path: Path) -> None:
    run = "mlruns/428311925214/0f3c2f2f0b5d4c0aa1bfb0a7a1d9b7d1"
    files = [
        f"{run}/metrics/loss",
        f"{run}/artifacts/model/MLmodel@text:flavors",
        f"{run}/params/lr",
    ]
    files.append(f"{run}/artifacts/model/data/model.pth@torch")
    files.append("wandb/offline-run-20240501_101010-x7k2p9qw/files/model_200.pt@torch:step=200")
    files.append("wandb/latest-run@link:offline-run-20240501_101010-x7k2p9qw")
    write(tmp_path, files)
    found = checkpoint_search.CheckpointSearch(str(tmp_path)).poll_checkpoints()
    assert {(os.path.relpath(one.path, tmp_path), one.step) for one in found} == {
        (f"{run}/artifacts/model", None),
        ("wandb/offline-run-20240501_101010-x7k2p9qw/files/model_200.pt", 200),
    }


def test_below_a_data_sets_name_only_what_is_called_a_checkpoint_counts(tmp_path: Path) -> None:
    fold = "nnUNet_results/Dataset004_Hippocampus/nnUNetTrainer__3d_fullres/fold_0"
    files = [f"{fold}/checkpoint_best.pth@torch:current_epoch=58", f"{fold}/x.pth@torch:epoch=3"]
    write(
        tmp_path,
        [*files, "dataset/0001.pt@torch", "dataset/embeds.ckpt@torch", "dataset/best.pt@torch"],
    )
    assert [(one.path, one.epoch) for one in found_in(tmp_path)] == [
        (f"{fold}/checkpoint_best.pth", 58)
    ]


def test_the_content_adds_the_step_to_an_epoch_in_the_name(tmp_path: Path) -> None:
    write(tmp_path, ["epoch_009.ckpt@torch:global_step=500", "epoch_019.ckpt@torch:step=7,epoch=3"])
    assert [(one.step, one.epoch) for one in found_in(tmp_path)] == [(500, 9), (None, 19)]


def test_chinese_names_are_read(tmp_path: Path) -> None:
    write(
        tmp_path,
        ["输出/第10轮.pth", "输出/最佳模型.pth", "输出/模型_2000步.pth", "数据集/特征.pth"],
    )
    assert {(one.path, one.step, one.epoch, one.best) for one in found_in(tmp_path)} == {
        ("输出/第10轮.pth", None, 10, False),
        ("输出/最佳模型.pth", None, None, True),
        ("输出/模型_2000步.pth", 2000, None, False),
    }


def test_files_of_one_checkpoint_belong_together(tmp_path: Path) -> None:
    files = [
        "d20/model_5.pt",
        "d20/meta_5.json",
        "d20/optim_5_rank0.pt",
        "d20/optim_5_rank1.pt",
        "d20/model_6.pt",
    ]
    write(tmp_path, files)
    first, second = found_in(tmp_path)
    assert (set(first.files), set(second.files)) == (set(files[:4]), {files[4]})
    assert first.group == second.group == "d#/model_#.pt"


@pytest.mark.parametrize(
    ("folders", "tracked", "unfinished"),
    [
        # rgt's own trainer: the pointer ends in the number of the attempt, not in that of the step.
        (["step-00000040-a1", "step-00002000-a1"], "step-00002000-a1\n", []),
        (["step-00000040-a2", "step-00000080-a2.1"], "step-00000040-a2\n", ["step-00000080-a2.1"]),
        (["global_step10", "global_step20"], "global_step10", ["global_step20"]),
        (["global_step10", "global_step20"], "20", []),
        (["global_step10", "global_step20"], "release", []),
    ],
)
def test_a_trackers_step_is_read_from_the_name_in_it(
    tmp_path: Path, folders: list[str], tracked: str, unfinished: list[str]
) -> None:
    write(tmp_path, [f"run/checkpoints/{folder}/model.safetensors" for folder in folders])
    (tmp_path / "run" / "checkpoints" / "latest").write_text(tracked)
    found = found_in(tmp_path)
    assert [one.path.rpartition("/")[2] for one in found] == folders
    assert [
        one.path.rpartition("/")[2] for one in found if "latest" in one.unfinished
    ] == unfinished


def test_the_real_torch_says_its_step(tmp_path: Path) -> None:
    """The outside witness: files and directories that torch itself has written."""
    torch = pytest.importorskip("torch")
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 4)).sum().backward()
    optimizer.step()
    state = {
        "epoch": 3,
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "global_step": 1234,
    }
    (tmp_path / "outputs").mkdir()
    torch.save(state, tmp_path / "outputs" / "latest.pt")
    torch.save(state, tmp_path / "outputs" / "best.pt", _use_new_zipfile_serialization=False)
    torch.save({"x": torch.zeros(4), "y": [1]}, tmp_path / "cora.pt")
    data = (tmp_path / "outputs" / "latest.pt").read_bytes()
    (tmp_path / "outputs" / "ckpt_2000.pt").write_bytes(data[: len(data) // 2])
    from torch.distributed.checkpoint.state_dict_saver import save

    save({"model": model.state_dict()}, checkpoint_id=tmp_path / "step-40", no_dist=True)
    found = {one.path: (one.step, bool(one.unfinished)) for one in found_in(tmp_path)}
    assert found == {
        "outputs/latest.pt": (1234, False),
        "outputs/best.pt": (1234, False),
        "outputs/ckpt_2000.pt": (2000, True),
        "step-40": (40, False),
    }


@pytest.mark.parametrize("text", ["[" * 100_000, '{"global_step": ' + "[" * 100_000])
def test_a_file_of_brackets_beside_a_checkpoint_ends_no_search(tmp_path: Path, text: str) -> None:
    """One such file in a results directory would keep the whole box from being listed and pulled."""
    (tmp_path / "checkpoint-5").mkdir()
    (tmp_path / "checkpoint-5" / "trainer_state.json").write_text(text)
    reader = checkpoint_search.ContentReader(str(tmp_path))
    assert reader("checkpoint-5/trainer_state.json") == reader("checkpoint-5/absent.json")
