"""What the ranks of the tests do: SCENARIO FOLDER. Each rank writes FOLDER/rank-N.json."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import torch.distributed as dist
from rgt_train import StopRequest
from rgt_train.exits import RanksError
from rgt_train.ranks.launch import STOP
from rgt_train.ranks.torch_ranks import TorchRanks

VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
TIMEOUT_S = 10.0
"""Of the scenario in which a rank does not come; the others must come to it within that time."""


def talk(ranks: TorchRanks, folder: Path) -> dict[str, Any]:
    """Every kind of agreement once."""
    return {
        "agreed": ranks.agree_on_flags(1 << ranks.rank),
        "gathered": ranks.gather_on_writer({"rank": ranks.rank}),
        "shared": ranks.share_from_writer(f"from {ranks.rank}"),
        "all": ranks.all_gather(ranks.rank),
        "device": str(ranks.device),
        "local": ranks.launch.local_rank,
        "nodes": ranks.nodes,
    }


def spawned(folder: Path) -> dict[str, Any]:
    """A group that a program has made by itself, without any variable of a launcher."""
    env = {name: os.environ.pop(name) for name in VARIABLES}
    where = f"tcp://{env['MASTER_ADDR']}:{env['MASTER_PORT']}"
    dist.init_process_group(
        "gloo", init_method=where, rank=int(env["RANK"]), world_size=int(env["WORLD_SIZE"])
    )
    ranks = TorchRanks(timeout_s=120)
    found = {
        **talk(ranks, folder),
        "rank": ranks.rank,
        "world": ranks.world,
        "writes": ranks.is_writer,
    }
    dist.destroy_process_group()
    return found


def stop(ranks: TorchRanks, folder: Path) -> dict[str, Any]:
    """Steps until some rank was asked to stop."""
    request = StopRequest()
    (folder / f"pid-{ranks.rank}").write_text(str(os.getpid()))
    step = 0
    while True:
        step += 1
        if ranks.agree_on_flags(STOP if request.requested else 0) & STOP:
            return {"stopped": step, "asked": request.name}


def lose(ranks: TorchRanks, folder: Path) -> dict[str, Any]:
    """Goes on until a rank is gone."""
    (folder / f"pid-{ranks.rank}").write_text(str(os.getpid()))
    try:
        while True:
            ranks.agree_on_flags(0)
    except RanksError as error:
        return {"error": str(error)}


def absent(ranks: TorchRanks, folder: Path) -> dict[str, Any]:
    """Rank 1 lives on and does not come; the others name it, and it never gets any further."""
    ranks.agree_on_flags(0)
    if ranks.rank == 1:
        threading.Event().wait()
    try:
        ranks.share_from_writer("what they wait for")
    except RanksError as error:
        return {"error": str(error)}
    return {}


def main() -> None:
    """Run a scenario and write down what came of it."""
    name, folder = sys.argv[1], Path(sys.argv[2])
    rank = int(os.environ["RANK"])
    if name == "spawned":
        result = spawned(folder)
    else:
        ranks = TorchRanks(timeout_s=TIMEOUT_S if name == "absent" else 60)
        result = {"talk": talk, "stop": stop, "lose": lose, "absent": absent}[name](ranks, folder)
    (folder / f"rank-{rank}.json").write_text(json.dumps(result))
    while name == "absent" and rank == 0 and not (folder / "rank-2.json").exists():
        time.sleep(0.05)  # where the ranks found each other there is still somebody to ask
    if name in ("talk", "stop"):
        ranks.close()
        assert not dist.is_initialized()


if __name__ == "__main__":
    main()
