"""A loop of collectives, with torch's flight recorder; FOLDER/RANK holds what a rank does at its next step.

Words: ``barrier`` (comes to a barrier where the others reduce), ``spin`` (in its own code, until the word is gone). A
thread beside it writes the recorder's dump where the environment says, as torch's own watchdog does for NCCL at a
time-out, as soon as FOLDER/dump is there.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist

from tests.process.train.parallel.hang_worker import told


def main(folder: Path) -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    threading.Thread(target=dump_when_asked, args=(folder, rank), daemon=True).start()
    step = 0
    while True:
        while (word := told(folder, rank)) == "spin":
            sum(number * number for number in range(20_000))
            time.sleep(0.01)
        if word == "barrier":
            dist.barrier()
        dist.all_reduce(torch.ones(8))
        step += 1
        (folder / f"step-{rank}.new").write_text(str(step))
        (folder / f"step-{rank}.new").replace(folder / f"step-{rank}")
        time.sleep(0.02)


def dump_when_asked(folder: Path, rank: int) -> None:
    place = os.environ["TORCH_FR_DUMP_TEMP_FILE"] + str(rank)
    while True:
        if (folder / "dump").exists() and not os.path.exists(place):
            data = torch._C._distributed_c10d._dump_fr_trace()  # type: ignore[attr-defined]
            Path(f"{place}.new").write_bytes(data)
            os.replace(f"{place}.new", place)
        time.sleep(0.05)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
