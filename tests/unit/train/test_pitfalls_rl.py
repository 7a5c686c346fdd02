"""R4 of the checklist: an off-policy run goes on with its replay buffer and running statistics, or it begins cold."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch
from rgt_train import UsageError
from rgt_train.checkpoint import RunState, encoding
from rgt_train.data.position import Progress

from tests.process.train.harness import assert_same
from tests.unit.train.test_exact import load, save

torch.set_num_threads(1)  # small tensors: more threads only wait for each other
GOAL = 5


class Memory:
    """A replay buffer with the running mean and spread of what was observed, as Welford counts them."""

    def __init__(self) -> None:
        self.moves: list[list[float]] = []
        self.count, self.mean, self.m2 = 0, 0.0, 0.0

    def add(self, cell: int, action: int, reward: float, then: int) -> None:
        self.moves = [*self.moves, [float(cell), float(action), reward, float(then)]][-64:]
        self.count += 1
        apart = cell - self.mean
        self.mean += apart / self.count
        self.m2 += apart * (cell - self.mean)

    def normal(self, cells: torch.Tensor) -> torch.Tensor:
        spread: float = (self.m2 / max(1, self.count) + 1e-6) ** 0.5
        return (cells - self.mean) / spread

    def state_dict(self) -> dict[str, Any]:
        return {
            "moves": torch.tensor(self.moves),
            "count": self.count,
            "mean": self.mean,
            "m2": self.m2,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.moves = state["moves"].tolist()
        self.count, self.mean, self.m2 = state["count"], state["mean"], state["m2"]


class Agent:
    """Q-learning with a slow target network on a row of cells, of which the last one pays."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.online, self.slow = torch.nn.Linear(1, 2), torch.nn.Linear(1, 2)
        self.slow.load_state_dict(self.online.state_dict())
        self.optimizer = torch.optim.Adam(self.online.parameters(), lr=0.05)
        self.memory, self.cell = Memory(), 0

    def state(self, *, with_memory: bool = True) -> RunState:
        others: dict[str, Any] = {"optimizer": self.optimizer}
        if with_memory:
            others["extra"] = encoding.own_state(self.memory)
        state = RunState({"online": self.online, "slow": self.slow}, others, Progress(), {}, {})
        state.optimizers = {"optimizer"}
        return state

    def learn(self, first: int, last: int) -> None:
        for step in range(first, last):
            draw = random.Random(step)
            action = draw.randrange(2)
            then = max(0, min(GOAL, self.cell + (1 if action else -1)))
            self.memory.add(self.cell, action, float(then == GOAL), then)
            self.cell = 0 if then == GOAL else then
            batch = torch.tensor(draw.choices(self.memory.moves, k=16))
            cells, actions, rewards, thens = batch.unbind(1)
            with torch.no_grad():
                best = self.slow(self.memory.normal(thens).unsqueeze(1)).max(1).values
                wanted = rewards + 0.9 * best * (thens != GOAL)
            told = self.online(self.memory.normal(cells).unsqueeze(1)).gather(
                1, actions.long().unsqueeze(1)
            )
            self.optimizer.zero_grad()
            torch.nn.functional.smooth_l1_loss(told.squeeze(1), wanted).backward()  # type: ignore[no-untyped-call]
            self.optimizer.step()
            if step % 10 == 9:
                self.slow.load_state_dict(self.online.state_dict())


def test_R4_a_replay_buffer_and_running_statistics_go_on(tmp_path: Path) -> None:  # noqa: N802
    def resumed(*, with_memory: bool) -> tuple[Agent, Agent, str]:
        whole, again = Agent(), Agent()
        whole.learn(0, 60)
        path = save(tmp_path / str(with_memory), whole.state(with_memory=with_memory))
        again.cell = whole.cell
        load(path, again.state(with_memory=with_memory))
        whole.learn(60, 90)
        again.learn(60, 90)
        return whole, again, path

    whole, warm, path = resumed(with_memory=True)
    assert_same(warm.online.state_dict(), whole.online.state_dict())
    assert_same(warm.memory.state_dict(), whole.memory.state_dict())
    whole, cold, _ = resumed(with_memory=False)
    assert not torch.allclose(cold.online.weight, whole.online.weight, atol=1e-3)
    with pytest.raises(
        UsageError, match=r"unexpected \['extra'\]"
    ):  # never left out without a word
        load(path, Agent().state(with_memory=False))
