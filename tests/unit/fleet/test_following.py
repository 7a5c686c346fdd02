"""A fleet file that changes: what is taken over, what is said instead, and that the old boxes stand meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from rgt_tui.fleet.config import FleetFilePlace, open_place, read_whole_file
from rgt_tui.fleet.config.following import EVERY_SECONDS, FleetFileFollower
from rgt_tui.fleet.config.trusted import build_entry, default_path, trust_file

ONE = '[boxes.lab]\nhost = "lab-a100"\n'
TWO = ONE + '[boxes.mill]\nhost = "mill"\n'


@dataclass
class World:
    """A fleet file, and who follows it."""

    place: FleetFilePlace
    env: dict[str, str]
    said: list[tuple[str, str]] = field(default_factory=list)

    def follow(self, *names: str) -> FleetFileFollower:
        return FleetFileFollower(
            self.place, open_place(self.place, self.env), names=names, env=self.env
        )

    def write(self, text: str) -> None:
        self.place.path.write_text(text)

    def trust(self) -> None:
        source, config = read_whole_file(self.place.path, self.env)
        trust_file(default_path(self.env), source.real, build_entry(source, config, self.env))

    def seen(self, file: FleetFileFollower) -> list[str] | None:
        """Look twice, as for a file that is being written."""
        both = [
            file.check_file(lambda text, level: self.said.append((text, level))) for _ in range(2)
        ]
        found = next((one for one in both if one is not None), None)
        return None if found is None else [spec.name for spec in found]


@pytest.fixture
def world(tmp_path: Path) -> Callable[[bool], World]:
    def made(lies_there: bool = False) -> World:
        path = tmp_path / "rgt.toml"
        path.write_text(ONE)
        return World(FleetFilePlace(path, lies_there), {"HOME": str(tmp_path)})

    return made


def test_boxes_that_came_and_went_are_told_once(world: Callable[..., World]) -> None:
    here = world()
    file = here.follow()
    assert here.seen(file) is None
    here.write(TWO)
    assert here.seen(file) == ["lab", "mill"]
    assert here.seen(file) is None
    here.write(ONE + "# a remark\n")
    assert here.seen(file) == ["lab"]
    here.write(ONE + "# another remark\n")
    assert here.seen(file) is None, "it says the same"
    assert here.said == []


def test_only_the_boxes_that_were_named(world: Callable[..., World]) -> None:
    here = world()
    file = here.follow("lab")
    here.write(TWO)
    assert here.seen(file) == ["lab"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (ONE + "[boxes.mill]\nhots = 'mill'\n", "hots"),
        (ONE + "[boxes.mill\n", "rgt.toml:3"),
        (ONE + '[boxes.mill]\nhost = "mill"\nprofile = "nimbus"\n', "nimbus"),
        ("", "names no box"),
    ],
)
def test_a_broken_file_is_said_once_with_its_place_and_the_boxes_stay(
    text: str, says: str, world: Callable[..., World]
) -> None:
    here = world()
    file = here.follow()
    here.write(text)
    assert here.seen(file) is None
    assert here.seen(file) is None
    ((told, level),) = here.said
    assert (level, says in told, str(here.place.path) in told) == ("error", True, True)
    assert told.endswith("; the boxes are unchanged")
    here.write(TWO)
    assert here.seen(file) == ["lab", "mill"]


def test_a_file_that_is_being_written_is_no_news(world: Callable[..., World]) -> None:
    here = world()
    file = here.follow()
    here.write(TWO[:-9])
    assert file.check_file(lambda text, level: here.said.append((text, level))) is None
    here.write(TWO)
    assert here.seen(file) == ["lab", "mill"]
    assert here.said == []


def test_a_file_that_is_gone_leaves_the_boxes(world: Callable[..., World]) -> None:
    here = world()
    file = here.follow()
    here.place.path.unlink()
    assert here.seen(file) is None
    assert len(here.said) == 1
    here.write(TWO)
    assert here.seen(file) == ["lab", "mill"]


def test_a_change_in_the_working_tree_counts_only_once_it_is_trusted(
    world: Callable[..., World],
) -> None:
    here = world(True)
    here.trust()
    file = here.follow()
    here.write(TWO)
    assert here.seen(file) is None
    ((told, level),) = here.said
    assert (level, "has changed since it was trusted" in told, "rgt trust" in told) == (
        "warn",
        True,
        True,
    )
    here.trust()
    assert here.seen(file) == ["lab", "mill"]


def test_what_was_not_trusted_at_the_start_is_not_taken_over_half(
    world: Callable[..., World],
) -> None:
    here = world(True)
    file = here.follow()
    here.write(TWO)
    assert here.seen(file) is None
    here.trust()
    assert here.seen(file) is None
    assert "restart rgt" in here.said[-1][0]


def test_settings_of_alerts_wait_for_the_next_start(world: Callable[..., World]) -> None:
    here = world()
    file = here.follow()
    here.write(TWO + "[alerts.idle-gpu]\nenabled = false\n")
    found = here.seen(file)
    assert found == ["lab", "mill"] or here.said
    assert any("apply from the next start" in text for text, _ in here.said), here.said


async def test_it_is_looked_at_again_and_again_until_something_counts(
    world: Callable[..., World],
) -> None:
    here = world()
    config = open_place(here.place, here.env)
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            here.write(TWO)
        assert len(slept) < 9

    file = FleetFileFollower(here.place, config, env=here.env, sleep=sleep)
    found = await file.wait_for_change(lambda text, level: here.said.append((text, level)))
    assert [spec.name for spec in found] == ["lab", "mill"]
    assert (slept, here.said) == ([EVERY_SECONDS] * 3, [])


def test_a_doubt_is_said_once_however_often_the_file_is_written(
    world: Callable[..., World],
) -> None:
    here = world(True)
    here.trust()
    file = here.follow()
    for remark in ("one", "another"):
        here.write(f"{TWO}# {remark}\n")
        assert here.seen(file) is None
    assert len(here.said) == 1


def test_what_is_odd_about_it_is_said_when_it_is_new(world: Callable[..., World]) -> None:
    here = world()
    file = here.follow()
    here.write(ONE + '[boxes.twin]\nhost = "lab-a100"\n')
    assert here.seen(file) == ["lab", "twin"]
    ((told, level),) = here.said
    assert (level, "twin" in told) == ("warn", True)
    here.write(ONE + '[boxes.twin]\nhost = "lab-a100"\nper_hour = 1\n')
    assert here.seen(file) == ["lab", "twin"]
    assert len(here.said) == 1
