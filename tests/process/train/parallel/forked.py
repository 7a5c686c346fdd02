"""Ranks that are forked from a process that has imported torch: a launch takes a second, one of torchrun ten."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.free_ports import free_port
from tests.process.train.harness import Trainer, Zygote


@dataclass(frozen=True)
class Ranks:
    """The processes of one launch, by rank."""

    each: list[Trainer]

    def wait(self) -> list[int]:
        """Wait for the end of all; return their exit codes by rank."""
        return [trainer.wait() for trainer in self.each]

    def text(self) -> str:
        """Return what they said, one rank after the other."""
        return "\n".join(trainer.text() for trainer in self.each)


def variables(rank: int, world: int, port: int) -> dict[str, str]:
    """Return what torchrun would set for one rank on one machine."""
    return {
        "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world), "LOCAL_WORLD_SIZE": str(world),
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "TORCHELASTIC_RESTART_COUNT": "0",
    }  # fmt: skip


def forked(
    trainers: Zygote,
    world: int,
    script: str | Path,
    *words: str,
    background: bool = True,
    brake: int | None = None,
) -> Ranks:
    """Start a script on so many ranks, with the variables that torchrun would set; `brake` is that of `Zygote.launch`.

    It is the first rank that waits, and the others for it.
    """
    path, port = Path(script).resolve(), free_port()

    def start(rank: int) -> Trainer:
        env = variables(rank, world, port)
        return trainers.launch_script(
            path, *words, background=background, env=env, brake=None if rank else brake
        )

    return Ranks([start(rank) for rank in range(world)])


def commanded(trainers: Zygote, world: int, *words: str, brake: int | None = None) -> Ranks:
    """Start ``rgt_train`` with these words on so many ranks; for `brake` see `forked`."""
    port = free_port()

    def start(rank: int) -> Trainer:
        return trainers.launch_raw(
            list(words), env=variables(rank, world, port), brake=None if rank else brake
        )

    return Ranks([start(rank) for rank in range(world)])
