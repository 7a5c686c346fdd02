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


def forked(trainers: Zygote, world: int, script: str | Path, *words: str, background: bool = True) -> Ranks:
    """Start a script on so many ranks, with the variables that torchrun would set."""
    port = free_port()
    return Ranks(
        [
            trainers.launch_script(
                Path(script).resolve(), *words, background=background, env=variables(rank, world, port)
            )
            for rank in range(world)
        ]
    )


def commanded(trainers: Zygote, world: int, *words: str) -> Ranks:
    """Start ``rgt_train`` with these words on so many ranks."""
    port = free_port()
    return Ranks(
        [trainers.launch_raw(list(words), env=variables(rank, world, port)) for rank in range(world)]
    )
