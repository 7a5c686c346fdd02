"""The same small training by the means that people have: ``contenders.py NAME OUT``, always launched the same way.

Each saves after every step, prints ``step N``, resumes from what it finds in OUT as its documentation says, and at the
end writes the SHA-256 of the weights to OUT/final.
"""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

STEPS, BATCH, EPOCHS = 40, 16, 2


def data() -> TensorDataset:
    """Return the samples: an epoch has STEPS // EPOCHS steps."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(STEPS // EPOCHS * BATCH, 64, generator=generator)
    return TensorDataset(x, x[:, :8].abs().argmax(dim=1))


def network() -> nn.Module:
    """Return a network of 1.2 million weights with dropout, from a fixed seed."""
    torch.manual_seed(2)
    return nn.Sequential(
        nn.Linear(64, 1024),
        nn.ReLU(),
        nn.Dropout(0.2),
        nn.Linear(1024, 1024),
        nn.ReLU(),
        nn.Linear(1024, 8),
    )


def finish(out: Path, model: nn.Module) -> None:
    """Leave the result behind."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(name.split("model.")[-1].encode() + tensor.numpy().tobytes())
    (out / "final").write_text(digest.hexdigest())


def plain(out: Path) -> None:
    """``torch.save(path)`` after each step: weights, optimizer, step and random state, as a careful person does."""
    model, path, start = network(), out / "checkpoint.pt", 0
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    if path.exists():
        state = torch.load(path)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        torch.set_rng_state(state["rng"])
        start = state["step"]
    step, per_epoch = start, STEPS // EPOCHS
    for epoch in range(start // per_epoch, EPOCHS):
        shuffle = torch.Generator().manual_seed(epoch)
        for number, (x, y) in enumerate(DataLoader(data(), BATCH, shuffle=True, generator=shuffle)):
            if epoch * per_epoch + number < start:
                continue
            nn.functional.cross_entropy(model(x), y).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            optimizer.zero_grad()
            step += 1
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
            torch.save({**state, "rng": torch.get_rng_state()}, path)
            print("step", step, flush=True)
    finish(out, model)


def ours(out: Path) -> None:
    """This trainer."""
    from rgt_train import Options, Run

    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    samples = data()
    run = Run(
        out, model=model, optimizer=optimizer, samples=len(samples), batch_size=BATCH, epochs=EPOCHS,
        options=Options(save_every=1),
    )  # fmt: skip
    with run:
        for _ in run.epochs():
            for x, y in DataLoader(samples, batch_sampler=run.batches()):
                loss = nn.functional.cross_entropy(model(x), y)
                optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                run.step(loss.item())
    if not (out / "final").exists():
        finish(out, model)


def huggingface(out: Path) -> None:
    """``Trainer.train(resume_from_checkpoint=…)`` with what `get_last_checkpoint` finds."""
    from transformers import Trainer, TrainerCallback, TrainingArguments
    from transformers.trainer_utils import get_last_checkpoint  # type: ignore[import-not-found, unused-ignore]

    class Rows(Dataset[dict[str, torch.Tensor]]):
        def __init__(self) -> None:
            self.x, self.y = data().tensors

        def __len__(self) -> int:
            return len(self.x)

        def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
            return {"x": self.x[index], "labels": self.y[index]}

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = network()

        def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
            logits = self.model(x)
            return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}

    class Tell(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            print("step", state.global_step, flush=True)

    arguments = TrainingArguments(
        output_dir=str(out / "hf"), per_device_train_batch_size=BATCH, num_train_epochs=EPOCHS, save_strategy="steps",
        save_steps=1, save_total_limit=2, report_to=[], use_cpu=True, disable_tqdm=True, seed=3, learning_rate=1e-3,
        remove_unused_columns=False, logging_steps=1000,
    )  # fmt: skip
    trainer = Trainer(model=Net(), args=arguments, train_dataset=Rows(), callbacks=[Tell()])
    last = get_last_checkpoint(str(out / "hf")) if (out / "hf").is_dir() else None
    trainer.train(resume_from_checkpoint=last)
    finish(out, trainer.model)


def lightning(out: Path) -> None:
    """``Trainer.fit(ckpt_path="last")`` with a `ModelCheckpoint` after each step."""
    from lightning import LightningModule, Trainer, seed_everything
    from lightning.pytorch.callbacks import ModelCheckpoint

    class Net(LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.model = network()

        def training_step(self, batch: Any, index: int) -> torch.Tensor:
            x, y = batch
            return nn.functional.cross_entropy(self.model(x), y)

        def on_train_batch_end(self, *_: Any) -> None:
            print("step", self.trainer.global_step, flush=True)

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.AdamW(self.parameters(), lr=1e-3)

    seed_everything(3)
    keep = ModelCheckpoint(str(out / "pl"), save_last=True, every_n_train_steps=1, save_top_k=1)
    trainer = Trainer(
        max_epochs=EPOCHS, accelerator="cpu", devices=1, logger=False, callbacks=[keep], enable_progress_bar=False,
        enable_model_summary=False, default_root_dir=str(out),
    )  # fmt: skip
    model = Net()
    trainer.fit(model, DataLoader(data(), BATCH, shuffle=True), ckpt_path="last")
    finish(out, model)


CONTENDERS = {"plain": plain, "huggingface": huggingface, "lightning": lightning, "ours": ours}

if __name__ == "__main__":
    torch.set_num_threads(1)
    os.makedirs(sys.argv[2], exist_ok=True)
    CONTENDERS[sys.argv[1]](Path(sys.argv[2]))
