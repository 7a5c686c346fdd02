"""A person's own loop: images drawn and augmented in two loader workers, batch normalisation, dropout, accumulation."""

from __future__ import annotations

import random
import sys

import torch
from rgt_train import Options, Run
from rgt_train.tasks.image_classifier import ShapeNet, draw_shapes
from torch.utils.data import DataLoader, Dataset

IMAGES, EPOCHS, STEPS = 256, int(sys.argv[1]) if len(sys.argv) > 1 else 12, 16


class Shapes(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Drawn shapes; flipped, scaled and made noisy by the random numbers of the moment."""

    def __len__(self) -> int:
        return IMAGES

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        images, labels = draw_shapes([index], 8, 0.2)
        image = images[0].flip(-1) if random.random() < 0.5 else images[0]
        return image * random.uniform(0.8, 1.2) + 0.05 * torch.randn(image.shape), labels[0]


def main() -> None:
    """Train."""
    torch.set_num_threads(1)
    random.seed(4)
    torch.manual_seed(4)
    model = ShapeNet(4, 0.2, "batch")
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS * STEPS)
    run = Run(
        "run", model=model, optimizer=optimizer, scheduler=scheduler, samples=IMAGES, batch_size=8,
        accumulate=2, epochs=EPOCHS, steps_per_epoch=STEPS, seed=5, options=Options(save_every=1),
    )  # fmt: skip
    data = run.seeded(Shapes())
    with run:
        for _ in run.epochs():
            optimizer.zero_grad()
            total = 0.0
            for images, labels in DataLoader(data, batch_sampler=run.batches(), num_workers=2):
                loss = torch.nn.functional.cross_entropy(model(images), labels) / 2
                loss.backward()  # type: ignore[no-untyped-call]
                total += loss.item()
                if run.micro():
                    optimizer.step()
                    scheduler.step()
                    optimizer.zero_grad()
                    run.step(total)
                    total = 0.0


if __name__ == "__main__":
    main()
