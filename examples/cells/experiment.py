# %% [markdown]
"""An experiment in cells, for VS Code, Cursor, Spyder and PyCharm.

Run cell by cell over Remote-SSH (`rgt code lab --write` makes the host `rgt-lab`), or all of it as a
script: `rgt run lab --push . -- python experiment.py`. Run it again after a kill or a lost kernel,
and it goes on.
"""

# %% Settings
import os
from pathlib import Path

import torch
from rgt_train import Run
from torch.utils.data import DataLoader, TensorDataset

DEV_MODE = os.environ.get("DEV_MODE", "true") != "false"  # small and short, until it works
OUT = Path(os.environ.get("RGT_OUT", "runs/dev" if DEV_MODE else "runs/full"))
SAMPLES, EPOCHS = (256, 2) if DEV_MODE else (25_600, 20)
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
print(f"dev mode {DEV_MODE}: {SAMPLES} samples, {EPOCHS} epochs on {DEVICE}, into {OUT}")

# %% Data
torch.manual_seed(7)
inputs = torch.randn(SAMPLES, 16)
data = TensorDataset(inputs, (inputs[:, :4].sum(dim=1) > 0).long())

# %% Model
model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 2))
model = model.to(DEVICE)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

# %% Training; the run is closed at the end of `with`, so this cell can be run again
run = Run(OUT, model=model, optimizer=optimizer, samples=SAMPLES, batch_size=32, epochs=EPOCHS)
with run:
    for _ in run.epochs():
        for batch, labels in DataLoader(data, batch_sampler=run.batches()):
            loss = torch.nn.functional.cross_entropy(model(batch.to(DEVICE)), labels.to(DEVICE))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            run.step(loss.item())

# %% Evaluation
with torch.no_grad():
    answers = model(inputs.to(DEVICE)).argmax(dim=1).cpu()
accuracy = (answers == data.tensors[1]).float().mean().item()
print(f"accuracy {accuracy:.3f} after step {run.step_now}")
