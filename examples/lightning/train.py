"""Lightning with rgt's callback: curves, checkpoints and resumes are seen, and it resumes by itself.

rgt push --trainer lab
rgt run lab --push . -- python train.py --out '$RGT_OUT'
"""

import argparse
from pathlib import Path

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from rgt_train.callbacks import RgtLightningCallback, resume
from torch.utils.data import DataLoader, TensorDataset


class SmallModel(lightning.LightningModule):
    """A linear regression."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)

    def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
        """Return the loss of a batch."""
        inputs, targets = batch
        loss = torch.nn.functional.mse_loss(self.layer(inputs), targets)
        self.log("loss", loss)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return the optimizer."""
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


def main() -> None:
    """Fit the model, from its newest checkpoint on."""
    flags = argparse.ArgumentParser()
    flags.add_argument("--out", type=Path, default=Path("run"))
    flags.add_argument("--epochs", type=int, default=3)
    given = flags.parse_args()

    lightning.seed_everything(0)
    inputs = torch.randn(128, 8)
    data = TensorDataset(inputs, inputs.sum(dim=1, keepdim=True))
    keep = ModelCheckpoint(given.out, save_last=True, every_n_epochs=1)
    trainer = lightning.Trainer(
        max_epochs=given.epochs,
        default_root_dir=given.out,
        callbacks=[keep, RgtLightningCallback()],
        logger=False,
        log_every_n_steps=1,
        enable_progress_bar=False,
    )
    # Instead of trainer.fit(…): from the newest complete checkpoint, if there is one.
    resume(trainer, SmallModel(), DataLoader(data, batch_size=16, shuffle=True))


if __name__ == "__main__":
    main()
