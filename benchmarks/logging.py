"""What logging costs a training step: six scalars to metrics.jsonl and TensorBoard, beside torch's SummaryWriter."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from pathlib import Path

from benchmarks.report import BenchmarkError, Row, main, say

NAME = "logging"
ROOT = Path(__file__).resolve().parent.parent
PYTHON = ROOT / ".venv-frameworks" / "bin" / "python"
"""Has TensorBoard, which SummaryWriter needs (`make frameworks`)."""
GOAL_US = 25.0

MEASURE = """
import json, sys, tempfile, time
steps, rounds = int(sys.argv[1]), int(sys.argv[2])
sys.path.insert(0, sys.argv[3])
from rgt_train.tracking.report import EventFile
from rgt_train.tracking.report import RunReport

VALUES = {"loss": 1.25, "lr": 3e-4, "grad_norm": 0.51, "tok_s": 41200.0, "temp": 61.0, "mem": 0.83}

def ours_json(folder):
    report = RunReport(folder)
    return lambda step: report.record_point(step, step / 100, **VALUES), report.close

def ours_events(folder):
    events = EventFile(folder)
    return lambda step: events.record_point(step, time.time(), VALUES), events.close

def ours(folder):
    report = RunReport(folder)
    report.add_sinks([EventFile(folder + "/tensorboard")])
    return lambda step: report.record_point(step, step / 100, **VALUES), report.close

def theirs(folder, flush=False):
    from torch.utils.tensorboard import SummaryWriter
    writer = SummaryWriter(folder)
    def log(step):
        for name, value in VALUES.items():
            writer.add_scalar(name, value, step)
        if flush:
            writer.flush()
    return log, writer.close

kinds = {"jsonl": ours_json, "events": ours_events, "ours": ours}
try:
    import tensorboard
    kinds.update(summary_writer=theirs, summary_writer_flushed=lambda folder: theirs(folder, True))
except ImportError:
    pass
spent = {name: [] for name in kinds}
for turn in range(rounds + 1):
    for name, make in kinds.items():
        count = steps if name != "summary_writer_flushed" else max(50, steps // 5)
        with tempfile.TemporaryDirectory() as folder:
            log, close = make(folder)
            log(0)
            start = time.perf_counter()
            for step in range(1, count + 1):
                log(step)
            seconds = time.perf_counter() - start
            close()
        if turn:  # the first is to warm up
            spent[name].append(seconds / count * 1e6)
print(json.dumps(spent))
"""


def run(quick: bool) -> list[Row]:
    """Measures all of them in turn, in one process; the median over rounds of some thousand steps counts."""
    if PYTHON.exists():
        python = PYTHON
    else:
        python = Path(sys.executable)
    if python != PYTHON:
        say(f"{NAME}: SummaryWriter is left out: it needs TensorBoard (make frameworks)")
    if quick:
        arguments = ["400", "5"]
    else:
        arguments = ["3000", "9"]
    done = subprocess.run(
        [str(python), "-c", MEASURE, *arguments, str(ROOT / "remote")],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise BenchmarkError(f"the measurement ended with {done.returncode}: {done.stderr[-500:]}")
    spent: dict[str, list[float]] = json.loads(done.stdout.splitlines()[-1])
    middle = {name: statistics.median(values) for name, values in spent.items()}
    other = middle.get("summary_writer")
    if other:
        of = "SummaryWriter, the same six scalars, not flushed"
    else:
        of = None
    rows = [
        Row(
            "us_per_step",
            middle["ours"],
            "us",
            middle["ours"] / other if other else None,
            of,
            goal=GOAL_US,
        ),
        Row("us_per_step_jsonl_only", middle["jsonl"], "us"),
        Row("us_per_step_events_only", middle["events"], "us"),
    ]
    if other:
        rows.append(Row("summary_writer_us_per_step", other, "us"))
        rows.append(
            Row("summary_writer_flushed_us_per_step", middle["summary_writer_flushed"], "us")
        )
    say(f"{NAME}: every line is on its way to the disk when the call returns")
    return rows


if __name__ == "__main__":
    sys.exit(main(NAME, run))
