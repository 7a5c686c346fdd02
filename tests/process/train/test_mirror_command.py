"""``python -m rgt_train mirror``: the verbs by hand, on a real run, a damaged one and a wiped disk."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from rgt_train import cli, exits

from tests.process.train.harness import metrics
from tests.process.train.test_damage import flip

WORDS = [
    "--task", "diffusion", "--epochs", "1", "--steps-per-epoch", "6", "--save-every", "2", "--set", "points=400",
    "--set", "batch=16", "--set", "sample_steps=2", "--set", "width=8",
]  # fmt: skip


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RGT_TRAIN_BACKGROUND", "0")  # otherwise a save may fall due during another
    assert cli.main([*WORDS, "--out", str(tmp_path / "run")]) == exits.DONE
    return tmp_path / "run"


def mirror(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str]:
    capsys.readouterr()
    code = cli.main(["mirror", *map(str, words)])
    said = capsys.readouterr()
    return code, said.out + said.err


def test_up_and_down_and_the_same_run_goes_on(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    there = tmp_path / "mirror"
    code, said = mirror(capsys, "upload", run, there)
    assert code == 0 and "mirrored step-00000006-a1 → " in said and "read back" in said
    assert "mirrored best-00000006-a1" in said
    code, said = mirror(capsys, "list", there)
    assert code == 0 and "step-00000006-a1  step 6  " in said and "best-00000006-a1" in said
    logged = metrics(run)
    shutil.rmtree(run)
    code, said = mirror(capsys, "download", there, run)
    assert (
        code == 0 and "fetched step-00000006-a1 from the mirror" in said and "metrics.jsonl" in said
    )
    assert metrics(run) == logged and (run / "best").is_dir()
    assert "nothing newer in" in mirror(capsys, "download", there, run)[1]
    assert cli.main([*WORDS, "--epochs", "2", "--out", str(run)]) == exits.DONE
    assert "resume: at step 6 of 12" in capsys.readouterr().out
    assert mirror(capsys, "upload", run, there, "--keep", 1)[0] == 0
    assert [path.name for path in there.glob("step-*")] == ["step-00000012-a2"]


def test_load_says_what_a_launch_would_take(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    there = tmp_path / "mirror"
    mirror(capsys, "upload", run, there)
    flip(next((run / "checkpoints").glob("step-00000006-*")) / "model.safetensors", 0.5)
    code, said = mirror(capsys, "load", there, run)
    assert code == 0 and "good: step 6 in " in said and "every byte verified" in said


def test_a_damaged_checkpoint_is_not_uploaded_and_anothers_mirror_is_refused(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    there = tmp_path / "mirror"
    flip(next((run / "checkpoints").glob("step-00000006-*")) / "model.safetensors", 0.5)
    code, said = mirror(capsys, "upload", run, there)
    assert code == 0 and "passed over: " in said and "mirrored step-00000004-a1" in said
    flip(run / "best" / "model.safetensors", 0.5)
    code, said = mirror(capsys, "upload", run, tmp_path / "second")
    assert code == 0 and f"passed over: {run / 'best'} is damaged: " in said
    assert "mirrored step-00000004-a1" in said, "a damaged best does not keep it here"
    other = tmp_path / "other"
    assert cli.main([*WORDS, "--out", str(other)]) == exits.DONE
    code, said = mirror(capsys, "upload", other, there)
    assert code == exits.USAGE and "belongs to another run" in said


def test_what_is_not_there_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, said = mirror(capsys, "list", tmp_path / "empty")
    assert code == 0 and "no checkpoints in" in said
    (tmp_path / "run").mkdir()
    code, said = mirror(capsys, "upload", tmp_path / "run", tmp_path / "empty")
    assert code == exits.FAILED and "has no checkpoint yet" in said
    assert mirror(capsys, "list", "relative/place")[0] == exits.USAGE
