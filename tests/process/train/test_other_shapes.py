"""Loops in other people's shapes, killed at random instants: weights that move outside ``optimizer.step()``.

The copying thread is slowed down in them, so that what moves while it copies does so every time and not by bad luck.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import time
from pathlib import Path

import pytest
from rgt_train.checkpoint import load_weights

from tests.conftest import THOROUGH
from tests.process.train.harness import Zygote, assert_same, final_state, losses
from tests.process.train.parallel.forked import forked

FULL = os.environ.get("RGT_TORTURE") == "full"
KILLS, LINES = (40, 12) if FULL else (3, 30) if THOROUGH else (2, 30)
"""How often a run is killed, and after how many lines of a launch at most."""
STEPS = 36
HEAD = """
import copy, hashlib, json, threading, time
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset
from rgt_train import Options, Run
from rgt_train.checkpoint import snapshot

copy_all = snapshot.copy_all
def slowly(pairs):
    if threading.current_thread() is not threading.main_thread():
        time.sleep(0.004)
    copy_all(pairs)
snapshot.copy_all = slowly

torch.manual_seed(1)
data = TensorDataset(torch.randn(48, 6))
more = {}
def net(): return nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Dropout(0.2), nn.Linear(12, 6))
def apply(optimizer, loss):
    optimizer.zero_grad(); loss.backward(); optimizer.step()
    return loss.item()
"""
TAIL = """
run = Run("run", model=model, optimizer=optimizer, samples=48, batch_size=4, epochs=3, seed=3,
          options=Options(save_every=1, keep=100, pace_s=0.03), **more)
models = {"": model} if isinstance(model, nn.Module) else {f"{name}.": part for name, part in model.items()}
def truth():
    found = {name + key: value for name, part in models.items() for key, value in part.state_dict().items()}
    return {key: hashlib.sha256(found[key].contiguous().numpy().tobytes()).hexdigest() for key in sorted(found)}
loader = DataLoader(data, batch_sampler=run.batches())
with run:
    for epoch in run.epochs():
        for (x,) in loader:
            loss = step(x)
            with open("truth.jsonl", "a") as file:
                file.write(json.dumps([run.step_now + 1, truth()]) + "\\n")
            run.step(loss)
"""
SHAPES = {
    # The teacher follows after the step: the usual place, and the usual `.data`.
    "teacher after the step": """
student = net(); teacher = copy.deepcopy(student)
model = {"student": student, "teacher": teacher}
optimizer = torch.optim.AdamW(student.parameters(), lr=0.01)
def step(x):
    loss = apply(optimizer, F.mse_loss(student(x), teacher(x + 0.1).detach() + x))
    for t, s in zip(teacher.parameters(), student.parameters()): t.data.mul_(0.9).add_(s.data, alpha=0.1)
    return loss
""",
    # MoCo: the key encoder is a part of the model, moves at the beginning of forward, and the optimizer has it all.
    "momentum encoder": """
class MoCo(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k = net(), net()
        for q, k in zip(self.q.parameters(), self.k.parameters()):
            k.data.copy_(q.data); k.requires_grad = False
        self.register_buffer("queue", torch.randn(8, 6)); self.register_buffer("at", torch.zeros(1, dtype=torch.long))
    @torch.no_grad()
    def follow(self):
        for q, k in zip(self.q.parameters(), self.k.parameters()): k.data = k.data * 0.9 + q.data * 0.1
    def forward(self, x):
        with torch.no_grad():
            self.follow()
            k = self.k(x)
        at = int(self.at); loss = F.mse_loss(self.q(x), k) + (self.q(x) @ self.queue.clone().T).square().mean() * 0.1
        self.queue[at:at + 4] = k; self.at[0] = (at + 4) % 8
        return loss
model = MoCo()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
def step(x): return apply(optimizer, model(x) + F.mse_loss(model.q(x), x))
""",
    # BYOL: a target that takes gradients as far as anybody can tell, and gets none; moved in forward.
    "byol": """
class Learner(nn.Module):
    def __init__(self):
        super().__init__()
        self.online = net(); self.target = copy.deepcopy(self.online); self.predictor = nn.Linear(6, 6)
    def forward(self, x):
        with torch.no_grad():
            for t, o in zip(self.target.parameters(), self.online.parameters()): t.data.mul_(0.9).add_(o.data * 0.1)
            goal = self.target(x)
        return F.mse_loss(self.predictor(self.online(x + 0.1 * torch.randn_like(x))), goal + x)
model = Learner()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
def step(x): return apply(optimizer, model(x))
""",
    # VQ-VAE: the codebook and its averages are parameters without gradients, moved in forward.
    "codebook": """
class VQ(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode, self.decode = nn.Linear(6, 4), nn.Linear(4, 6)
        self.codes = nn.Parameter(torch.randn(8, 4), requires_grad=False)
        self.sums = nn.Parameter(self.codes.data.clone(), requires_grad=False)
        self.counts = nn.Parameter(torch.ones(8), requires_grad=False)
    def forward(self, x):
        z = self.encode(x); near = torch.cdist(z, self.codes).argmin(1); q = self.codes[near]
        if self.training:
            hot = F.one_hot(near, 8).float()
            self.counts.data.mul_(0.9).add_(hot.sum(0), alpha=0.1)
            self.sums.data.mul_(0.9).add_(hot.T @ z.detach(), alpha=0.1)
            self.codes.data.copy_(self.sums / self.counts.unsqueeze(1))
        return F.mse_loss(self.decode(z + (q - z).detach()), x) + 0.1 * F.mse_loss(z, q.detach())
model = VQ()
optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
def step(x): return apply(optimizer, model(x))
""",
    "tied weights": """
class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.into, self.out = net(), nn.Linear(6, 6, bias=False), nn.Linear(6, 6)
        self.out.weight = self.into.weight
    def forward(self, x): return self.out(self.inner(self.into(x)))
model = Tied()
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
def step(x): return apply(optimizer, F.mse_loss(model(x), x))
""",
    # WGAN: two optimizers; the critic's weights are clipped by `.data` after its step.
    "clipped after the step": """
made, critic = net(), net()
model = {"made": made, "critic": critic}
of_made, of_critic = (torch.optim.RMSprop(m.parameters(), lr=0.005) for m in (made, critic))
optimizer = {"made": of_made, "critic": of_critic}
def step(x):
    apply(of_critic, critic(made(torch.randn_like(x)).detach()).mean() - critic(x).mean())
    for p in critic.parameters(): p.data.clamp_(-0.2, 0.2)
    return apply(of_made, -critic(made(torch.randn_like(x))).mean())
""",
    # The same as the first code of it had it: at the beginning of an iteration, where a copy is under way.
    "shrunk before the step": """
made, critic = net(), net()
model = {"made": made, "critic": critic}
of_made, of_critic = (torch.optim.RMSprop(m.parameters(), lr=0.005) for m in (made, critic))
optimizer = {"made": of_made, "critic": of_critic}
def step(x):
    for p in critic.parameters(): p.data.mul_(0.97).clamp_(-0.2, 0.2)
    apply(of_critic, critic(made(torch.randn_like(x)).detach()).mean() - critic(x).mean())
    return apply(of_made, -critic(made(torch.randn_like(x))).mean())
""",
    "spectral and weight norm": """
from torch.nn.utils import parametrizations, spectral_norm
model = nn.Sequential(spectral_norm(nn.Linear(6, 12)), nn.ReLU(), parametrizations.spectral_norm(nn.Linear(12, 12)),
                      nn.ReLU(), parametrizations.weight_norm(nn.Linear(12, 6)))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
def step(x): return apply(optimizer, F.mse_loss(model(x), x))
""",
    "parametrized": """
from torch.nn.utils import parametrize
class Symmetric(nn.Module):
    def forward(self, w): return w.triu() + w.triu(1).T
    def right_inverse(self, w): return w.triu()
model = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Dropout(0.2), nn.Linear(6, 6))
parametrize.register_parametrization(model[0], "weight", Symmetric())
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
def step(x): return apply(optimizer, F.mse_loss(model(x), x))
""",
    # A head alone is trained; the trunk's statistics and its prototypes move in forward.
    "a part alone": """
class Trunk(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.norm, self.head = nn.Linear(6, 12), nn.BatchNorm1d(12), nn.Linear(12, 6)
        self.mean = nn.Parameter(torch.zeros(12))
    def forward(self, x):
        x = self.norm(self.layer(x))
        self.mean.data = self.mean.data * 0.9 + x.detach().mean(0) * 0.1
        return self.head(x - self.mean.detach())
model = Trunk()
optimizer = torch.optim.AdamW(model.head.parameters(), lr=0.01)
def step(x): return apply(optimizer, F.mse_loss(model(x), x))
""",
    "a group more": """
model = net()
optimizer = torch.optim.AdamW(model[0].parameters(), lr=0.01)
optimizer.add_param_group({"params": model[3].parameters(), "lr": 0.02})
def step(x): return apply(optimizer, F.mse_loss(model(x), x))
""",
    # Averaged weights of torch, moved in the place where torch counts it but we are copying.
    "average before the step": """
model = net()
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
ema = torch.optim.swa_utils.AveragedModel(model, avg_fn=lambda a, m, n: 0.9 * a + 0.1 * m)
more = {"ema": ema}
def step(x):
    ema.update_parameters(model)
    return apply(optimizer, F.mse_loss(model(x), x))
""",
}


def script(place: Path, shape: str) -> Path:
    place.mkdir()
    (place / "train.py").write_text(HEAD + SHAPES[shape] + TAIL)
    return place / "train.py"


def wrong(place: Path) -> list[str]:
    """Return which checkpoints do not hold the weights that were there when `run.step` was called."""
    told: dict[int, dict[str, str]] = {}
    for line in (place / "truth.jsonl").read_text().splitlines():
        step, truth = json.loads(line)
        told[step] = (
            truth  # the last launch that made the step; it has the bits of the others, or other tests fail
        )
    found = []
    for path in sorted((place / "run" / "checkpoints").glob("step-*")):
        for key, weight in load_weights(path).items():
            if (
                hashlib.sha256(weight.numpy().tobytes()).hexdigest()
                != told[int(path.name[5:13])][key]
            ):
                found.append(f"{path.name}: {key}")
    return found


@pytest.mark.parametrize("shape", SHAPES)
def test_bits_survive_kills_at_random_instants(
    trainers: Zygote, tmp_path: Path, shape: str
) -> None:
    plain = trainers.launch_script(script(tmp_path / "plain", shape), background=True)
    assert plain.wait() == 0, plain.text()
    assert wrong(tmp_path / "plain") == []
    path = script(tmp_path / "killed", shape)
    chance = random.Random(shape)
    for _ in range(KILLS):
        trainer = trainers.launch_script(path, background=True)
        if trainer.wait_more_lines(chance.randint(5, LINES)):
            time.sleep(chance.random() * 0.02)
        if trainer.kill() == 0:
            break
    trainer = trainers.launch_script(path, background=True)
    assert trainer.wait() == 0, trainer.text()
    left, right = tmp_path / "killed" / "run", tmp_path / "plain" / "run"
    assert losses(left) == losses(right)
    assert len(losses(left)) == STEPS
    for found, wanted in zip(final_state(left, STEPS), final_state(right, STEPS), strict=True):
        for state in (found, wanted):
            state.pop(
                "progress", None
            )  # the last step was saved in its epoch or after it, as the save before ended
            for unseeded in ("python", "numpy"):  # these loops seed torch alone
                state.get("rng", {}).pop(unseeded, None)
                state.get("rng", {}).get("head", {}).pop(unseeded, None)
        assert_same(found, wanted)


RANKS = (
    HEAD.replace(
        "from rgt_train import Options, Run\n",
        "from rgt_train import Options, Run, distributed\n",
    )
    + """
import os, sys
from torch.distributed.fsdp import fully_shard
ranks = distributed(timeout_s=60)
class Learner(nn.Module):
    def __init__(self):
        super().__init__()
        self.online = net(); self.target = copy.deepcopy(self.online)
    def forward(self, x):
        with torch.no_grad():
            for t, o in zip(self.target.parameters(), self.online.parameters()): t.data.mul_(0.9).add_(o.data * 0.1)
            goal = self.target(x)
        return F.mse_loss(self.online(x + 0.1 * torch.randn_like(x)), goal + x)
if sys.argv[1] == "ddp":
    learner = Learner()
    for p in learner.target.parameters(): p.requires_grad = False  # as DDP asks for
    model = loss_of = nn.parallel.DistributedDataParallel(learner)
    trained = learner.parameters()
else:
    student, teacher = net(), net()
    for part in (student, teacher):
        for layer in (part[0], part[3]): fully_shard(layer, reshard_after_forward=True)
        fully_shard(part, reshard_after_forward=True)
    model = {"student": student, "teacher": teacher}
    trained = student.parameters()
    def loss_of(x):
        with torch.no_grad():
            for t, s in zip(teacher.parameters(), student.parameters()): t.data.mul_(0.9).add_(s.data * 0.1)
            goal = teacher(x)
        return F.mse_loss(student(x + 0.1 * torch.randn_like(x)), goal + x)
optimizer = torch.optim.AdamW(trained, lr=0.01)
run = Run("run", model=model, optimizer=optimizer, samples=48, batch_size=4, epochs=2, seed=3,
          options=Options(save_every=2, pace_s=0.03, keep=100))
loader = DataLoader(data, batch_sampler=run.batches())
with run:
    for epoch in run.epochs():
        for (x,) in loader:
            loss = apply(optimizer, loss_of(x))
            if ranks.rank == 0 and sys.argv[1] == "ddp":
                found = {k: v.numpy().tobytes() for k, v in learner.state_dict().items()}
                found = {k: hashlib.sha256(v).hexdigest() for k, v in found.items()}
                with open("truth.jsonl", "a") as file: file.write(json.dumps([run.step_now + 1, found]) + "\\n")
            run.step(loss)
parts = [model] if sys.argv[1] == "ddp" else [student, teacher]
states = [part.state_dict() for part in parts]
whole = [getattr(t, "full_tensor", lambda: t)() for state in states for t in state.values()]
with open(f"final-{ranks.rank}", "w") as file:
    file.write(hashlib.sha256(b"".join(t.numpy().tobytes() for t in whole)).hexdigest())
"""
)


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_a_teacher_of_several_ranks_survives_kills(
    trainers: Zygote, tmp_path: Path, kind: str
) -> None:
    for place in (tmp_path / "plain", tmp_path / "killed"):
        place.mkdir()
        (place / "train.py").write_text(RANKS)
    plain = forked(trainers, 2, tmp_path / "plain" / "train.py", kind)
    assert plain.wait() == [0, 0], plain.text()
    assert kind == "fsdp" or wrong(tmp_path / "plain") == []
    chance = random.Random(kind)
    for _ in range(max(2, KILLS // 4)):
        ranks = forked(trainers, 2, tmp_path / "killed" / "train.py", kind)
        if not ranks.each[0].wait_more_lines(chance.randint(8, LINES)):
            assert ranks.wait() == [0, 0], ranks.text()
            break  # there were more kills than steps
        ranks.each[chance.randrange(2)].kill()
        ranks.wait()
    ranks = forked(trainers, 2, tmp_path / "killed" / "train.py", kind)
    assert ranks.wait() == [0, 0], ranks.text()
    assert "the same bits" in ranks.text() or "already finished" in ranks.text()
    finals = {
        (place / f"final-{rank}").read_text() for place in tmp_path.iterdir() for rank in range(2)
    }
    assert len(finals) == 1
    assert losses(tmp_path / "killed" / "run") == losses(tmp_path / "plain" / "run")
