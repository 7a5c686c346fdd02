"""A log shows the same behind any envelope in which collectors and consoles export it."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rgt_tui.handbook import LogSource, shipped_pages, states_of, triage_file

STEPS = [f"step {number} | loss {2.9 - number / 500:.4f}" for number in range(1000, 1200, 10)]
FAILURE = [
    "Traceback (most recent call last):",
    '  File "/workspace/train.py", line 211, in <module>',
    "    main()",
    "FileNotFoundError: [Errno 2] No such file or directory: '/workspace/data/val.bin'",
]
LOG = [*STEPS, *FAILURE]


def at(number: int) -> str:
    return f"2026-05-06T10:12:{number:02d}.123Z"


def as_lines(*records: object) -> str:
    return "".join(f"{json.dumps(record)}\n" for record in records)


def docker(lines: list[str]) -> str:
    return as_lines(
        *({"log": f"{x}\n", "stream": "stderr", "time": at(n)} for n, x in enumerate(lines))
    )


def docker_cut_in_pieces(lines: list[str]) -> str:
    pieces = [piece for line in lines for piece in (line[:30], f"{line[30:]}\n")]
    return as_lines(*({"log": x, "time": at(n)} for n, x in enumerate(pieces)))


def kaggle(lines: list[str]) -> str:
    rows = [
        json.dumps({"stream_name": "stderr", "time": 10.5 + n, "data": f"{x}\n"})
        for n, x in enumerate(lines)
    ]
    return "[" + "\n,".join(rows) + "]\n"


def kaggle_on_one_line(lines: list[str]) -> str:
    return json.dumps([{"time": 1.5 + n, "data": f"{x}\n"} for n, x in enumerate(lines)])


def cloud_entry(number: int, line: str) -> dict[str, object]:
    return {
        "insertId": f"1h{number}x8f",
        "logName": "projects/p/logs/workerpool0-0",
        "severity": "ERROR",
        "textPayload": line,
        "timestamp": at(number),
    }


def cloud(lines: list[str]) -> str:
    return as_lines(*(cloud_entry(n, x) for n, x in enumerate(lines)))


def cloud_newest_first(lines: list[str]) -> str:
    return json.dumps([cloud_entry(n, x) for n, x in enumerate(lines)][::-1], indent=2)


def cloud_yaml(lines: list[str]) -> str:
    return "".join(
        f"---\ninsertId: 1h{n}\nseverity: ERROR\ntextPayload: {json.dumps(x)}\ntimestamp: '{at(n)}'\n"
        for n, x in enumerate(lines)
    )


def journal(lines: list[str]) -> str:
    return as_lines(
        *(
            {
                "_CMDLINE": "/usr/bin/python3 /workspace/train.py --config a b c",
                "__REALTIME_TIMESTAMP": str(1778062321000000 + n),
                "MESSAGE": list(x.encode()) if "Error" in x else x,
            }
            for n, x in enumerate(lines)
        )
    )


def table_newest_first(lines: list[str]) -> str:
    file = io.StringIO()
    rows = [["@timestamp", "@message", "@logStream"]]
    rows += [[at(n), f"{x}\n", "algo-1"] for n, x in enumerate(lines)][::-1]
    csv.writer(file, lineterminator="\n").writerows(rows)
    return file.getvalue()


def supervisor(lines: list[str]) -> str:
    return "".join(
        f"2026-05-06 10:12:{n:02d},123 DEBG 'train' stderr output:\n{x}\n\n"
        for n, x in enumerate(lines)
    )


def loki(lines: list[str]) -> str:
    values = [[str(1778062321000000000 + n), x] for n, x in enumerate(lines)][::-1]
    stream = {"stream": {"app": "train"}, "values": values}
    return json.dumps({"status": "success", "data": {"result": [stream]}})


def elastic(lines: list[str]) -> str:
    return as_lines(
        *(
            {"_id": f"a{n}", "_source": {"@timestamp": at(n), "message": x, "host": "n1"}}
            for n, x in enumerate(lines)
        )
    )


def names_that_nobody_knows(lines: list[str]) -> str:
    return as_lines(*({"z": f"id{n:05d}", "q": x, "k": "zone a b"} for n, x in enumerate(lines)))


def record_in_record(lines: list[str]) -> str:
    return docker([json.dumps({"level": "info", "msg": line}) for line in lines])


def traceback_in_one_value(lines: list[str]) -> str:
    steps = [{"asctime": at(n), "message": x} for n, x in enumerate(lines[:-4])]
    return as_lines(
        *steps, {"asctime": at(59), "message": "failed", "exc_info": "\n".join(FAILURE)}
    )


def escaped_twice(lines: list[str]) -> str:
    steps = [{"sev": "INFO", "body": x} for x in lines[:-4]]
    return as_lines(*steps, {"sev": "ERROR", "body": "replica failed: \\n" + "\\n".join(FAILURE)})


def exception_as_an_object(lines: list[str]) -> str:
    kind, _, value = FAILURE[-1].partition(": ")
    frames = [{"filename": "/workspace/train.py", "lineno": 211, "name": "<module>"}]
    steps = [{"event": "step", "step": n, "loss": 2.5} for n, _ in enumerate(lines[:-4])]
    trouble = [{"exc_type": kind, "exc_value": value, "frames": frames}]
    return as_lines(*steps, {"event": "training crashed", "exception": trouble})


def values(lines: list[str]) -> str:
    kind, _, value = FAILURE[-1].partition(": ")
    return "\n".join([*lines[:-4], f'[error] crashed   exc_type={kind} error="{value}"'])


def newest_first(lines: list[str]) -> str:
    return "\n".join([f"2026-05-06 10:12:{n:02d} {x}" for n, x in enumerate(lines)][::-1])


def newest_first_without_times(lines: list[str]) -> str:
    return "\n".join(lines[::-1])


ENVELOPES = [
    docker, docker_cut_in_pieces, kaggle, kaggle_on_one_line, cloud, cloud_newest_first, cloud_yaml, journal,
    table_newest_first, supervisor, loki, elastic, names_that_nobody_knows, record_in_record, traceback_in_one_value,
    escaped_twice, exception_as_an_object, values, newest_first, newest_first_without_times,
]  # fmt: skip


@pytest.mark.parametrize("wrap", ENVELOPES, ids=lambda wrap: wrap.__name__)
def test_the_failure_is_found_behind_any_envelope(
    wrap: Callable[[list[str]], str], tmp_path: Path
) -> None:
    path = tmp_path / "export"
    path.write_text(wrap(LOG))
    (found, *_) = triage_file(path, shipped_pages())
    assert found.gotcha == "PATH1"
    assert FAILURE[-1] in found.line
    lines = path.read_text().split("\n")
    if len(lines) > len(STEPS):
        assert "val.bin" in lines[found.line_no - 1] or found.line_no > len(STEPS)


@pytest.mark.parametrize("wrap", ENVELOPES, ids=lambda wrap: wrap.__name__)
def test_a_failure_that_was_outlived_is_none_behind_any_envelope(
    wrap: Callable[[list[str]], str], tmp_path: Path
) -> None:
    path = tmp_path / "export"
    path.write_text(
        wrap([*STEPS[:8], "batch skipped:", *FAILURE, *STEPS[8:], "a", "b", "c", "done"])
    )
    if wrap in (traceback_in_one_value, escaped_twice, exception_as_an_object, values):
        return  # they put the failure at the end
    assert triage_file(path, shipped_pages()) == []


@pytest.mark.parametrize(
    "text",
    [
        "\n".join(LOG),
        "step,loss\n" + "\n".join(f"{n},0.{n}" for n in range(50)),
        as_lines(*({"step": n, "loss": 2.5} for n in range(50))),
        json.dumps({"lr": 0.1, "log_history": [{"step": 1, "loss": 2.0}]}, indent=1),
        "{\n  not json\n",
        '[2026-05-06 10:00:01] INFO "a"\n[2026-05-06 10:00:02] INFO "b"\n',
        '[1, 2] "quoted"\n',
        "",
    ],
)
def test_what_is_no_export_is_read_as_it_is(text: str) -> None:
    source = LogSource()
    assert b"".join(source.read_text(iter([text.encode()]))).decode().rstrip("\n") == text.rstrip(
        "\n"
    )
    assert source.line_of(7) == 7


@given(st.binary(max_size=3000) | st.text('{}[]",:\n\\u dtlog=ER0-', max_size=300).map(str.encode))
def test_any_bytes_are_survived(data: bytes) -> None:
    source = LogSource()
    lines = b"".join(source.read_text(iter([data]))).count(b"\n")
    assert all(source.line_of(number) > 0 for number in range(1, lines + 2))


def test_other_encodings_keep_their_bytes() -> None:
    data = "\n".join(f"2026-05-06 10:12:{n:02d} 空间" for n in range(40, 10, -1)).encode("gbk")
    (text,) = LogSource().read_text(iter([data]))
    assert text.split(b"\n")[0] == data.split(b"\n")[-1]


def test_a_record_of_a_box_is_its_text() -> None:
    assert states_of(docker(FAILURE[-1:]).strip()) == [FAILURE[-1]]
    assert states_of('{"step": 3, "loss": 2.5}') == ['{"step": 3, "loss": 2.5}']
