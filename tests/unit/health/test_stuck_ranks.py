"""Which rank is named, and which of the nearest cases that are no hang is left alone."""

from __future__ import annotations

import threading
from typing import Any

import msgspec
import pytest
from rgt_box import procstat
from rgt_box.sampling import rank_waits

from rgt_tui.health import covered_alert_ids, diagnose_box
from rgt_tui.model import Finding, Heartbeat, LostRank, RankReading, Severity, TrainingProcess
from tests.unit.triage.builders import LOG, NOW, box, cell, log, queue, run, sample


def rank(number: int, *, world: int = 3, state: str = "S", **over: Any) -> TrainingProcess:
    base = RankReading(rank=number, world=world, group="a", still_s=60.0, wait="futex_do_wait")
    reading = msgspec.structs.replace(base, **over)
    return TrainingProcess(
        pid=100 + number,
        started=NOW - 900,
        cmd="python t.py",
        state=state,
        run="lstm-b",
        dist=reading,
    )


def found(
    *procs: TrainingProcess, quiet: float | None = None, silent: float | None = None
) -> list[tuple[str, str]]:
    runs = () if quiet is None else (run(progressed_at=NOW - quiet),)
    logs = () if silent is None else (msgspec.structs.replace(log("x", path=LOG), at=NOW - silent),)
    state = box(
        sample=sample(procs=procs), sample_at=NOW, queues=(queue(cell()),), runs=runs, logs=logs
    )
    return [(finding.gotcha, finding.resource) for finding in diagnose_box(state, NOW, ())]


GONE: dict[str, Any] = {"lost": (LostRank(2, 77),)}
SLEEPS: dict[str, Any] = {"wait": "hrtimer_nanosleep"}
SPINS: dict[str, Any] = {"still_s": 0.0, "spin_s": 400.0, "wait": None}
MOVES: dict[str, Any] = {"still_s": 0.0, "wait": None}


@pytest.mark.parametrize(
    ("procs", "named"),
    [
        (
            (rank(0), rank(1, state="T", wait="do_signal_stop"), rank(2)),
            ("HANG1", "rank 1 of 3 (pid 101)"),
        ),
        ((rank(0, **GONE), rank(1, **GONE)), ("D20", "rank 2 of 3 (pid 77)")),
        ((rank(0, lost=(LostRank(2),)), rank(1)), ("D20", "rank 2 of 3")),
        ((rank(0), rank(1, **SLEEPS), rank(2)), ("HANG2", "rank 1 of 3 (pid 101)")),
        ((rank(0, world=2), rank(1, world=2, **SLEEPS)), ("HANG2", "rank 1 of 2 (pid 101)")),
    ],
)
def test_what_does_not_run_at_all_is_named_soon(
    procs: tuple[TrainingProcess, ...], named: tuple[str, str]
) -> None:
    assert found(*procs) == [named]
    assert found(*procs, quiet=50.0) == [named]
    assert found(*procs, quiet=5.0) == []  # the loss goes on


@pytest.mark.parametrize(
    "procs",
    [
        (rank(0), rank(1, **MOVES), rank(2)),
        (rank(0, state="T"), rank(1, state="T"), rank(2, state="T")),
        (rank(0, still_s=10.0), rank(1, state="T"), rank(2)),
        (rank(0), rank(1, still_s=25.0, **SLEEPS), rank(2)),
        (rank(0, state="D", wait="folio_wait_bit_common"), rank(1), rank(2)),
        (rank(0, wait="do_poll.constprop.0"), rank(1), rank(2)),
        (rank(0, **GONE),),
        (rank(0, wait="folio_wait_bit_common", **GONE), rank(1, **GONE)),
        (rank(0, still_s=None, wait=None), rank(1, still_s=None, wait=None)),
        (rank(0), rank(1), rank(2)),
    ],
    ids=["works", "all-stopped", "came-just-now", "sleeps-briefly", "saves", "loads", "last-one-uploads",
         "saves-at-its-end", "cannot-be-read", "all-wait"],
)  # fmt: skip
def test_slow_evaluating_and_saving_are_no_hang(procs: tuple[TrainingProcess, ...]) -> None:
    assert found(*procs) == []
    assert found(*procs, quiet=100.0, silent=100.0) == []


OLD = 400.0
DISK: dict[str, Any] = {"state": "D", "wait": "rpc_wait_bit_killable", "still_s": OLD}
LATE = (rank(1, still_s=OLD), rank(2, still_s=OLD))
SPUN = (rank(0, **SPINS), rank(1, **SPINS))


@pytest.mark.parametrize(
    ("procs", "named", "why"),
    [
        (
            (rank(0, **DISK), *LATE),
            "HANG2",
            "a disk or a file server (state D) (rpc_wait_bit_killable)",
        ),
        ((rank(0, **SPINS), *LATE), "HANG2", "computes by itself"),
        ((*SPUN, rank(2, wait="pipe_read", still_s=OLD)), "HANG2", "loader worker (pipe_read)"),
        ((rank(0, still_s=OLD), *LATE), "D19", "all 3 ranks here wait"),
        ((*SPUN, rank(2, **SPINS)), "D19", "all 3 ranks here wait"),
    ],
)
def test_the_others_are_named_once_nothing_has_moved_for_minutes(
    procs: tuple[TrainingProcess, ...], named: str, why: str
) -> None:
    assert [id_ for id_, _ in found(*procs, quiet=OLD, silent=OLD)] == [named]
    assert found(*procs, quiet=OLD, silent=20.0) == []  # the log goes on: it evaluates
    assert found(*procs) == []  # nobody knows whether it advances
    state = box(
        sample=sample(procs=procs),
        sample_at=NOW,
        queues=(),
        logs=(),
        runs=(run(progressed_at=NOW - OLD),),
    )
    (finding,) = diagnose_box(state, NOW, ())
    assert why in finding.evidence
    assert finding.confidence == 0.6


def test_two_launches_are_judged_apart() -> None:
    other = [msgspec.structs.replace(rank(n, group="b", **MOVES), pid=200 + n) for n in range(3)]
    assert found(rank(0), rank(1, state="T"), rank(2), *other) == [
        ("HANG1", "rank 1 of 3 (pid 101)")
    ]


def test_the_flight_recorder_is_offered_where_it_has_written() -> None:
    procs = (rank(0, dump="/my dumps/fr_0"), rank(1, **SLEEPS), rank(2))
    state = box(sample=sample(procs=procs), sample_at=NOW, queues=(), logs=(), runs=())
    (finding,) = diagnose_box(state, NOW, ())
    assert "torchfrtrace '/my dumps' --prefix fr_" in [fix.command for fix in finding.fixes]


def flight(
    number: int, *, through: bool = False, age: float = 30.0, opened: float = 0.0
) -> dict[str, Any]:
    """Return what a rank's flight recorder shows that has come to collective `number`."""
    state = "completed" if through else "started"
    entry = {
        "collective_seq_id": number, "profiling_name": "nccl:all_reduce", "process_group": ["0", "default_pg"],
        "state": state, "input_sizes": [[8]], "input_dtypes": ["Float"],
    }  # fmt: skip
    config = {"0": {"ranks": "[0, 1, 2]"}}
    return {
        "version": "2.10",
        "entries": [entry],
        "pg_config": config,
        "age_s": age,
        "open_s": opened,
    }


BEHIND = flight(4, through=True)


@pytest.mark.parametrize(
    ("procs", "named", "confidence"),
    [
        # By the kernel alone all wait, and none is named.
        (
            (rank(0, flight=flight(5)), rank(1, flight=BEHIND), rank(2, flight=flight(5))),
            "rank 1 of 3 (pid 101)",
            0.95,
        ),
        (
            (rank(0, flight=flight(5)), rank(1, **MOVES, flight=BEHIND), rank(2)),
            "rank 1 of 3 (pid 101)",
            0.95,
        ),
        (
            (rank(0, flight=flight(5)), rank(1), rank(2, flight=flight(5))),
            "rank 1 of 3 (pid 101)",
            0.8,
        ),
        (
            (rank(0, flight=flight(5)), rank(2, flight=flight(5))),
            "rank 1 of 3",
            0.8,
        ),  # on another machine
        (tuple(rank(n, flight=flight(5)) for n in range(3)), "all ranks of 3", 0.8),
        ((rank(0, flight=flight(5)), rank(1), rank(2)), "all ranks of 3", 0.5),
    ],
)
def test_flight_recorders_name_the_rank(
    procs: tuple[TrainingProcess, ...], named: str, confidence: float
) -> None:
    state = box(sample=sample(procs=procs), sample_at=NOW, queues=(), logs=(), runs=())
    (finding,) = diagnose_box(state, NOW, ())
    assert (finding.resource, finding.confidence) == (named, confidence)
    assert "; flight recorder: " in finding.evidence
    assert "collective 5 of group 0 (default_pg) (all_reduce of [8] Float)" in finding.evidence
    assert found(*procs, quiet=5.0) == []  # the curve goes on: it is of earlier


def spun(number: int, at: int, **over: Any) -> TrainingProcess:
    return rank(number, **SPINS, flight=flight(at, **{"through": at == 4, **over}))


@pytest.mark.parametrize(
    ("procs", "quiet", "named"),
    [
        ((rank(0, still_s=60.0, flight=flight(5, age=70.0)), rank(1, flight=BEHIND)), None, True),
        (
            (rank(0, still_s=50.0, flight=flight(5, age=70.0)), rank(1, **MOVES, flight=BEHIND)),
            None,
            False,
        ),
        (
            (
                rank(0, still_s=15.0, flight=flight(5, age=1.0)),
                rank(1, still_s=15.0, flight=BEHIND),
            ),
            None,
            False,
        ),
        ((spun(0, 5), spun(1, 4)), 25.0, True),
        ((spun(0, 5, age=50.0), spun(1, 4, age=50.0)), 25.0, False),
        ((spun(0, 5), spun(1, 4)), None, False),  # whether it goes on nobody knows
        ((spun(0, 5, opened=600.0), spun(1, 4)), None, True),  # as at a time-out
        ((spun(0, 5, opened=600.0, age=350.0), spun(1, 4, age=350.0)), None, False),
        (
            (rank(0, **MOVES, flight=flight(5, opened=600.0)), rank(1, **MOVES, flight=BEHIND)),
            None,
            False,
        ),
        (
            (rank(0, flight={"age_s": 30.0}), rank(1, flight={"age_s": "x", "entries": 3})),
            None,
            False,
        ),
    ],
)
def test_a_dump_counts_only_while_nothing_has_gone_on_since(
    procs: tuple[TrainingProcess, ...], quiet: float | None, named: bool
) -> None:
    shown = [resource for _, resource in found(*procs, quiet=quiet)]
    assert shown == (["rank 1 of 3 (pid 101)"] if named else [])


def test_where_there_is_no_curve_the_log_tells_whether_ranks_that_compute_go_on() -> None:
    procs = (spun(0, 5, opened=600.0), spun(1, 4))
    assert found(*procs, silent=60.0) == [("HANG2", "rank 1 of 3 (pid 101)")]
    assert found(*procs, silent=5.0) == []


def test_nccl_names_a_rank_that_computes_while_the_others_do_too() -> None:
    counts = [
        {"rank": at, "pid": 100 + at, "collective_counts": {"AllReduce": 64 - 4 * (at == 1)}}
        for at in (0, 1)
    ]
    ras = {
        "nccl_version": "2.29.1",
        "communicators": [{"size": 3, "ranks": counts, "missing_ranks": []}],
    }
    procs = (rank(0, **SPINS, ras=ras), rank(1, **SPINS), rank(2, **SPINS))
    state = box(sample=sample(procs=procs), sample_at=NOW, queues=(), logs=(), runs=())
    (finding,) = diagnose_box(state, NOW, ())
    assert (finding.resource, finding.confidence) == ("rank 1 of 3 (pid 101)", 0.8)
    assert "; ncclras: rank 1 " in finding.evidence
    assert "came to AllReduce operation 60, others to 64" in finding.evidence
    assert "second look" not in finding.evidence
    assert found(*procs, quiet=5.0) == []


def test_what_is_stopped_stays_the_cause_and_the_recorder_says_where() -> None:
    procs = (rank(0, flight=flight(5)), rank(1, state="T"), rank(2, flight=flight(5)))
    state = box(sample=sample(procs=procs), sample_at=NOW, queues=(), logs=(), runs=())
    (finding,) = diagnose_box(state, NOW, ())
    assert finding.gotcha == "HANG1"
    assert finding.evidence.endswith("no dump of rank 1 was given")


def test_a_rank_that_saves_is_no_hang_by_its_dump_either() -> None:
    beat = Heartbeat(phase="checkpoint", for_s=60.0, step=5, step_s=60.0, steps=9)
    wait = Heartbeat(phase="collective", for_s=60.0, step=5, step_s=60.0, steps=9)
    procs = (
        rank(0, **MOVES, beat=beat, flight=BEHIND),
        rank(1, beat=wait, flight=flight(5)),
        rank(2, beat=wait, flight=flight(5)),
    )
    assert found(*procs) == []


def test_the_finding_stands_for_the_alerts_that_it_explains() -> None:
    finding = Finding(
        "HANG1", "t", Severity.FATAL, "rank 1 of 3 (pid 101)", "e", "sample", run="lstm-b"
    )
    assert covered_alert_ids((finding,)) == {"halted:101", "stalled:lstm-b", "gpu-spins:lstm-b"}


def proc(pid: int, **over: Any) -> dict[str, Any]:
    return {"pid": pid, "started": 1000.0, "cmd": "python t.py", "state": "S"} | over


TORCH = {
    "RANK": "1",
    "WORLD_SIZE": "4",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "2",
    "MASTER_PORT": "1",
}


@pytest.mark.parametrize(
    ("env", "cmd", "expected"),
    [
        (TORCH, "python t.py", (1, 4)),
        ({"RANK": "1", "WORLD_SIZE": "4"}, "python t.py", (1, 4)),
        ({"RANK": "1", "WORLD_SIZE": "4"}, "python -m torch.distributed.run t.py", None),
        ({"RANK": "1", "WORLD_SIZE": "4"}, "/usr/bin/torchrun t.py", None),
        ({"RANK": "0", "WORLD_SIZE": "1"}, "python t.py", None),
        ({"RANK": "9", "WORLD_SIZE": "4"}, "python t.py", None),
        ({"RANK": "x", "WORLD_SIZE": "²"}, "python t.py", None),
        ({"SLURM_PROCID": "3", "SLURM_NTASKS": "8"}, "python t.py", (3, 8)),
        ({"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2"}, "python t.py", (0, 2)),
        ({}, "python t.py", None),
    ],
)
def test_who_is_a_rank(
    env: dict[str, str], cmd: str, expected: tuple[int, int] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = b"\0".join(f"{name}={value}".encode() for name, value in env.items())
    monkeypatch.setattr(procstat, "read_whole", lambda path, limit: raw)
    member = rank_waits.read_rank(7, 1000.0, cmd)
    assert (None if member is None else (member.rank, member.world)) == expected


class Kernel:
    """What /proc says, by process: environment, main thread's nanoseconds and time slices, where it waits."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.env: dict[int, dict[str, str]] = {}
        self.ran: dict[int, tuple[int, int]] = {}
        monkeypatch.setattr(procstat, "read_whole", self._environ)
        monkeypatch.setattr(procstat, "read_bytes", self._file)

    def _environ(self, path: str, limit: int) -> bytes | None:
        env = self.env.get(int(path.split("/")[2]), {})
        return b"\0".join(f"{name}={value}".encode() for name, value in env.items())

    def _file(self, path: str, limit: int = 0) -> bytes | None:
        pid, name = int(path.split("/")[2]), path.rsplit("/", 1)[1]
        texts = {
            "schedstat": "{} 5 {}".format(*self.ran.get(pid, (0, 0))),
            "wchan": "futex_do_wait",
            "stack": "[<0>] futex_do_wait+0x3a/0x60\n[<0>] __futex_wait+0x9\n",
        }
        return texts.get(name, "").encode()


def test_standing_still_is_counted_and_a_child_of_a_rank_is_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kernel, watch = Kernel(monkeypatch), rank_waits.RankWatch()
    kernel.env = {
        pid: {**TORCH, "RANK": str(n), "LOCAL_RANK": str(n)} for pid, n in ((5, 0), (6, 1), (9, 1))
    }
    kernel.ran = {5: (100, 7), 6: (100, 3), 9: (1, 1)}

    def look(now: float, *pids: int) -> dict[int, Any]:
        procs = [proc(pid, started=1000.0 + pid) for pid in pids]
        watch.add_rank_readings(procs, now)
        return {one["pid"]: one.get("dist") for one in procs}

    first = look(100.0, 9, 5, 6)
    assert first[9] is None  # younger than 6, and of the same rank: it inherited the environment
    assert (first[5]["still_s"], first[6]["still_s"]) == (0.0, 0.0)
    kernel.ran[6] = (100 + 4_900_000_000, 4)
    second = look(105.0, 9, 5, 6)
    assert (second[5]["still_s"], second[5]["wait"]) == (5.0, "futex_do_wait")
    assert (second[6]["still_s"], second[6]["spin_s"]) == (0.0, 5.0)
    assert look(107.0, 5, 6)[5]["still_s"] == 5.0  # not read again so soon
    third = look(120.0, 5, 6)
    assert (third[5]["still_s"], third[5]["stack"]) == (20.0, "futex_do_wait < __futex_wait")
    assert "spin_s" not in third[6]
    assert look(125.0, 5)[5]["lost"] == [[1, 6]]
    # One that was never seen is missed, too, where the launcher says how many belong here.
    fresh = rank_waits.RankWatch()
    procs = [proc(5)]
    fresh.add_rank_readings(procs, 1.0)
    assert procs[0]["dist"]["lost"] == [[1, None]]


@pytest.mark.parametrize("local", ["9999999", "100000", "600"])
def test_a_number_of_ranks_that_no_machine_has_is_not_believed(
    monkeypatch: pytest.MonkeyPatch, local: str
) -> None:
    """Any user's process may say so; a list of ten million ranks took 1.3 GB, beside somebody's training."""
    kernel, watch = Kernel(monkeypatch), rank_waits.RankWatch()
    kernel.env = {
        5: {"RANK": "0", "WORLD_SIZE": "9999999", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": local}
    }
    procs = [proc(5)]
    watch.add_rank_readings(procs, 100.0)
    assert (procs[0]["dist"]["rank"], procs[0]["dist"].get("lost")) == (0, None)


def test_of_many_lost_ranks_the_first_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, watch = Kernel(monkeypatch), rank_waits.RankWatch()
    kernel.env = {
        5: {"RANK": "0", "WORLD_SIZE": "512", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "512"}
    }
    procs = [proc(5)]
    watch.add_rank_readings(procs, 100.0)
    assert procs[0]["dist"]["lost"] == [[rank, None] for rank in range(1, 1 + rank_waits.MOST)]


def test_a_directory_of_dumps_that_hangs_keeps_nobody_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kernel, watch = Kernel(monkeypatch), rank_waits.RankWatch()
    kernel.env = {5: {**TORCH, "RANK": "0", "LOCAL_RANK": "0"}}
    hung = threading.Event()
    monkeypatch.setattr(rank_waits, "_is_newer", lambda path, than: hung.wait(600))
    procs = [proc(5)]
    watch.add_rank_readings(procs, 100.0)
    watch.add_rank_readings(procs, 110.0)
    assert procs[0]["dist"].get("dump") is None
    hung.set()
    monkeypatch.setattr(rank_waits, "DUMP_WAIT", 60.0)
    watch.add_rank_readings(procs, 120.0)
    assert procs[0]["dist"]["dump"].endswith("_0")


def test_without_schedstat_the_switches_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {
        "/proc/5/schedstat": b"0 0 0",
        "/proc/5/status": b"Name:\tx\nvoluntary_ctxt_switches:\t9\nnonvoluntary_ctxt_switches:\t2\n",
        "/proc/5/task/5/stat": b"5 (a) b) S 1 5 5 0 -1 0 0 0 0 0 7 5 0 0 20 0 3 0 999",
    }
    monkeypatch.setattr(procstat, "read_bytes", lambda path, limit: texts.get(path))
    ticks = 12
    assert rank_waits.read_run_time(5) == (ticks * 10_000_000, 11 + ticks)
    assert rank_waits.read_run_time(6) is None


@pytest.mark.parametrize("pid", [-1, 0, 1])
def test_a_pid_that_stands_for_many_processes_is_in_no_command(pid: int) -> None:
    odd = msgspec.structs.replace(rank(1, state="T"), pid=pid)
    state = box(
        sample=sample(procs=(rank(0), odd, rank(2))), sample_at=NOW, queues=(), logs=(), runs=()
    )
    (finding,) = diagnose_box(state, NOW, ())
    commands = " ".join(fix.command or "" for fix in finding.fixes)
    assert "kill" not in commands
    assert str(pid) not in commands.replace("100", "").replace("102", "").split(",")


@pytest.mark.parametrize("path", ["/d/\u202efr_0", "fr_0", "/d\n/fr_0"])
def test_an_odd_path_of_a_dump_is_in_no_command(path: str) -> None:
    procs = (rank(0, dump=path), rank(1, **SLEEPS), rank(2))
    (finding,) = diagnose_box(
        box(sample=sample(procs=procs), sample_at=NOW, queues=(), logs=(), runs=()), NOW, ()
    )
    assert not any("torchfrtrace" in (fix.command or "") for fix in finding.fixes)


def test_many_ranks_are_listed_in_short_and_one_waits_alone() -> None:
    many = [rank(n, world=8) for n in (0, 2, 3, 4, 5, 6, 7)]
    state = box(
        sample=sample(procs=(*many, rank(1, world=8, state="T"))),
        sample_at=NOW,
        queues=(),
        logs=(),
        runs=(),
    )
    (finding,) = diagnose_box(state, NOW, ())
    assert "ranks 0, 2, 3, 4 and 3 more wait for it" in finding.evidence
    two = (rank(0, world=2), rank(1, world=2, state="T"))
    (finding,) = diagnose_box(
        box(sample=sample(procs=two), sample_at=NOW, queues=(), logs=(), runs=()), NOW, ()
    )
    assert "; rank 0 waits for it (futex_do_wait)" in finding.evidence
    assert finding.confidence == 0.95


def test_ranks_that_spin_wait_only_where_the_curve_stands() -> None:
    """As NCCL waits: a rank that computes looks the same."""
    procs = (rank(0, **SPINS), rank(1, state="T"), rank(2, **SPINS))
    assert found(*procs) == []
    assert found(*procs, quiet=30.0) == []
    assert found(*procs, quiet=60.0) == [("HANG1", "rank 1 of 3 (pid 101)")]
