"""A `DataLoader` that is made once, before the first epoch: each epoch has its own samples in its own order."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from rgt_train import Run
from rgt_train.data.position import DataPosition, Progress
from rgt_train.data.sampler import EpochSampler, SampleIndex

from tests.process.train.harness import Zygote, losses
from tests.process.train.test_own_loop import ACCUMULATED

SAMPLES, BATCH, EPOCHS = 44, 4, 4
STEPS = 11
SCRIPT = f"""
import json, os, random, signal
import torch
from torch.utils.data import DataLoader, Dataset
from rgt_train import Options, Run

class Numbers(Dataset):
    def __len__(self): return {SAMPLES}
    def __getitem__(self, index): return int(index), run.sample_seed(index), random.random()

torch.manual_seed(1); random.seed(1)
model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
run = Run("run", model=model, optimizer=optimizer, samples={SAMPLES}, batch_size={BATCH}, epochs={EPOCHS}, seed=3,
          options=Options(save_every=1, log_every=0))
data = DATA
loader = DataLoader(data, batch_sampler=run.batches(), LOADER)
with run:
    for epoch in run.epochs():
        batches = 0
        for indices, seeds, drawn in EACH:
            batches += 1
            loss = model(indices[:, None] / {SAMPLES}).square().mean()
            optimizer.zero_grad(); loss.backward(); optimizer.step()
            with open("seen.jsonl", "a") as seen:
                line = [epoch, run.step_now + 1, indices.tolist(), seeds.tolist(), drawn.tolist(), loss.item()]
                seen.write(json.dumps(line) + "\\n")
            if run.step_now + 1 == int(os.environ.get("SIGNAL_AT", 0)):
                os.kill(os.getpid(), signal.SIGTERM)
            run.step(loss.item())
        assert loader.batch_sampler.batches_left == batches
        assert len(loader) == {STEPS}, "what a mean over the epoch divides by"
"""
LOADERS = {
    "alone": "num_workers=0",
    "workers": "num_workers=2",
    "persistent": "num_workers=2, persistent_workers=True",
    "ahead": "num_workers=2, persistent_workers=True, prefetch_factor=4",
}


def script(
    place: Path, loader: str, data: str = "run.seeded(Numbers())", each: str = "loader"
) -> Path:
    place.mkdir()
    text = SCRIPT.replace("LOADER", loader).replace("DATA", data).replace("EACH", each)
    (place / "train.py").write_text(text)
    return place / "train.py"


def seen(place: Path) -> list[list[Any]]:
    return [json.loads(line) for line in (place / "seen.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def uninterrupted(trainers: Zygote, tmp_path_factory: pytest.TempPathFactory) -> list[list[Any]]:
    """What a run without loader processes sees, whose loader is made anew for each epoch."""
    place = tmp_path_factory.mktemp("uninterrupted") / "plain"
    path = script(
        place, LOADERS["alone"], each="(loader := DataLoader(data, batch_sampler=run.batches()))"
    )
    trainer = trainers.launch_script(path)
    assert trainer.wait() == 0, trainer.text()
    return seen(place)


def test_each_epoch_has_all_samples_in_an_order_of_its_own(uninterrupted: list[list[Any]]) -> None:
    orders = [[i for line in uninterrupted if line[0] == e for i in line[2]] for e in range(EPOCHS)]
    assert [sorted(order) for order in orders] == [list(range(SAMPLES))] * EPOCHS
    assert len({tuple(order) for order in orders}) == EPOCHS


@pytest.mark.parametrize("name", LOADERS)
def test_a_loader_made_once_goes_on_where_it_was(
    trainers: Zygote, tmp_path: Path, uninterrupted: list[list[Any]], name: str
) -> None:
    """Stopped twice in the middle of an epoch, and once at the end of one: the samples of a run that never was."""
    path = script(tmp_path / name, LOADERS[name])
    for at in (STEPS + 5, 2 * STEPS, 3 * STEPS + 1):
        trainer = trainers.launch_script(path, env={"SIGNAL_AT": str(at)})
        assert trainer.wait() == 75, trainer.text()
    trainer = trainers.launch_script(path)
    assert trainer.wait() == 0, trainer.text()
    assert seen(tmp_path / name) == uninterrupted


def test_workers_that_outlive_an_epoch_know_the_seeds_of_the_next_one(
    trainers: Zygote, tmp_path: Path, uninterrupted: list[list[Any]]
) -> None:
    """A data set that is not wrapped, and asks for the seed of a sample in a process that knows the run of then."""
    path = script(tmp_path / "own", LOADERS["persistent"], data="Numbers()")
    trainer = trainers.launch_script(path, env={"SIGNAL_AT": str(STEPS + 5)})
    assert trainer.wait() == 75, trainer.text()
    trainer = trainers.launch_script(path)
    assert trainer.wait() == 0, trainer.text()
    assert [line[:4] for line in seen(tmp_path / "own")] == [line[:4] for line in uninterrupted]


def test_a_batch_that_is_only_looked_at_changes_no_bit(trainers: Zygote, tmp_path: Path) -> None:
    """`next(iter(loader))` before the loop, and samples that draw from the generators of the training."""
    places = [tmp_path / "whole", tmp_path / "stopped"]
    for place in places:
        path = script(place, LOADERS["alone"], data="Numbers()")
        path.write_text(path.read_text().replace("with run:", "next(iter(loader))\nwith run:"))
    trainer = trainers.launch_script(places[0] / "train.py")
    assert trainer.wait() == 0, trainer.text()
    for at, code in ((STEPS + 5, 75), (2 * STEPS, 75), (0, 0)):
        trainer = trainers.launch_script(places[1] / "train.py", env={"SIGNAL_AT": str(at)})
        assert trainer.wait() == code, trainer.text()
    assert seen(places[1]) == seen(places[0])


def test_what_a_batch_counts_is_said_by_the_plan_of_its_own_loader() -> None:
    course = DataPosition(
        EpochSampler(10, 4, seed=1), None, 30, Progress(), None, 2, 3, lambda: None
    )
    padded, _ = course.plan_batches(pad=True), course.plan_batches(pad=False)
    assert [part.real for _, part in course.iterate_parts(padded)] == [1, 1, 1]
    assert [part.share for _, part in course.iterate_parts(padded)] == [0.75, 0.75, 0.0]


def test_the_batches_left_are_those_of_the_iteration_until_the_next_epoch() -> None:
    progress = Progress()
    course = DataPosition(EpochSampler(10, 2, seed=1), None, 50, progress, None, 0, 1, lambda: None)
    plan = course.plan_batches(pad=True)
    course.entered = True
    progress.done_steps = progress.step = 2
    batches = iter(plan)
    assert (plan.batches_left, len(plan)) == (3, 5)
    for _ in batches:
        progress.advance()
    assert plan.batches_left == 3, "not what is left by now"
    progress.next_epoch()
    assert plan.batches_left == 5
    assert list(plan) == list(EpochSampler(10, 2, seed=1).iterate_batches(1))


def test_a_look_in_the_middle_of_an_accumulation_loses_no_gradients(
    trainers: Zygote, tmp_path: Path
) -> None:
    """The loop clears its gradients after the look and before its first batch."""
    once = ACCUMULATED.replace(
        "in DataLoader(data, batch_sampler=run.batches()):", "in loader:"
    ).replace(
        "batches = 0\n",
        "batches = 0\nloader = DataLoader(data, batch_sampler=run.batches())\nnext(iter(loader))\n",
    )
    assert once.count("loader") == 3
    for name, at, code in (("plain", 0, 0), ("stopped", 18, 75), ("stopped", 0, 0)):
        (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / name / "train.py").write_text(once.replace("SIGNAL_AT", str(at)))
        trainer = trainers.launch_script(tmp_path / name / "train.py")
        assert trainer.wait() == code, trainer.text()
    assert "gradients of 2 batches" in trainer.text()
    assert losses(tmp_path / "stopped" / "run") == losses(tmp_path / "plain" / "run")


def test_a_worker_that_is_started_by_spawn_gets_the_seeds_of_the_run(tmp_path: Path) -> None:
    run = Run(tmp_path, model=torch.nn.Linear(1, 1), samples=8, epochs=2, seed=3)
    held = pickle.loads(pickle.dumps(run))
    for index in (5, SampleIndex(5, 3, 1)):
        assert held.sample_seed(index) == run.sample_seed(index)
    run.close()
