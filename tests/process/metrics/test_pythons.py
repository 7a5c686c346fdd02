"""The same points under every Python that is at hand, from 3.8 on, with nothing imported before it is needed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from rgt_box.metrics import open_reader, read_all

from tests.process.box.harness import pythons
from tests.unit.metrics.test_samples import SAMPLES, ready

REMOTE = Path(__file__).parents[3] / "remote"
DUMP = """
import json, sys
sys.path.insert(0, sys.argv[1])
from rgt_box.metrics.formats import open_reader
from rgt_box.metrics.merging import read_all
found = []
for kind, path in json.load(sys.stdin):
    store, problems = read_all(open_reader(kind, path), 7)
    found.append([[list(k), s.xs, [repr(y) for y in s.ys], s.ats, s.breaks] for k, s in store.series.items()])
    assert not problems, problems
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, str]]:
    directory = tmp_path_factory.mktemp("databases")
    return [(each[0], ready(each[1], directory)) for each in SAMPLES]


@pytest.mark.parametrize("python", pythons(between=pytest.mark.full))
def test_every_sample(python: str, samples: list[tuple[str, str]]) -> None:
    ran = subprocess.run(
        [python, "-I", "-c", DUMP, str(REMOTE)],
        input=json.dumps(samples),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ran.stderr == ""
    here = []
    for kind, path in samples:
        store, _ = read_all(open_reader(kind, path))
        here.append(
            [
                [list(k), s.xs, [repr(y) for y in s.ys], s.ats, s.breaks]
                for k, s in store.series.items()
            ]
        )
    assert json.loads(ran.stdout) == here


def test_modules_are_imported_when_they_are_needed() -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from rgt_box.metrics.formats import open_reader\n"
        "open_reader('rgt', '/nowhere').read(); open_reader('tensorboard', '/nowhere').read()\n"
        "print(sorted({'sqlite3', 'csv', 'typing', 'tempfile', 'datetime'} & set(sys.modules)))"
    )
    ran = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code, str(REMOTE)], capture_output=True, text=True
    )
    assert (ran.stdout, ran.stderr) == ("[]\n", "")
