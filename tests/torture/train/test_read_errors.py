"""A disk that does not answer while a launch looks for its checkpoint: nothing is deleted, nothing begun anew.

What it does to a save that comes later is the business of `test_full_disk`: it answers again after the launch.
"""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest
from rgt_train import exits

from tests.process.train.harness import Zygote, assert_same, events, final_state
from tests.torture.train import watched
from tests.torture.train.conftest import FULL
from tests.torture.train.supervisor import Call
from tests.torture.train.syscalls import ASKING
from tests.torture.train.watched import Watched, below

pytestmark = (
    pytest.mark.full
)  # torture: `test_every_syscall` and `test_random_kills` have a short form of it

VALUES = {"epochs": 1, "steps_per_epoch": 12, "save_every": 4, "background": False}
LAST = 12
ERRNOS = (errno.EIO, errno.ESTALE, errno.EACCES, errno.EMFILE, errno.ENOMEM)
OPENING = {"openat": 2, "open": 1}
"""Name of a call → which of its arguments are the flags."""
STRIDE = {True: 1, False: 1} if FULL else {True: 9, False: 27}
"""Whether the error stays → each how many calls are tried; where it passes, the whole launch has to be gone through."""
FEWEST = 20


class Refusing:
    """Refuses to read what is published, until the launch is noted: the `first`-th call alone, or all from there on.

    Args:
        out: The run directory.
        first: Which call, from 1; 0 for none.
        number: The errno.
        lasts: Whether everything after it is refused as well.
    """

    def __init__(self, out: Path, first: int, number: int, *, lasts: bool) -> None:
        self._roots = (out / "checkpoints", out / "best")
        self._first, self._number, self._lasts = first, number, lasts
        self._ledger = (str(out / "ledger.jsonl"),)
        self._through = False
        self.seen: list[str] = []

    def __call__(self, call: Call) -> int:
        self._through |= call.name == "write" and call.paths() == self._ledger
        reads = call.name in ASKING or (
            call.name in OPENING and not call.args[OPENING[call.name]] & (os.O_ACCMODE | os.O_CREAT)
        )
        if self._through or not reads or not any(below(call, root) for root in self._roots):
            return 0
        self.seen.append(f"{call.name} {' '.join(call.paths())}")
        hit = len(self.seen) == self._first or (self._lasts and 0 < self._first < len(self.seen))
        return self._number if hit else 0


@pytest.fixture(scope="module")
def whole(trainers: Zygote, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that lost its result, so that a launch looks at its checkpoints."""
    watched.require()
    out = tmp_path_factory.mktemp("whole") / "run"
    assert trainers.launch(out, VALUES).wait() == 0
    (out / "result.json").unlink()
    return out


def published(out: Path) -> dict[str, bytes]:
    """Return what no launch may take away: the files of all checkpoints."""
    folders = [*(out / "checkpoints").glob("step-*"), out / "best"]
    return {
        str(path.relative_to(out)): path.read_bytes()
        for folder in folders
        for path in folder.iterdir()
    }


@pytest.mark.parametrize("lasts", [False, True], ids=["passes", "stays"])
def test_at_each_call(
    trainers: Zygote, whole: Path, tmp_path: Path, quick_disk: Path, lasts: bool
) -> None:
    before = published(whole)
    assert {name.split("/")[0] for name in before} == {"checkpoints", "best"}
    ended = {exits.DONE: 0, exits.USAGE: 0}
    for first in range(1, 1000, STRIDE[lasts]):
        out = quick_disk / "run"
        shutil.copytree(whole, out)
        number = ERRNOS[first % len(ERRNOS)]
        decide = Refusing(out, first, number, lasts=lasts)
        values = {key: value for key, value in VALUES.items() if key != "background"}
        process = Watched(
            trainers, tmp_path, decide, "hasty", *watched.words(out, values), background=False
        )
        code = process.wait()
        told = f"{errno.errorcode[number]} at {decide.seen[min(first, len(decide.seen)) - 1]}: {process.trainer.text()}"
        assert code in ended, told
        ended[code] += 1
        assert "damaged" not in process.trainer.text(), told
        if code == exits.USAGE:
            assert f"cannot be read: {errno.errorcode[number]} " in process.trainer.text(), told
            assert published(out) == before, told
            assert not (out / "result.json").exists()
        else:
            assert [event["step"] for event in events(out, "resume")] == [LAST], told
            assert_same(final_state(out, LAST)[0], final_state(whole, LAST)[0])
        shutil.rmtree(out)
        if len(decide.seen) < first:
            break
    print(f"{first} calls, ended: {ended}")
    assert first > FEWEST
    assert any(call.startswith("preadv") for call in decide.seen), (
        "the bytes are read by a call that is not watched"
    )
    assert (
        ended[exits.USAGE] > 0
        if lasts
        else ended == {exits.DONE: sum(ended.values()), exits.USAGE: 0}
    )
