"""The bridges to other libraries, run with those libraries: callbacks, StatefulDataLoader, PyYAML."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from rgt_train.callbacks.recorder import TrainingRecorder, numbers_in, plain_settings
from rgt_train.checkpoint import manifest

from tests.process.train import frameworks
from tests.process.train.harness import ENV, TIMEOUT, events, losses, metrics

HF = """
import json, sys, torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments
from rgt_train.callbacks import RgtCallback

def train(out, with_callback, resume, steps):
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=32, n_positions=16, n_embd=16, n_layer=1, n_head=2))
    data = [{"input_ids": (torch.arange(8) + i) % 32, "labels": (torch.arange(8) + i) % 32} for i in range(64)]
    arguments = TrainingArguments(out, max_steps=steps, per_device_train_batch_size=4, gradient_accumulation_steps=2,
        logging_steps=2, save_steps=5, eval_strategy="steps", eval_steps=5, report_to="none", seed=5, use_cpu=True,
        disable_tqdm=True, hub_token="hf_secret")
    callbacks = [RgtCallback()] if with_callback else []
    trainer = Trainer(model, arguments, train_dataset=data, eval_dataset=data[:8], callbacks=callbacks)
    trainer.train(resume_from_checkpoint=resume or None)
    torch.save(model.state_dict(), out + "/final.pt")

for launch in json.loads(sys.argv[1]): train(*launch)
"""


def files(out: Path, pattern: str) -> list[str]:
    return sorted(str(path.relative_to(out)) for path in out.glob(pattern) if path.is_file())


def test_hugging_face(tmp_path: Path) -> None:
    bare, out, twice = (tmp_path / name for name in ("bare", "out", "twice"))
    launches = [
        (bare, False, False, 12),
        (out, True, False, 12),
        (twice, True, False, 6),
        (twice, True, True, 12),
    ]
    frameworks.run(HF, tmp_path, json.dumps(launches, default=str))
    hugging_face_resumed(twice)
    assert (bare / "final.pt").read_bytes() == (out / "final.pt").read_bytes()  # it changes nothing
    assert files(out, "checkpoint-*/*") == files(bare, "checkpoint-*/*") != []
    assert set(files(out, "*")) - set(files(bare, "*")) == {"metrics.jsonl", "run.json"}
    lines = metrics(out)
    assert lines[0]["event"] == "start" and lines[0]["total_steps"] == 12
    assert sorted(losses(out)) == [2, 4, 6, 8, 10, 12]
    point = next(line for line in lines if line.get("step") == 2 and "loss" in line)
    assert {"lr", "grad_norm", "epoch", "time"} <= set(point)
    # The Trainer makes two groups: with weight decay, and without.
    assert point["lr"] == point["lr/0"] == point["lr/1"]
    assert not any("lr/0" in line for line in lines if "val_loss" in line)
    assert [line["step"] for line in lines if "val_loss" in line] == [5, 10, 12]
    told = events(out, "checkpoint")
    assert [event["step"] for event in told] == [5, 10, 12]
    for event in told:
        kept = [path for path in Path(event["path"]).iterdir() if path.is_file()]
        assert event["bytes"] == sum(path.stat().st_size for path in kept) > 0
    assert lines[-1]["event"] == "done"
    record = json.loads((out / "run.json").read_text())["last"]
    assert (record["seed"], record["batch"], record["accumulate"], record["effective_batch"]) == (
        5,
        4,
        2,
        8,
    )
    assert record["versions"]["transformers"]
    assert "hf_secret" not in (out / "run.json").read_text() + (out / "metrics.jsonl").read_text()


def hugging_face_resumed(out: Path) -> None:
    (resumed,) = events(out, "resume")
    assert (resumed["step"], resumed["total_steps"], resumed["lost_steps"]) == (6, 12, 0)
    assert sorted(losses(out)) == [2, 4, 6, 8, 10, 12]
    assert [event["step"] for event in events(out, "done")] == [6, 12]
    body = json.loads((out / "run.json").read_text())
    assert (body["first"]["attempt"], body["last"]["attempt"], body["last"]["step"]) == (1, 2, 6)


LIGHTNING = """
import json, os, sys, torch
import lightning as L
from lightning.pytorch.callbacks import ModelCheckpoint
from rgt_train.callbacks import RgtLightningCallback

class Net(L.LightningModule):
    def __init__(self, width=4, fail=False):
        super().__init__(); self.save_hyperparameters(); self.net = torch.nn.Linear(width, 1); self.fail = fail
    def training_step(self, batch, number):
        if self.fail and self.global_step == 5: raise RuntimeError("the data are gone")
        loss = (self.net(batch) ** 2).mean(); self.log("train_mse", loss); return loss
    def validation_step(self, batch, number): self.log("val_loss", (self.net(batch) ** 2).mean())
    def configure_optimizers(self): return torch.optim.SGD(self.parameters(), lr=0.1)

def train(out, with_callback, fail):
    os.environ.pop("PL_GLOBAL_SEED", None)
    if not fail: L.seed_everything(7, verbose=False)
    loader = torch.utils.data.DataLoader(torch.randn(24, 4), batch_size=4)
    callbacks = [
        ModelCheckpoint(out + "/kept", every_n_train_steps=4, save_top_k=-1),
        ModelCheckpoint(out + "/best", monitor="train_mse", mode="max", every_n_train_steps=2, save_top_k=2,
                        save_last=True),
    ]
    if with_callback: callbacks.append(RgtLightningCallback())
    trainer = L.Trainer(max_epochs=2, default_root_dir=out, callbacks=callbacks, log_every_n_steps=2, logger=False,
        enable_progress_bar=False, enable_model_summary=False, accelerator="cpu", num_sanity_val_steps=1)
    model = Net(fail=fail)
    trainer.fit(model, loader, loader)
    torch.save(model.state_dict(), out + "/final.pt")

for launch in json.loads(sys.argv[1]): train(*launch)
"""


def test_lightning(tmp_path: Path) -> None:
    bare, out, failed = (tmp_path / name for name in ("bare", "out", "failed"))
    launches = [(bare, False, False), (out, True, False), (failed, True, True)]
    done = frameworks.run(LIGHTNING, tmp_path, json.dumps(launches, default=str), check=False)
    assert done.returncode != 0 and "the data are gone" in done.stderr
    lightning_that_failed(failed)
    assert (bare / "final.pt").read_bytes() == (out / "final.pt").read_bytes()
    assert files(out, "kept/*") == files(bare, "kept/*") != []
    lines = metrics(out)
    assert lines[0]["event"] == "start" and lines[0]["total_steps"] == 12
    assert {step for step in losses(out) if step % 2 == 0} == {2, 4, 6, 8, 10, 12}
    assert [line["step"] for line in lines if "val_loss" in line and "loss" not in line] == [6, 12]
    assert all(line["lr"] == 0.1 for line in lines if "lr" in line)
    told = [
        (Path(event["path"]).relative_to(out), event["step"]) for event in events(out, "checkpoint")
    ]
    assert {(f"kept/epoch={(step - 1) // 6}-step={step}.ckpt", step) for step in (4, 8, 12)} <= {
        (str(path), step) for path, step in told
    }
    best = [path for path, _ in told if path.parent.name == "best"]
    assert {str(path) for path in best} >= set(files(out, "best/*.ckpt")), (
        "those that are not the best, too"
    )
    assert [step for path, step in told if path.name == "last.ckpt"] == [2, 4, 6, 8, 10, 12], (
        "written anew each time"
    )
    assert all(event["bytes"] > 0 for event in events(out, "checkpoint"))
    assert lines[-1]["event"] == "done" and lines[-1]["step"] == 12
    record = json.loads((out / "run.json").read_text())["last"]
    assert (record["seed"], record["batch"], record["settings"]["width"]) == (7, 4, 4)


def lightning_that_failed(out: Path) -> None:
    (stopped,) = events(out, "stop")
    assert (stopped["step"], stopped["reason"]) == (5, "RuntimeError: the data are gone")
    assert json.loads((out / "run.json").read_text())["last"]["seed"] is None  # nobody set one


STATEFUL = """
import hashlib, json, os, sys, random, torch
import torch._dynamo  # once, not in each launch
from torch.utils.data import Dataset
from torchdata.stateful_dataloader import StatefulDataLoader
from rgt_train import Options, Run

class Data(Dataset):
    def __len__(self): return 60
    def __getitem__(self, index): return torch.sin(torch.arange(6.0) * index)

def train(workers, die_at):
    torch.manual_seed(1); random.seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Dropout(0.3), torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    loader = StatefulDataLoader(Data(), batch_size=4, shuffle=True, num_workers=workers)
    run = Run("run", model=model, optimizer=optimizer, stream=loader, steps_per_epoch=11, epochs=3,
              options=Options(save_every=2))
    with run:
        for epoch in run.epochs():
            for batch in run.stream():
                loss = ((model(batch) - 1) ** 2).mean()
                optimizer.zero_grad(); loss.backward(); optimizer.step()
                run.step(loss.item())
                if run.step_now == die_at: os.kill(os.getpid(), 9)
    digest = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters()))
    open("weights", "w").write(digest.hexdigest())

for place, workers, die_at in json.loads(sys.argv[1]):
    pid = os.fork()  # a launch without its imports
    if pid == 0:
        os.chdir(place)
        train(workers, die_at)
        sys.stdout.flush()
        os._exit(0)
    status = os.waitpid(pid, 0)[1]
    assert os.waitstatus_to_exitcode(status) == (-9 if die_at else 0), status
"""


@pytest.mark.parametrize(("workers", "deaths"), [(0, (5, 27)), (2, (15,))])
def test_a_stateful_data_loader(tmp_path: Path, workers: int, deaths: tuple[int, ...]) -> None:
    """15 batches a pass, 11 steps an epoch, killed in the middle of them: the bits of the uninterrupted run."""
    plain_run, killed = tmp_path / "plain", tmp_path / "killed"
    for place in (plain_run, killed):
        place.mkdir()
    launches = [
        (plain_run, workers, 0),
        *((killed, workers, at) for at in deaths),
        (killed, workers, 0),
    ]
    done = frameworks.run(STATEFUL, tmp_path, json.dumps(launches, default=str))
    assert "without state_dict" not in done.stdout
    assert losses(killed / "run") == losses(plain_run / "run")
    assert (killed / "weights").read_text() == (plain_run / "weights").read_text()


def test_a_stateful_data_loader_over_a_plain_iterable_is_refused(tmp_path: Path) -> None:
    """It counts what it passes over a second time (torchdata 0.11): the third launch would have gone on elsewhere."""
    text = (
        STATEFUL.replace("import Dataset", "import IterableDataset as Dataset")
        .replace(
            "    def __getitem__(self, index): return torch.sin(torch.arange(6.0) * index)",
            "    def __iter__(self): return (torch.sin(torch.arange(6.0) * index) for index in range(60))",
        )
        .replace(", shuffle=True", "")
        .replace("def train(", "os.environ['RGT_TRAIN_BACKGROUND'] = '0'\n\ndef train(")
    )
    place, whole = tmp_path / "run", tmp_path / "whole"
    place.mkdir()
    whole.mkdir()
    frameworks.run(text, tmp_path, json.dumps([(place, 0, 6), (whole, 0, 0)], default=str))
    done = frameworks.run(text, tmp_path, json.dumps([(place, 0, 0)], default=str), check=False)
    told = done.stdout + done.stderr
    assert (
        "the stream (StatefulDataLoader) does not come back to where it was: after iter() " in told
    ), told
    assert "samples_yielded was 24, is 48" in told
    plain = text.replace("StatefulDataLoader(Data", "torch.utils.data.DataLoader(Data")
    done = frameworks.run(plain, tmp_path, json.dumps([(place, 0, 0)], default=str))
    assert "resume: not restored: the stream's order, where it is random" in done.stdout
    assert "skipped 6 batches" in done.stdout
    assert (place / "weights").read_text() == (whole / "weights").read_text()


LIGHTNING_GROUPS = """
import json, sys, torch
import lightning as L
from rgt_train.callbacks import RgtLightningCallback

class Net(L.LightningModule):
    def __init__(self, several):
        super().__init__(); self.body = torch.nn.Linear(4, 4); self.head = torch.nn.Linear(4, 1)
        self.several, self.automatic_optimization = several, not several
    def training_step(self, batch, number):
        loss = (self.head(self.body(batch)) ** 2).mean()
        if self.several:
            self.manual_backward(loss)
            for optimizer in self.optimizers(): optimizer.step(); optimizer.zero_grad()
        return loss
    def configure_optimizers(self):
        parts = [{"params": self.body.parameters(), "lr": 0.1, "name": "body"},
                 {"params": self.head.parameters(), "lr": 0.01, "name": "head"}]
        if self.several: return [torch.optim.SGD([part]) for part in parts]
        optimizer = torch.optim.SGD(parts)
        return [optimizer], [{"scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 2), "interval": "step"}]

for out, several in json.loads(sys.argv[1]):
    trainer = L.Trainer(max_epochs=1, default_root_dir=out, callbacks=[RgtLightningCallback()], log_every_n_steps=2,
        logger=False, enable_progress_bar=False, enable_model_summary=False, accelerator="cpu")
    trainer.fit(Net(several), torch.utils.data.DataLoader(torch.randn(16, 4), batch_size=4))
"""


def test_lightning_learning_rates_per_group(tmp_path: Path) -> None:
    one, several = tmp_path / "one", tmp_path / "several"
    launches = [(str(one), False), (str(several), True)]
    frameworks.run(LIGHTNING_GROUPS, tmp_path, json.dumps(launches))

    def rates(out: Path) -> list[dict[str, float]]:
        points = [line for line in metrics(out) if "loss" in line and "event" not in line]
        return [{k: v for k, v in point.items() if k.startswith("lr/")} for point in points]

    # After the second step, which StepLR counts before Lightning calls its callbacks.
    assert rates(one)[0] == pytest.approx({"lr/body": 0.01, "lr/head": 0.001})
    assert rates(several)[0] == {"lr/0/body": 0.1, "lr/1/head": 0.01}


class TestRecorder:
    FACTS = {"seed": 1, "batch": 2, "accumulate": 1, "world": 1, "settings": {}}  # noqa: RUF012

    def test_numbers_under_our_names(self) -> None:
        import torch

        found = numbers_in(
            {"learning_rate": 1e-3, "eval_loss": torch.tensor(2.0), "eval_acc": 1, "epoch": 3.0, "flag": True,
             "text": "x", "many": torch.zeros(3)}
        )  # fmt: skip
        assert found == {"lr": 1e-3, "val_loss": 2.0, "val_acc": 1.0}

    def test_a_loss_that_is_not_finite_is_an_event(self, tmp_path: Path) -> None:
        recorder = TrainingRecorder(tmp_path / "run", 0, 10, self.FACTS)
        recorder.record_point(3, 0.5, {"loss": float("nan")})
        recorder.record_end(3, 10)
        assert [line.get("event") for line in metrics(tmp_path / "run")] == [
            "start",
            None,
            "nonfinite",
            "stop",
        ]

    def test_of_two_checkpoints_of_a_step_the_first_goes_to_the_mirror(
        self, tmp_path: Path
    ) -> None:
        """A trainer that keeps the best and the last writes both at one step: they hold the same."""
        recorder = TrainingRecorder(tmp_path / "run", 0, 4, self.FACTS, str(tmp_path / "mirror"))
        for step in (2, 4):
            for name in ("first", "second"):
                path = tmp_path / "run" / f"{name}-{step}"
                path.write_bytes(b"weights")
                recorder.checkpoint(step, str(path))
        recorder.record_end(4, 4)
        kept = {
            each.name: manifest.read_manifest(each)["path"]
            for each in (tmp_path / "mirror").glob("step-*")
        }
        assert kept["step-00000004-a1"] == "first-4"
        assert set(kept.values()) <= {"first-2", "first-4"}

    def test_a_killed_launch_is_told_at_the_next(self, tmp_path: Path) -> None:
        first = TrainingRecorder(tmp_path, 0, 10, self.FACTS)
        for step in range(1, 8):
            first.record_point(step, 0.0, {"loss": 1.0})
        second = TrainingRecorder(tmp_path, 5, 10, self.FACTS)
        second.record_end(10, 10)
        (resumed,) = events(tmp_path, "resume")
        assert (resumed["step"], resumed["lost_steps"]) == (5, 2)

    def test_a_trainer_that_tells_no_end_has_one(self, tmp_path: Path) -> None:
        """One of two launches in a process is ended by its trainer, the other by what ends the interpreter."""
        ended, left = str(tmp_path / "ended"), str(tmp_path / "left")
        script = (
            "from rgt_train.callbacks.recorder import TrainingRecorder\n"
            f"a, b = (TrainingRecorder(out, 0, 9, {self.FACTS!r}) for out in ({ended!r}, {left!r}))\n"
            "b.record_point(4, 0.5, {'loss': 1.0}); a.record_end(9, 9)\n"
            "raise ValueError('no data')"
        )
        subprocess.run(
            [sys.executable, "-c", script],
            env=ENV,
            capture_output=True,
            check=False,
            timeout=TIMEOUT,
        )
        assert [event["event"] for event in metrics(tmp_path / "ended")] == ["start", "done"]
        (stopped,) = events(tmp_path / "left", "stop")
        assert (stopped["step"], stopped["reason"]) == (4, "ValueError: no data")

    def test_left_without_an_exception(self, tmp_path: Path) -> None:
        recorder = TrainingRecorder(tmp_path, 0, 9, self.FACTS)
        recorder.record_early_exit()
        assert [event["reason"] for event in events(tmp_path, "stop")] == ["left early"]

    def test_secrets_are_left_out(self) -> None:
        assert plain_settings({"lr": 1, "hub_token": "x", "api_key": "y", "fn": print}) == {"lr": 1}


def test_asking_for_a_callback_that_does_not_exist() -> None:
    import rgt_train.callbacks

    with pytest.raises(AttributeError, match="has no attribute 'KerasCallback'"):
        _ = rgt_train.callbacks.KerasCallback
