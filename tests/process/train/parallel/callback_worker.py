"""Trainers of others with our callbacks, on the ranks of a launch: FOLDER/RANK holds what a rank does at its next step.

Words: ``forward`` and ``data`` (sleeps there), each until the word is gone; ``saved``: sleeps for the first data behind
a checkpoint. A rank writes its step to FOLDER/step-RANK, the word that holds it to FOLDER/held-RANK,
and the phases that it was in, in their order, to FOLDER/phases-RANK when it ends: at the step that FOLDER/end holds,
which must be there before the ranks come to the step before it.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import torch
from rgt_train.ranks.heartbeat import CHECKPOINT, PHASES, Heartbeat

from tests.process.train.parallel.hang_worker import told

SEEN: list[int] = []
real_enter = Heartbeat.enter_phase


def enter(self: Heartbeat, phase: int) -> int:
    if not SEEN or SEEN[-1] != phase:
        SEEN.append(phase)
    return real_enter(self, phase)


def hold(folder: Path, rank: int, word: str) -> None:
    while told(folder, rank) == word:
        (folder / f"held-{rank}").write_text(word)
        time.sleep(0.2)


class Rows(torch.utils.data.Dataset[Any]):
    """Rows of data; those to train on wait where they are told to."""

    def __init__(self, folder: Path, rank: int, count: int, train: bool = True) -> None:
        self.folder, self.rank, self.count, self.train = folder, rank, count, train

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, at: int) -> Any:
        if self.train:
            hold(self.folder, self.rank, "data")
            if CHECKPOINT in SEEN[-2:]:
                hold(self.folder, self.rank, "saved")
        ids = (torch.arange(8) + at) % 32
        return {"input_ids": ids, "labels": ids}


def note(folder: Path, rank: int, step: int) -> None:
    (folder / f"step-{rank}.new").write_text(str(step))
    (folder / f"step-{rank}.new").replace(folder / f"step-{rank}")


def end_of(folder: Path) -> int:
    try:
        return int((folder / "end").read_text())
    except OSError:
        return 1_000_000


def hugging_face(folder: Path, rank: int) -> None:
    from rgt_train.callbacks import RgtCallback
    from transformers import (
        GPT2Config,
        GPT2LMHeadModel,
        Trainer,
        TrainerCallback,
        TrainingArguments,
    )

    class Noted(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            note(folder, rank, state.global_step)
            state.max_steps = end_of(folder)

    class Model(GPT2LMHeadModel):  # type: ignore[misc]
        def forward(self, *arguments: Any, **named: Any) -> Any:
            if self.training:
                hold(folder, rank, "forward")
            return super().forward(*arguments, **named)

    torch.manual_seed(0)
    model = Model(GPT2Config(vocab_size=32, n_positions=16, n_embd=16, n_layer=1, n_head=2))
    arguments = TrainingArguments(
        str(folder / "out"), max_steps=end_of(folder), per_device_train_batch_size=2, gradient_accumulation_steps=2,
        logging_steps=5, save_steps=10, eval_strategy="steps", eval_steps=10, save_total_limit=1, report_to="none",
        use_cpu=True, disable_tqdm=True, remove_unused_columns=False, ddp_find_unused_parameters=False,
    )  # fmt: skip
    rows = Rows(folder, rank, 100_000)
    Trainer(
        model,
        arguments,
        train_dataset=rows,
        eval_dataset=Rows(folder, rank, 8),
        callbacks=[RgtCallback(), Noted()],
    ).train()


def lightning(folder: Path, rank: int) -> None:
    import lightning as L  # noqa: N812
    from rgt_train.callbacks import RgtLightningCallback

    class Net(L.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.net = torch.nn.Linear(8, 1)

        def training_step(self, batch: Any, _: int) -> Any:
            hold(folder, rank, "forward")
            note(folder, rank, self.global_step)
            self.trainer.fit_loop.epoch_loop.max_steps = end_of(folder)
            return self.net(batch["input_ids"].float()).square().mean()

        def validation_step(self, batch: Any, _: int) -> None:
            self.log(
                "val_loss", self.net(batch["input_ids"].float()).square().mean(), sync_dist=True
            )

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=1e-5)

    rows = Rows(folder, rank, 100_000), Rows(folder, rank, 8, train=False)
    loaders = [torch.utils.data.DataLoader(each, batch_size=2) for each in rows]
    trainer = L.Trainer(
        max_steps=end_of(folder), default_root_dir=str(folder / "out"), callbacks=[RgtLightningCallback()],
        logger=False, accelerator="cpu", strategy="ddp", devices=2, enable_progress_bar=False,
        enable_model_summary=False, num_sanity_val_steps=1, val_check_interval=10, limit_val_batches=1,
    )  # fmt: skip
    trainer.fit(Net(), *loaders)


def main(library: str, folder: Path) -> None:
    import os

    rank = int(os.environ["RANK"])
    Heartbeat.enter_phase = enter  # type: ignore[method-assign]
    try:
        {"hugging_face": hugging_face, "lightning": lightning}[library](folder, rank)
    finally:
        (folder / f"phases-{rank}").write_text(" ".join(PHASES[phase] for phase in SEEN))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
