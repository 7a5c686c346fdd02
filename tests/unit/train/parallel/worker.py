"""What the ranks of the tests do, started by torchrun: SCENARIO FOLDER. Each rank writes FOLDER/rank-N.json."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from rgt_train.parallel import fingerprint
from rgt_train.parallel.torch_ranks import TorchRanks
from rgt_train.ranks import STOP, RanksError
from rgt_train.signals import StopRequest


def talk(ranks: TorchRanks, folder: Path) -> dict[str, Any]:
    """Every kind of agreement once."""
    return {
        "agreed": ranks.agree(1 << ranks.rank),
        "gathered": ranks.gather({"rank": ranks.rank}),
        "shared": ranks.share(f"from {ranks.rank}"),
        "all": ranks.all_gather(ranks.rank),
        "device": str(ranks.device),
        "local": ranks.launch.local_rank,
        "nodes": ranks.nodes,
    }


def stop(ranks: TorchRanks, folder: Path) -> dict[str, Any]:
    """Steps until some rank was asked to stop."""
    request = StopRequest()
    (folder / f"pid-{ranks.rank}").write_text(str(os.getpid()))
    step = 0
    while True:
        step += 1
        if ranks.agree(STOP if request.requested else 0) & STOP:
            return {"stopped": step, "asked": request.name}


def lose(ranks: TorchRanks, folder: Path) -> dict[str, Any]:
    """Goes on until a rank is gone."""
    (folder / f"pid-{ranks.rank}").write_text(str(os.getpid()))
    try:
        while True:
            ranks.agree(0)
    except RanksError as error:
        return {"error": str(error)}


def absent(ranks: TorchRanks, folder: Path) -> dict[str, Any]:
    """Rank 1 does not come to the meeting in time; rank 0 names it."""
    if ranks.rank == 1:
        time.sleep(4)  # longer than the time-out: being late is what is tried here
        return {}
    try:
        ranks.meet("the save of step 7")
    except RanksError as error:
        return {"error": str(error)}
    return {}


def prints(ranks: TorchRanks, folder: Path) -> dict[str, Any]:
    """The same replica everywhere, then one bit of rank 1's is another."""
    torch.manual_seed(3)
    tensors = {"w": torch.randn(1000), "b": torch.arange(7)}
    same = fingerprint.differences(ranks.all_gather((5, fingerprint.of_state(tensors))))
    if ranks.rank == 1:
        tensors["w"].view(torch.int32)[501] ^= 1
    other = fingerprint.differences(ranks.all_gather((5, fingerprint.of_state(tensors))))
    late = fingerprint.differences(ranks.all_gather((5 + ranks.rank, {})))
    return {"same": same, "other": other, "late": late}


def main() -> None:
    """Run a scenario and write down what came of it."""
    folder = Path(sys.argv[2])
    ranks = TorchRanks(timeout_s=float(os.environ.get("RGT_TEST_TIMEOUT", "60")))
    result = {"talk": talk, "stop": stop, "lose": lose, "absent": absent, "prints": prints}[sys.argv[1]](
        ranks, folder
    )
    (folder / f"rank-{ranks.rank}.json").write_text(json.dumps(result))
    if "error" not in result and sys.argv[1] != "absent":
        ranks.close()
        assert not dist.is_initialized()


if __name__ == "__main__":
    main()
