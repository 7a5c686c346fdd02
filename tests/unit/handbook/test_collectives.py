"""Which rank did not come to a collective: real dumps of torch 2.13 over gloo, and the documented output of ncclras."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from rgt_tui.cli import main
from rgt_tui.cli.triage_files import LARGEST, collective_findings
from rgt_tui.handbook import Unreadable, all_pages, collectives
from rgt_tui.handbook.collectives import CollectiveVerdict, compare_dumps, dump_of

FLIGHT = Path(__file__).parents[2] / "fixtures" / "flight"
"""Written by `_dump_fr_trace` of a process each: one rank asleep, in another collective, with another size."""


def shown(*names: str) -> str:
    files = [str(FLIGHT / name) for name in names]
    found = collective_findings(files, all_pages())
    assert list(found) == files
    told = found[files[0]]
    assert not isinstance(told, Unreadable)
    assert all(found[name] is told for name in files)
    assert {one.gotcha for one in told} <= {"D19"}
    return "\n".join(f"{one.confidence} {one.line}" for one in told)


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (("healthy_rank_0", "healthy_rank_1", "healthy_rank_2"), ""),
        (
            ("lacks_rank_0", "lacks_rank_1", "lacks_rank_2"),
            "0.95 rank 1 did not come to collective 3 of group 0 (default_pg) (all_reduce of [8] Float at "
            "/data/train1.py:22): the last there is 2, and ranks 0, 2 wait in 3",
        ),
        (
            ("lacks_rank_0.json", "lacks_rank_1"),
            "0.95 rank 1 did not come to collective 3 of group 0 (default_pg) (all_reduce of [8] Float): the last "
            "there is 2, and rank 0 waits in 3; no dump of rank 2 was given",
        ),
        (
            ("lacks_rank_0", "lacks_rank_2"),
            "0.8 ranks 0, 2 have all come to collective 3 of group 0 (default_pg) (all_reduce of [8] Float at "
            "/data/train1.py:22), and none is through: a rank that is not here, the network, or a card; no dump of "
            "rank 1 was given",
        ),
        (
            ("lacks_rank_2",),
            "0.5 rank 2 waits in collective 3 of group 0 (default_pg) (all_reduce of [8] Float at /data/train1.py:22): "
            "who is missing, the dumps of the other ranks say; no dump of ranks 0, 1 was given",
        ),
        (
            ("mismatch_rank_0", "mismatch_rank_1", "mismatch_rank_2"),
            "0.95 the ranks do not agree on collective 2 of group 0 (default_pg): rank 1 all_gather of [4] Float at "
            "/data/train.py:14, ranks 0, 2 all_reduce of [8] Float at /data/train.py:14",
        ),
        (
            ("sizes_rank_1", "sizes_rank_2"),
            "0.95 the ranks do not agree on collective 2 of group 0 (default_pg): rank 1 all_reduce of [16] Float at "
            "/data/train.py:15, rank 2 all_reduce of [8] Float at /data/train.py:15; no dump of rank 0 was given",
        ),
    ],
)  # fmt: skip
def test_real_dumps_name_the_rank_and_the_collective(names: tuple[str, ...], told: str) -> None:
    assert shown(*names) == told


def entry(number: Any, name: Any = "nccl:all_reduce", **over: Any) -> dict[str, Any]:
    base = {
        "collective_seq_id": number, "profiling_name": name, "process_group": ("0", "default_pg"),
        "input_sizes": [[2, 3]], "input_dtypes": ["BFloat16"], "state": "completed", "retired": True, "is_p2p": False,
    }  # fmt: skip
    return base | over


def verdicts(*ranks: list[dict[str, Any]]) -> list[CollectiveVerdict]:
    return compare_dumps(
        [
            dump_of({"version": "2.4", "entries": entries}, rank)
            for rank, entries in enumerate(ranks)
        ]
    )


WAITS = {"state": "started", "retired": False}


def test_each_group_is_judged_for_itself_and_running_ahead_is_no_hang() -> None:
    assert verdicts([entry(1), entry(2)], [entry(1)]) == []
    other = {"process_group": ("5", "tp")}
    (found,) = verdicts(
        [entry(1), entry(7, **other), entry(8, **other, **WAITS)], [entry(1), entry(7, **other)]
    )
    assert found.text.startswith(
        "rank 1 did not come to collective 8 of group 5 (tp) (all_reduce of [2, 3] BFloat16)"
    )
    assert verdicts([entry(1, "nccl:send 0->1", **WAITS)], [entry(2)]) == []  # no collective of all
    assert verdicts([entry(1, "nccl:scatter", input_sizes=[[9]])], [entry(1, "nccl:scatter")]) == []
    (found,) = verdicts([entry(1, input_dtypes=["Half"])], [entry(1)])
    assert "rank 0 all_reduce of [2, 3] Half, rank 1 all_reduce of [2, 3] BFloat16" in found.text
    (found,) = verdicts([entry(1)], [entry(2, **WAITS)], [entry(2), entry(3, **WAITS)])
    assert found.text.endswith("the last there is 1, and ranks 1, 2 wait in 2 to 3")
    many: list[list[dict[str, Any]]] = [[entry(3, **WAITS)]] * 9
    (found,) = verdicts([entry(2)], *many)
    assert found.text.endswith("ranks 1, 2, 3, 4, 5, 6 and 3 more wait in 3")


def message(
    name: str, number: int, size: int = 4, done: bool = False, **over: Any
) -> dict[str, Any]:
    """Return a message as torch writes it over NCCL, which is the only library whose messages it records."""
    base = {
        "collective_seq_id": 0, "p2p_seq_id": number, "profiling_name": f"nccl:{name}", "is_p2p": True,
        "process_group": ("0", "default_pg"), "input_sizes": [[size]], "output_sizes": [[size]],
        "input_dtypes": ["Float"], "output_dtypes": ["Float"], "state": "completed" if done else "scheduled",
        "retired": done, "frames": [{"name": "f", "filename": "/data/pp.py", "line": 7}],
    }  # fmt: skip
    return base | over


SENT = "rank 0 sends [4] Float to rank 1 at /data/pp.py:7"
LATER: dict[str, Any] = {"process_group": ("7", "pp")}


@pytest.mark.parametrize(
    ("ranks", "named", "confidence", "told"),
    [
        ([[message("send 0->1", 1)], [message("recv 1<-0", 1)]], None, 0.0, ""),  # both are there
        ([[message("send 0->1", 1, done=True)], [message("recv 1<-0", 1, done=True)]], None, 0.0, ""),
        (
            [[message("send 0->1", 1)], [entry(1)]],
            (1,), 0.95, f"{SENT}, which has reached no counterpart of it",
        ),
        (
            [[message("send 0->1", 1)], [entry(4, **WAITS)]],
            (1,), 0.95,
            f"{SENT}, which has no counterpart to it: it waits in collective 4 of group 0 (default_pg) (all_reduce of "
            "[2, 3] BFloat16)",
        ),
        (  # the wrong peer: a chain of which the last is named
            [[message("send 0->1", 1)], [message("recv 1<-2", 1)], [entry(1)]],
            (2,), 0.95,
            "rank 1 waits for [4] Float from rank 2 at /data/pp.py:7, which has reached no counterpart of it; rank 0 "
            "waits as well",
        ),
        (  # both send first
            [[message("send 0->1", 1)], [message("send 1->0", 1)]],
            (), 0.95,
            f"ranks 0, 1 wait for each other: {SENT}; rank 1 sends [4] Float to rank 0 at /data/pp.py:7",
        ),
        (
            [[message("send 0->1", 1)], [message("recv 1<-0", 1, size=5)]],
            (0, 1), 0.95,
            f"{SENT}, and rank 1 waits for [5] Float from rank 0 at /data/pp.py:7: they are not the same",
        ),
        (  # one more is sent than received
            [[message("send 0->1", 1), message("send 0->1", 2)], [message("recv 1<-0", 1)]],
            (1,), 0.95, f"{SENT}, which has no counterpart to it: it waits for [4] Float from rank 0 at /data/pp.py:7",
        ),
        ([[message("send 0->3", 1)]], (3,), 0.5, "rank 0 sends [4] Float to rank 3 at /data/pp.py:7, which has no "
                                                 "counterpart here"),
        (  # sent together: only what stands behind them is told to be through
            [[message("send 0->1", 1), message("coalesced", 1, done=True)], []], None, 0.0, "",
        ),
        (
            [[message("send 0->1", 1), message("coalesced", 1)], [entry(1)]],
            (1,), 0.95, f"{SENT}, which has reached no counterpart of it",
        ),
        (  # two groups: the message of one is not answered in the other
            [[message("send 0->1", 1)], [message("recv 1<-0", 1, **LATER)]],
            (), 0.95,
            f"ranks 0, 1 wait for each other: {SENT}; rank 1 waits for [4] Float from rank 0 at /data/pp.py:7",
        ),
    ],
    ids=["meet", "through", "elsewhere", "in-a-collective", "wrong-peer", "both-send", "sizes", "one-more", "no-dump",
         "together-through", "together-open", "groups"],
)  # fmt: skip
def test_a_message_without_its_counterpart_is_named(
    ranks: list[list[dict[str, Any]]], named: tuple[int, ...] | None, confidence: float, told: str
) -> None:
    found = verdicts(*ranks)
    assert found[:1] == ([] if named is None else [CollectiveVerdict(told, confidence, named)])


def test_messages_that_are_sent_together_are_no_collective() -> None:
    (found,) = verdicts(
        [message("send 0->1", 1), message("coalesced", 1)], [message("coalesced", 1, done=True)]
    )
    assert found.ranks == (1,)


@pytest.mark.parametrize(("world", "named"), [(4, (2, 3)), (5, ())])
def test_of_ranks_without_a_dump_few_are_named(world: int, named: tuple[int, ...]) -> None:
    config = {"0": {"ranks": str(list(range(world)))}}
    value = {"version": "2.10", "entries": [entry(3, **WAITS)], "pg_config": config}
    (found,) = compare_dumps([dump_of(value, rank) for rank in (0, 1)])
    assert (found.ranks, found.confidence) == (named, 0.8)


def test_the_ranks_of_a_message_are_those_of_its_group() -> None:
    config = {"0": {"ranks": "[0, 1, 2, 3]"}, "7": {"ranks": "[1, 3]"}}
    dumps = [
        dump_of({"version": "2.10", "entries": entries, "pg_config": config}, rank)
        for rank, entries in ((1, [message("send 0->1", 1, **LATER)]), (3, [entry(1)]))
    ]
    (found,) = compare_dumps(dumps)
    assert found.ranks == (3,)
    assert found.text.startswith("rank 1 sends [4] Float to rank 3 at")
    assert found.text.endswith("no dump of ranks 0, 2 was given")


@pytest.mark.parametrize(
    ("ranks", "named"),
    [
        ([[entry(1), entry(2, **WAITS)], [entry(1)], [entry(1), entry(2, **WAITS)]], (1,)),
        ([[entry(1)], [entry(1, "nccl:broadcast")], [entry(1)]], (1,)),
        ([[entry(1)], [entry(1, "nccl:broadcast")]], ()),  # one against one: nobody knows
        ([[entry(1, **WAITS)], [entry(1, **WAITS)]], ()),
    ],
)  # fmt: skip
def test_who_is_behind_or_differs_is_told_by_number(
    ranks: list[Any], named: tuple[int, ...]
) -> None:
    assert [verdict.ranks for verdict in verdicts(*ranks)] == [named]


@pytest.mark.parametrize(
    "odd",
    [
        {"collective_seq_id": "1"}, {"collective_seq_id": True}, {"collective_seq_id": None},
        {"profiling_name": 3}, {"process_group": None}, {"process_group": [1, [2]]}, {"input_sizes": 7},
        {"input_sizes": [["x", None], 3, {"a": 1}]}, {"input_dtypes": None}, {"state": []}, {"frames": {"a": 1}},
        {"frames": [3]}, {"frames": [{"filename": 1, "line": "x"}]}, {"is_p2p": True, "p2p_seq_id": "x"},
        {"is_p2p": True, "p2p_seq_id": 1, "profiling_name": "nccl:send 0->99999999"},
        {"is_p2p": True, "p2p_seq_id": 1, "profiling_name": "nccl:recv 0<-1", "process_group": 3},
    ],
)  # fmt: skip
def test_odd_entries_break_nothing(odd: dict[str, Any]) -> None:
    assert isinstance(verdicts([entry(1, **odd)], [entry(2, **WAITS)]), list)


@pytest.mark.parametrize(
    "value", [None, [], {}, {"entries": []}, {"version": "2", "entries": 3}, 7]
)
def test_what_is_no_dump_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="no dump"):
        dump_of(value, 0)


class Evil:
    def __reduce__(self) -> Any:
        return (print, ("executed",))


def test_a_pickle_that_would_do_anything_is_refused_unexecuted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "nccl_trace_rank_0"
    path.write_bytes(pickle.dumps({"version": "2.4", "entries": [Evil()]}, 2))
    assert main(["triage", str(path)]) == 2
    out = capsys.readouterr()
    assert "executed" not in out.out
    assert str(path) in out.err
    assert "print" in out.err


@pytest.mark.parametrize(
    "data",
    [
        b"\x80\x02}q\x00(X\x07\x00\x00\x00version", b'{"entries": [', b'{"entries":' + b"[" * 100_000,
        b'{"entries": 1, "version": "2"}', pickle.dumps({"version": 1}, 2),
    ],
)  # fmt: skip
def test_a_damaged_dump_is_named(
    data: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "trace_1"
    path.write_bytes(data)
    log = tmp_path / "log"
    log.write_text("fine\n")
    assert main(["triage", "--json", str(path), str(log)]) == 2
    out = capsys.readouterr()
    assert str(path) in out.err
    told = json.loads(out.out)
    assert (told["file"], told["findings"]) == (str(log), [])


def test_a_file_too_large_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "trace_1"
    with path.open("wb") as file:
        file.write(b"\x80\x02}q\x00")
        file.truncate(LARGEST + 1)
    assert isinstance(collective_findings([str(path)], all_pages())[str(path)], Unreadable)


def test_logs_beside_dumps_are_read_as_ever(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "train.log"
    log.write_text("OSError: [Errno 28] No space left on device: '/data/x'\n")
    files = [
        str(FLIGHT / "lacks_rank_0"),
        str(log),
        str(FLIGHT / "lacks_rank_1"),
        str(tmp_path / "missing"),
    ]
    assert main(["triage", "--json", *files]) == 2
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["file"], row["findings"][0]["gotcha"]) for row in rows] == [
        (files[0], "D19"), (files[1], "U7"), (files[2], "D19"),
    ]  # fmt: skip


HEAD = """\
Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      4          8            1         32       32

Communicators... (0.00s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         4         8        32        32   RUNNING  {}
"""
"""In the form that NVIDIA's documentation shows; NCCL itself does not run here."""
BEHIND = """
Warnings
========

#0-0 (27a079b828ff1a75) MISMATCH
  Communicator ranks have different collective operation counts
  26 ranks have launched up to operation 6650
  6 ranks have launched up to operation 6649
  Rank 0 -- GPU 0 managed by process 483072 on node 172.16.64.210
  Rank 2 -- GPU 2 managed by process 483074 on node 172.16.64.210
"""
ONE = """
Warnings
========

#0-0 (78db921d1c117b4a) MISMATCH
  Communicator ranks have different AllReduce operation counts
  7 ranks have launched up to operation 64
  Rank 7 has launched up to operation 60 -- GPU 3 managed by process 1650386 on node node1
"""
DEAD = """
Errors
======

DEAD
  1 job process is considered dead (unreachable via the RAS network)
  Process 3487984 on node 172.16.64.213 managing GPU 5

#0-0 (cf264af53edbe986) INCOMPLETE
  Missing communicator data from 1 rank
  The missing rank: 21

Warnings
========

TIMEOUT
  Encountered 2 communication timeouts while gathering communicator data
"""


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (HEAD.format("OK"), []),
        (
            HEAD.format("MISMATCH") + BEHIND,
            ["ranks 0, 2 (GPU 0 managed by process 483072 on node 172.16.64.210) came to collective operation 6649, "
             "others to 6650: a hang only if a second look shows the same numbers"],
        ),
        (
            HEAD.format("MISMATCH") + ONE,
            ["rank 7 (GPU 3 managed by process 1650386 on node node1) came to AllReduce operation 60, others to 64: a "
             "hang only if a second look shows the same numbers"],
        ),
        (
            HEAD.format("INCOMPLETE") + DEAD,
            ["rank 21; process 3487984 on 172.16.64.213 (GPU 5) is taken for dead: NCCL has no data of it"],
        ),
        (
            HEAD.format("INCOMPLETE") + DEAD.replace("DEAD", "INCOMPLETE"),
            ["rank 21; process 3487984 on 172.16.64.213 (GPU 5) does not answer: NCCL has no data of it"],
        ),
    ],
)  # fmt: skip
def test_the_output_of_ncclras(text: str, told: list[str], tmp_path: Path) -> None:
    assert [verdict.text for verdict in collectives.of_ncclras(text)] == told
    path = tmp_path / "ras.txt"
    path.write_text(text)
    found = collective_findings([str(path)], all_pages())[str(path)]
    assert isinstance(found, list)
    assert [one.line for one in found] == told


COUNTS = {"Broadcast": 3, "AllReduce": 64}


def ras(*ranks: dict[str, Any], missing: Any = ()) -> dict[str, Any]:
    """Return the output of ``ncclras -f json`` in the form that NVIDIA's documentation shows."""
    rows = [
        {"rank": at, "host": "10.0.0.1", "pid": 100 + at, "cuda_dev": at, "nvml_dev": at,
         "status": {"init_state": 0, "async_error": 0}, "collective_counts": COUNTS | counts}
        for at, counts in enumerate(ranks)
    ]  # fmt: skip
    group = {
        "hash": "0xae",
        "size": len(rows),
        "ranks_count": len(rows),
        "ranks": rows,
        "missing_ranks": missing,
    }
    return {"nccl_version": "2.29.1", "communicators_count": 1, "communicators": [group], "ras": {}}


LOST = {
    "rank": 5, "host": "10.0.0.2", "pid": 9, "nvml_dev": 1,
    "status": {"unresponsive": True, "considered_dead": False},
}  # fmt: skip


@pytest.mark.parametrize(
    ("value", "told", "named"),
    [
        (ras({}, {}), [], []),
        (
            ras({}, {"AllReduce": 60}, {}),
            ["rank 1 (process 101 on 10.0.0.1 (GPU 1)) came to AllReduce operation 60, others to 64: a hang only if a "
             "second look shows the same numbers"],
            [(1,)],
        ),
        (
            ras({}, missing=[LOST]),
            ["rank 5; process 9 on 10.0.0.2 (GPU 1) does not answer: NCCL has no data of it"], [(5,)],
        ),
        (
            ras({}, missing=[LOST | {"status": {"considered_dead": True}}]),
            ["rank 5; process 9 on 10.0.0.2 (GPU 1) is taken for dead: NCCL has no data of it"], [(5,)],
        ),
        (ras({}, missing=[3, {"rank": "x"}, {}]), [], []),
        (
            {"nccl_version": "2", "communicators": [7, {"ranks": 3}, {"ranks": [{"rank": 1, "collective_counts": 3}]}]},
            [], [],
        ),
    ],
)  # fmt: skip
def test_the_json_of_ncclras(
    value: Any, told: list[str], named: list[tuple[int, ...]], tmp_path: Path
) -> None:
    verdicts = collectives.of_ras_json(value)
    assert [verdict.text for verdict in verdicts] == told
    assert [verdict.ranks for verdict in verdicts] == named
    path = tmp_path / "ras.json"
    path.write_text(json.dumps(value, indent=2))
    found = collective_findings([str(path)], all_pages())[str(path)]
    assert isinstance(found, list)
    assert [one.line for one in found] == told
