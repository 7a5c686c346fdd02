"""A process that writes into a history as hard as it can and says, batch by batch, what is on the disk.

Arguments: file, name of a box, number of the first batch, how many (0 = until it is killed).
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from msgspec.structs import replace

from rgt_tui.store import HistoryFile, database
from rgt_tui.store.database import HistoryUnavailable
from tests.contract.store.worlds import batch, spec

START = 1_790_000_000.0


def main() -> None:
    # Four write without a pause: one may wait for long.
    database.DATABASE = replace(database.DATABASE, busy_s=100.0)
    path, name, first, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    file = HistoryFile(path, clock=lambda: START)
    file.adopt_boxes([spec(name)])
    file.recall_states()
    number = first
    while not count or number < first + count:
        try:
            file.commit_batch(batch([name], number, at=START))
        except HistoryUnavailable as error:
            print("trouble", error, flush=True)
            time.sleep(0.01)
            continue
        print(number, flush=True)
        if number % 7 == 0:
            file.run_upkeep(force=True)
        number += 1
    file.close()


if __name__ == "__main__":
    main()
