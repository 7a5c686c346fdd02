"""Hugging Face's Trainer with rgt's callback: curves, checkpoints and resumes are seen, and it resumes by itself.

rgt push --trainer lab
rgt run lab --push . -- python train.py --out '$RGT_OUT'
"""

import argparse
from pathlib import Path

import torch
from rgt_train.callbacks import RgtCallback, resume
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments


def main() -> None:
    """Train a tiny language model, from its newest checkpoint on."""
    flags = argparse.ArgumentParser()
    flags.add_argument("--out", type=Path, default=Path("run"))
    flags.add_argument("--steps", type=int, default=20)
    given = flags.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)

    torch.manual_seed(0)
    model = GPT2LMHeadModel(
        GPT2Config(vocab_size=32, n_positions=16, n_embd=16, n_layer=1, n_head=2)
    )
    rows = [(torch.arange(8) + first) % 32 for first in range(64)]
    data = [{"input_ids": row, "labels": row} for row in rows]
    arguments = TrainingArguments(
        str(given.out),
        max_steps=given.steps,
        per_device_train_batch_size=4,
        logging_steps=2,
        save_steps=5,
        save_total_limit=2,
        report_to="none",
        disable_tqdm=True,
    )
    trainer = Trainer(model, arguments, train_dataset=data, callbacks=[RgtCallback()])
    resume(
        trainer
    )  # instead of trainer.train(): from the newest complete checkpoint, if there is one


if __name__ == "__main__":
    main()
