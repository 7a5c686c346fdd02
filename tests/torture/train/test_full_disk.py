"""A disk that fills up, loses its inodes, turns read-only, or has no descriptors left, at each call of a save."""

from __future__ import annotations

import errno
import itertools
import resource
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

import pytest

from tests.process.train.harness import Mounts, Zygote, assert_same, events, final_state, losses
from tests.torture.train import drill, watched
from tests.torture.train.conftest import FULL
from tests.torture.train.supervisor import Call
from tests.torture.train.syscalls import CHANGING
from tests.torture.train.watched import Watched, below

pytestmark = (
    pytest.mark.full
)  # torture: `test_every_syscall` and `test_random_kills` have a short form of it

FEWEST = 30
ERRNOS = (errno.ENOSPC, errno.EROFS, errno.EDQUOT, errno.EMFILE, errno.EIO)
VALUES = {"epochs": 1, "steps_per_epoch": 60, "save_every": 5}


class Disk:
    """A small real tmpfs and what takes it away; given back when the process removes the file ``release``."""

    files: ClassVar[int] = 0

    def __init__(self, mounts: Mounts, name: str) -> None:
        self._mounts, self.inside, self.outside = (
            mounts,
            Path(mounts.inside(name)),
            mounts.outside(name),
        )
        self._fill = self.outside / "fill"

    def take(self, call: Call) -> None:
        """Let it be full."""
        raise NotImplementedError

    def give(self, call: Call) -> None:
        """Let it be as before."""
        for path in self.outside.glob("fill*"):
            path.unlink()


class Bytes(Disk):
    def take(self, call: Call) -> None:
        with suppress(OSError), self._fill.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))


class Inodes(Disk):
    def take(self, call: Call) -> None:
        with suppress(OSError):
            for number in itertools.count():
                (self.outside / f"fill{number}").touch()


class ReadOnly(Disk):
    def take(self, call: Call) -> None:
        self._mounts.cover(self.outside / "run/checkpoints", read_only=True)

    def give(self, call: Call) -> None:
        self._mounts.cover(self.outside / "run/checkpoints", read_only=False)


class Descriptors(Disk):
    def take(self, call: Call) -> None:
        self._before = resource.prlimit(call.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(call.pid, resource.RLIMIT_NOFILE, (0, self._before[1]))

    def give(self, call: Call) -> None:
        resource.prlimit(call.pid, resource.RLIMIT_NOFILE, self._before)


KINDS = {"bytes": Bytes, "inodes": Inodes, "readonly": ReadOnly, "descriptors": Descriptors}


class At:
    """Takes the disk away at the `number`-th call that changes something, gives it back when asked."""

    def __init__(self, disk: Disk, number: int) -> None:
        self._disk, self._number = disk, number
        self.seen: list[str] = []
        self.taken = False

    def __call__(self, call: Call) -> int:
        if call.paths() == (str(self._disk.inside / "release"),):
            self._disk.give(call)
            self.taken = False
        elif below(call, self._disk.inside / "run") and call.name in CHANGING:
            self.seen.append(f"{call.name} {' '.join(call.paths())}")
            if len(self.seen) == self._number:
                self._disk.take(call)
                self.taken = True
        return 0


@pytest.fixture(scope="module")
def mounts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mounts]:
    watched.require()
    sizes = {
        "bytes": "size=256k",
        "inodes": "size=1m,nr_inodes=48",
        "readonly": "size=1m",
        "descriptors": "size=1m",
    }
    made = Mounts(tmp_path_factory.mktemp("mounts"), sizes)
    if made.zygote is None:
        pytest.skip("no mount namespace can be made here")
    yield made
    made.zygote.close()


def test_at_each_call(mounts: Mounts, tmp_path: Path) -> None:
    assert mounts.zygote is not None
    refused = dict.fromkeys(KINDS, 0)
    for number in range(1, 1000):
        names = list(KINDS) if FULL else [list(KINDS)[number % len(KINDS)]]
        ended = [_one(mounts, tmp_path, name, number, refused) for name in names]
        if not all(ended):
            break
    print(f"{number - 1} calls; saves refused by {refused}")
    assert number > FEWEST
    assert all(refused.values()), refused


def _one(mounts: Mounts, place: Path, name: str, number: int, refused: dict[str, int]) -> bool:
    """Take the disk away at call `number`; return whether there was such a call."""
    assert mounts.zygote is not None
    disk = KINDS[name](mounts, name)
    drill.prepare(disk.outside / "run")
    (disk.outside / "release").touch()
    at = At(disk, number)
    code = Watched(
        mounts.zygote, place, at, "survive", str(disk.inside / "run"), str(disk.inside / "release")
    ).wait()
    if at.taken:
        disk.give(Call(0, "", ())) if name != "descriptors" else None
    told = f"{name} from call {number} on, {at.seen[-1]}"
    assert code in (0, drill.FAILED_WELL), f"{told}: ended with {code}"
    wrong = drill.look(disk.outside / "run", (3, 4), (3, 4))
    assert wrong is None, f"{told}: {wrong}"
    refused[name] += code == drill.FAILED_WELL
    return len(at.seen) >= number


class Refusing:
    """Refuses what a trainer changes among its checkpoints, from one call on, for so many calls."""

    def __init__(self, root: Path, first: int, count: int, what: int) -> None:
        self._root, self._first, self._count, self._what = root, first, count, what
        self.seen = 0

    def __call__(self, call: Call) -> int:
        if (
            call.name not in CHANGING
            or call.name.startswith("unlink")
            or not below(call, self._root)
        ):
            return 0
        self.seen += 1
        return self._what if self._first <= self.seen < self._first + self._count else 0


@pytest.fixture(scope="module")
def plain(trainers: Zygote, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("plain") / "run"
    assert trainers.launch(out, VALUES).wait() == 0
    return out


@pytest.mark.parametrize(
    "what",
    # A training asks only whether a call was refused; `test_at_each_call` has a disk that really is read-only.
    [
        ERRNOS[0],
        *(
            pytest.param(what, marks=pytest.mark.full)
            for what in (ERRNOS if FULL else ERRNOS[:2])[1:]
        ),
    ],
)
def test_a_training_goes_on(
    trainers: Zygote, plain: Path, tmp_path: Path, quick_disk: Path, what: int
) -> None:
    """A real trainer is refused everything for a while, from some call of a save on; it ends with the same bits."""
    watched.require()
    for first in range(5, 45, 10) if FULL else (25,):
        out = quick_disk / f"run{first}"
        decide = Refusing(out / "checkpoints", first, 12, what)
        process = Watched(trainers, tmp_path, decide, "train", *watched.words(out, VALUES))
        assert process.wait() == 0, process.trainer.text()
        assert losses(out) == losses(plain)
        assert_same(final_state(out, 60)[0], final_state(plain, 60)[0])
        assert events(out, "checkpoint-failed"), "nothing was refused"
        assert events(out, "checkpoint-recovered")
        assert [p.name for p in (out / "checkpoints").iterdir() if p.name.startswith(".")] == []
