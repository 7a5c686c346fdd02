"""The weights alone: which checkpoint, which weights, in a file that the real safetensors package reads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from rgt_train import Run, cli, exits
from rgt_train.checkpoint import read_tensors, safetensors

from tests.process.train import frameworks
from tests.process.train.harness import Zygote

VALUES = {"epochs": 2, "steps_per_epoch": 6, "save_every": 4}


@pytest.fixture(scope="module")
def finished(trainers: Zygote, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("exported") / "run"
    trainer = trainers.launch_raw(
        [
            "--task",
            "diffusion",
            "--out",
            str(out),
            *words({**VALUES, "width": 8, "layers": 1, "points": 1000}),
        ]
    )
    assert trainer.wait() == 0, trainer.text()
    return out


def words(values: dict[str, object]) -> list[str]:
    return [word for key, value in values.items() for word in ("--set", f"{key}={value}")]


def tensors(path: Path) -> dict[str, torch.Tensor]:
    return {
        name: tensor.clone()
        for name, tensor in read_tensors(memoryview(bytearray(path.read_bytes()))).items()
    }


def export(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str]:
    code = cli.main(["export", *map(str, arguments)])
    said = capsys.readouterr()
    return code, said.out + said.err


def test_the_averaged_and_the_raw_weights(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, said = export(capsys, finished, "--to", tmp_path / "ema.safetensors")
    assert code == 0
    assert "averaged weights) of step 12" in said and "the run had finished" in said
    assert export(capsys, finished, "--to", tmp_path / "raw.safetensors", "--raw")[0] == 0
    averaged, raw = tensors(tmp_path / "ema.safetensors"), tensors(tmp_path / "raw.safetensors")
    assert set(averaged) == set(raw)
    newest = max((finished / "checkpoints").glob("step-00000012*"))
    kept = tensors(newest / "model.safetensors")
    assert all(torch.equal(raw[name], kept[name]) for name in kept)
    assert any(not torch.equal(raw[name], averaged[name]) for name in kept)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["ema.safetensors", "raw.safetensors"]


def test_the_best(finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    step = json.loads((finished / "best.json").read_text())["step"]
    code, said = export(capsys, finished, "--to", tmp_path / "b.safetensors", "--best")
    assert code == 0
    assert f"of step {step}" in said and "the best checkpoint" in said


def test_a_damaged_newest_is_passed_over_and_stays(
    trainers: Zygote, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    assert trainers.launch(out, {"epochs": 1, "steps_per_epoch": 9, "save_every": 4}).wait() == 0
    older, newest = sorted((out / "checkpoints").glob("step-*"))[-2:]
    path = newest / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[-5] ^= 1
    path.write_bytes(data)
    code, said = export(capsys, out, "--to", tmp_path / "m.safetensors")
    assert code == 0
    assert "passed over" in said and f"of step {int(older.name[5:13])} " in said
    assert path.read_bytes() == bytes(data)  # nothing in the run is touched
    assert export(capsys, out, "--to", tmp_path / "m.safetensors", "--best")[0] == 0


def test_what_cannot_be_exported(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    for arguments, code, words_said in (
        ((tmp_path / "nowhere", "--to", "x"), exits.USAGE, "is not a run directory"),
        ((tmp_path / "empty", "--to", "x"), exits.FAILED, "has no checkpoint yet"),
        ((tmp_path / "empty", "--to", "x", "--best"), exits.FAILED, "has no best checkpoint yet"),
        (
            (finished, "--to", tmp_path / "no" / "folder.safetensors"),
            exits.FAILED,
            "No such file or directory",
        ),
    ):
        got, said = export(capsys, *arguments)
        assert (got, words_said in said) == (code, True), said


def test_a_file_that_is_there_survives_a_failure(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    path.write_bytes(b"good")
    with pytest.raises(ValueError, match="complex128, which the format does not know"):
        safetensors.write_tensors(path, {"a": torch.zeros(2, dtype=torch.complex128)}, {})
    assert path.read_bytes() == b"good"
    assert [p.name for p in tmp_path.iterdir()] == ["w.safetensors"]


REAL = """
import sys, json
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from rgt_train.checkpoint import safetensors
made = {
    "wide": torch.arange(6, dtype=torch.float64).view(2, 3), "half": torch.randn(5).bfloat16(),
    "odd": torch.tensor([1, 2, 3], dtype=torch.uint8),
    "none": torch.empty(0, 4), "scalar": torch.tensor(2.5), "flag": torch.tensor([True, False]),
    "turned": torch.arange(6.0).view(2, 3).t(),
    "\\u00fcber": torch.tensor([7], dtype=torch.int16),
}
print(safetensors.write_tensors("m.safetensors", made, {"step": "3"}))
read = load_file("m.safetensors")
assert set(read) == set(made)
for name, tensor in made.items():
    assert read[name].dtype == tensor.dtype and torch.equal(read[name], tensor), name
with safe_open("m.safetensors", "pt") as file:
    assert file.metadata() == {"step": "3"}
assert set(load_file(sys.argv[1])) and load_file(sys.argv[1])["enter.weight"].shape == (8, 2)
"""


def test_the_real_package_reads_it(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    export(capsys, finished, "--to", tmp_path / "run.safetensors")
    frameworks.run(REAL, tmp_path, str(tmp_path / "run.safetensors"))


class Tokenizing(torch.nn.Linear):
    """A module with extra state that is no tensor."""

    def get_extra_state(self) -> dict[str, object]:
        return {"vocabulary": ["a", "b"], "table": torch.ones(2)}

    def set_extra_state(self, state: object) -> None:
        """Nothing to do."""


@pytest.mark.parametrize("averaged", [False, True])
def test_extra_state_that_is_no_tensor_is_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], averaged: bool
) -> None:
    model = torch.nn.Sequential(Tokenizing(2, 2), torch.nn.Linear(2, 1))
    ema = torch.optim.swa_utils.AveragedModel(model) if averaged else None
    with Run(tmp_path / "run", model=model, ema=ema, samples=4, batch_size=4, epochs=1) as run:
        for _ in run.epochs():
            for _ in run.batches():
                run.step(0.5)
    code, said = export(capsys, tmp_path / "run", "--to", tmp_path / "w.safetensors")
    assert code == 0, said
    assert "left out, being no tensors: 0._extra_state" in said
    assert ("averaged weights)" in said) is averaged
    assert set(tensors(tmp_path / "w.safetensors")) == {"0.weight", "0.bias", "1.weight", "1.bias"}
