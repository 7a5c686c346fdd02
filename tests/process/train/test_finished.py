"""A finished run that is launched again trains nothing, and what stands behind the loop has the trained weights."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from rgt_train import Run, UsageError

SAMPLES = 24


def script(out: Path, *, seed: int, epochs: int = 2) -> tuple[torch.Tensor, torch.Tensor, int]:
    """A person's script; returns the weights behind its loop, the next random number, and the steps it made."""
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    data, made = torch.arange(SAMPLES * 4.0).reshape(SAMPLES, 4) / 100, 0
    run = Run(out, model=model, optimizer=optimizer, samples=SAMPLES, batch_size=8, epochs=epochs)
    with run:
        for _ in run.epochs():
            for indices in run.batches():
                loss = model(data[indices]).square().mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                run.step(loss.item())
                made += 1
    run.close()
    return model.state_dict()["0.weight"].clone(), torch.rand(1), made


def everything(out: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}


def test_it_is_what_it_has_ended_as(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    weights, number, made = script(tmp_path / "run", seed=1)
    assert made == 6
    before = everything(tmp_path / "run")
    again, drawn, made = script(tmp_path / "run", seed=2)
    assert made == 0
    assert torch.equal(again, weights)
    assert torch.equal(drawn, number), "the random state is that of the end, too"
    assert everything(tmp_path / "run") == before
    assert "already finished: step 6" in capsys.readouterr().out
    fewer, _, made = script(tmp_path / "run", seed=3, epochs=1)
    assert (torch.equal(fewer, weights), made) == (True, 0)


@pytest.mark.parametrize("what", ["gone", "damaged", "older ones alone"])
def test_without_its_last_checkpoint_it_is_not_taken_for_trained(tmp_path: Path, what: str) -> None:
    out = tmp_path / "run"
    script(out, seed=1)
    last = sorted((out / "checkpoints").glob("step-00000006-*"))[-1]
    if what == "gone":
        shutil.rmtree(out / "checkpoints")
    elif what == "damaged":
        path = last / "model.safetensors"
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        path.write_bytes(data)
    else:
        last.rename(last.with_name("step-00000005-a1"))
    before = everything(out)
    with pytest.raises(
        UsageError, match=r"is finished, but what it ended with cannot be loaded: .*step.0*6"
    ):
        script(out, seed=2)
    assert everything(out) == before
    (out / "result.json").unlink()
    if what == "damaged":
        with pytest.raises(UsageError, match=r"no checkpoint in .* is good, and none was deleted"):
            script(out, seed=2)
        (out / "checkpoints").rename(out / "away")  # as that message says
    _, _, made = script(out, seed=2)
    assert made == (0 if what == "older ones alone" else 6), "as the message says"
