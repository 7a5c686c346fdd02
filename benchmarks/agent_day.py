"""A day of the recorder in a minute: `python -m benchmarks.agent_day FOLDER TRACE HOURS` prints memory along the way.

The clock that the samplers see is moved on by a second per sample, so that all that happens every
few seconds or minutes happens as often as in a real day.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from pathlib import Path

from benchmarks.agent_box import rss_mib


def main(folder: str, trace: str, hours: float) -> None:
    """Record, read back, compress, and print resident MiB after a tenth of the time and at its end."""
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "remote"))
    from rgt_box import place
    from rgt_box.recorder import ring
    from rgt_box.recorder.ring_history import ChainReader, HistoryStore
    from rgt_box.sampling.sampler import BoxSampler
    from rgt_box.streams.pipes import FrameOutbox
    from rgt_box.streams.sample_source import Coalescer

    real, moved = time.monotonic, 0.0
    time.monotonic = lambda: real() + moved
    store = HistoryStore(folder, place.boot_id())
    sampler = BoxSampler(folder)
    sampler.configure({"mounts": ["/"], "pattern": None, "gpu_trace": trace}, [])
    reader = ChainReader(folder)
    reader.seek_after(place.boot_id(), 0)
    coalescer = Coalescer(place.boot_id(), 0)
    outbox = FrameOutbox(os.open(os.devnull, os.O_WRONLY))
    outbox.start_compression()
    pid = int(Path("/proc/self").resolve().name)
    base = rss_mib(pid)
    seen = []
    ticks = int(hours * 3600)
    for tick in range(1, ticks + 1):
        moved += 1.0
        fields, _ = sampler.read()
        store.append_frame(ring.SAMPLE, dict({"t": "sample"}, **fields))
        store.add_segment()
        for line in coalescer.lines_to_send(reader.read_records(), False):
            outbox.add_frame(line)
        outbox.flush()
        if tick in (ticks // 10, ticks):
            gc.collect()
            seen.append(rss_mib(pid))
    print(json.dumps({"start": base, "tenth": seen[0], "end": seen[1]}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]))
