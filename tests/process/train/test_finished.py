"""A finished run that is launched again trains nothing, and what stands behind the loop has the trained weights."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from rgt_train import Options, Run, UsageError

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


def script_with_epoch_ends(
    out: Path, kind: str, save_every: int, *, finish: bool = False, max_steps: int | None = None
) -> dict[str, Any]:
    """Train two epochs with something at the end of each; returns what the code after the loop sees.

    With `finish` the first epoch's end is the end.
    """
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    own = {"ends": 0}
    run = Run(
        out, model=model, optimizer=optimizer, scheduler=scheduler, extra=own, samples=SAMPLES, batch_size=8, epochs=2,
        max_steps=max_steps, options=Options(save_every=save_every, background=False),
    )  # fmt: skip
    with run:
        for _ in run.epochs():
            for _indices in run.batches():
                loss = model(torch.ones(1, 4)).square().mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                run.step(loss)
            if kind == "weights":
                with torch.no_grad():
                    model.weight.mul_(0.5)
            elif kind == "schedule":
                scheduler.step()
            elif kind == "rate":
                optimizer.param_groups[0]["lr"] *= 0.5
            elif kind == "own":
                own["ends"] += 1
            if finish:
                run.finish()
                break
    return {
        "weights": model.weight.tolist(),
        "schedule": scheduler.state_dict(),
        "rate": optimizer.param_groups[0]["lr"],
        "own": own,
        "mean": run.epoch_loss,
        "seed": run.sample_seed(0),
    }


@pytest.mark.parametrize("save_every", [1, 100])
@pytest.mark.parametrize("kind", ["nothing", "weights", "schedule", "rate", "own"])
def test_what_the_last_epoch_ends_with_is_there_again(
    tmp_path: Path, kind: str, save_every: int
) -> None:
    """The last step may have been saved before the end of its epoch was through."""
    ended = script_with_epoch_ends(tmp_path, kind, save_every)
    assert script_with_epoch_ends(tmp_path, kind, save_every) == ended
    saved = len(list((tmp_path / "checkpoints").glob("step-00000006-*")))
    assert saved == (2 if save_every == 1 and kind != "nothing" else 1)


@pytest.mark.parametrize(("finish", "max_steps", "last"), [(True, None, 3), (False, 5, 5)])
@pytest.mark.parametrize("kind", ["weights", "schedule", "rate", "own"])
def test_an_early_end_is_the_same_whenever_its_last_step_was_saved(
    tmp_path: Path, kind: str, finish: bool, max_steps: int | None, last: int
) -> None:
    """Schedules and own state are those of the last step: a kill before the result is written does its end again."""
    again = []
    for save_every in (1, 100):
        out = tmp_path / str(save_every)
        ended = script_with_epoch_ends(out, kind, save_every, finish=finish, max_steps=max_steps)
        again.append(script_with_epoch_ends(out, kind, save_every, max_steps=max_steps))
        assert again[-1]["weights"] == ended["weights"]
        assert list((out / "checkpoints").glob(f"step-{last:08d}-*"))
    assert again[0] == again[1]
