"""One recogniser over what some eighty trainers leave, and over twenty kinds of files that are no checkpoints."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from rgt_box.checkpoint_search import ContentReader
from rgt_wire.checkpoint_layouts import Checkpoint, find_checkpoints

from tests.unit.box.checkpoint_files import Expected, Layout, layouts, write

MISSED = {"SpeechBrain", "CleanRL", "EasyLM"}
"""Of the held-out set, what is known to be missed: names that only their project uses."""


def found_in(root: Path) -> list[Checkpoint]:
    paths = []
    for folder, _, names in os.walk(root):
        paths += [os.path.relpath(os.path.join(folder, name), root) for name in names]
    return find_checkpoints(
        [path for path in paths if not (root / path).is_symlink()], ContentReader(str(root))
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


def test_a_cut_save_of_accelerate_is_known_by_the_others_of_its_series() -> None:
    weights = [
        f"step_{step}/{name}" for step in (5, 6, 7) for name in ("model.safetensors", "o.pt")
    ]
    last = ["step_5/random_states_0.pkl", "step_6/random_states_0.pkl"]
    extra = ["step_5/custom_checkpoint_0.pkl", "best/model.safetensors"]

    def unfinished(*files: str) -> dict[str, str]:
        return {one.path: one.unfinished for one in find_checkpoints(files) if one.unfinished}

    assert unfinished(*weights, *extra) == {}
    reason = "its random_states_0.pkl, which is written last, is missing"
    assert unfinished(*weights, *last, *extra) == {"step_7": reason}
    only = weights[:4] + last + extra
    reason = "its custom_checkpoint_0.pkl, which is written last, is missing"
    assert unfinished(*only) == {"step_6": reason}
    # What an older script did not register is not missing.
    assert unfinished(*only, "step_6/custom_checkpoint_0.pkl", "step_4/model.safetensors") == {
        "step_4": "its random_states_0.pkl, which is written last, is missing"
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
