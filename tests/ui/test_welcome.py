"""The welcome: nothing is configured, and nothing is sent or written before a way is chosen."""

from __future__ import annotations

from pathlib import Path

import pytest

from rgt_tui.cli.set_up.first_fleet import FirstFleet, box_name
from rgt_tui.fleet import Beginnings, FleetSource, PlatformAccount
from rgt_tui.fleet.config import FleetConfig, FleetFileError, load_fleet
from rgt_tui.providers import KINDS, USUAL_KEYS
from rgt_tui.ui import RgtApp
from rgt_tui.ui.screens import FleetScreen, WelcomeScreen, list_choices
from tests.ui.fakes import FakeFleet
from tests.ui.snap import screen_text, settle

HOST = "Host lab-a100\n  HostName 10.0.0.7\nHost runpod-x\n  HostName 1.2.3.4\nHost github.com\n  User git\n"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for variable in USUAL_KEYS.values():
        monkeypatch.delenv(variable, raising=False)
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "config").write_text(HOST)
    monkeypatch.setattr(
        "rgt_tui.cli.set_up.adding.surroundings", lambda config: _around(tmp_path, config)
    )
    return tmp_path


def _around(home: Path, config: str | None) -> object:
    from rgt_tui.ssh import surroundings

    return surroundings(config or str(home / ".ssh" / "config"))


class Chosen:
    """Makes a fleet in memory of the file that was written."""

    def __init__(self) -> None:
        self.configs: list[FleetConfig] = []

    def __call__(self, config: FleetConfig) -> FleetSource:
        self.configs.append(config)
        return FakeFleet()


async def welcomed(pilot: object, app: RgtApp) -> str:
    from textual.pilot import Pilot

    assert isinstance(pilot, Pilot)
    for _ in range(100):
        await settle(pilot)
        if isinstance(app.screen, WelcomeScreen) and app.screen.found is not None:
            break
    return screen_text(app)


async def test_hosts_of_ssh_config_become_the_fleet_without_a_restart(home: Path) -> None:
    chosen = Chosen()
    app = RgtApp(FakeFleet, first_steps=FirstFleet(chosen))
    async with app.run_test(size=(100, 30)) as pilot:
        text = await welcomed(pilot, app)
        assert "2 hosts in ssh_config: lab-a100, runpod-x" in text
        assert "no key of a platform in the environment" in text
        assert not (home / "config").exists() and app.fleet is None, "nothing is written unasked"
        await pilot.press("escape", "q")
        await settle(pilot)
        assert isinstance(app.screen, WelcomeScreen)
        assert "ctrl+q quits" in screen_text(app)
        await pilot.press("j", "enter")
        await settle(pilot)
        assert isinstance(app.screen, FleetScreen)
        assert "vast-demo" in screen_text(app), "the fleet that was made runs"
    path = home / "config" / "rgt" / "fleet.toml"
    assert [box.name for box in load_fleet(path)] == ["lab-a100", "runpod-x"]
    assert [config.path for config in chosen.configs] == [path]


async def test_a_pasted_line_is_taken_or_refused_and_nothing_is_lost(home: Path) -> None:
    app = RgtApp(FakeFleet, first_steps=FirstFleet(Chosen()))
    async with app.run_test(size=(100, 30)) as pilot:
        await welcomed(pilot, app)
        await pilot.press("G", "enter", *"ssh -J hop x", "enter")
        await settle(pilot)
        assert isinstance(app.screen, WelcomeScreen)
        assert "-J hop: put it into an entry" in screen_text(app)
        await pilot.press("enter", *"ssh -p 40022 root@1.2.3.4", "enter")
        await settle(pilot)
        assert isinstance(app.screen, FleetScreen)
    (box,) = load_fleet(home / "config" / "rgt" / "fleet.toml")
    assert (box.name, box.host, box.port, box.user) == ("box", "1.2.3.4", 40022, "root")


async def test_the_selection_stays_on_its_choice_when_hosts_and_accounts_are_found(
    home: Path,
) -> None:
    app = RgtApp(FakeFleet, first_steps=FirstFleet(Chosen()))
    async with app.run_test(size=(100, 30)) as pilot:
        await welcomed(pilot, app)
        screen = app.screen
        assert isinstance(screen, WelcomeScreen)
        screen.show_choices(None)
        await pilot.press("G")
        assert screen.picked_choice.go == "paste"
        account = PlatformAccount("runpod", "RunPod", "RUNPOD_API_KEY")
        screen.show_choices(Beginnings(hosts=("a",), accounts=(account,), path="/x"))
        assert screen.picked_choice.go == "paste"


async def test_an_account_is_asked_only_when_it_is_chosen(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUNPOD_API_KEY", "fake")
    asked: list[object] = []

    async def ask(refs: list[object], named: list[object]) -> list[object]:
        asked.extend(refs)
        return []

    monkeypatch.setattr("rgt_tui.fleet.unlisted.ask_accounts", ask)
    app = RgtApp(FakeFleet, first_steps=FirstFleet(Chosen()))
    async with app.run_test(size=(100, 30)) as pilot:
        text = await welcomed(pilot, app)
        assert "RUNPOD_API_KEY is set: ask RunPod for its machines" in text
        assert "fake" not in text
        assert asked == []
        await pilot.press("j", "j", "enter")
        await settle(pilot)
        assert len(asked) == 1
        assert "the account at runpod has no machine; nothing was written" in screen_text(app)
        assert isinstance(app.screen, WelcomeScreen)
    assert not (home / "config").exists()


async def test_the_demo_or_its_recording(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from rgt_tui.demo import DemoError
    from rgt_tui.recordings import ReplayFleet

    def lacks() -> None:
        raise DemoError("torch is missing; install it")

    monkeypatch.setattr("rgt_tui.demo.sandboxes.check_torch", lacks)
    app = RgtApp(FakeFleet, first_steps=FirstFleet(Chosen()))
    async with app.run_test(size=(100, 30)) as pilot:
        await welcomed(pilot, app)
        await pilot.press("enter")
        for _ in range(100):
            await settle(pilot)
            if app.fleet is not None:
                break
        assert isinstance(app.fleet, ReplayFleet)
        assert isinstance(app.screen, FleetScreen)


def test_the_ways_say_what_was_found_and_what_does_the_same() -> None:
    found = Beginnings(
        hosts=tuple("abcdef"),
        accounts=(PlatformAccount("runpod", "RunPod", "RUNPOD_API_KEY"),),
        path="/x",
    )
    assert [way.go for way in list_choices(found)] == ["demo", "hosts", "account:runpod", "paste"]
    assert [way.go for way in list_choices(Beginnings())] == ["demo", "", "", "paste"]
    assert [way.go for way in list_choices(None)] == ["demo", "", "paste"]
    assert all(way.command.startswith("rgt ") for way in list_choices(found))


def test_names_of_boxes_and_keys_of_platforms() -> None:
    names = {"1.2.3.4": "box", "a100.lab.org": "a100", "lab": "lab", "-x": "x"}
    assert {host: box_name(host) for host in names} == names
    import importlib

    modules = {"lambda": "lambda_cloud", "paperspace-core": "paperspace", "vastai": "vast"}
    for kind, variable in USUAL_KEYS.items():
        assert kind in KINDS
        assert (
            variable
            == importlib.import_module(f"rgt_tui.providers.{modules.get(kind, kind)}").KEY_ENV
        )


async def test_a_file_that_cannot_be_written_is_said(home: Path) -> None:
    (home / "config" / "rgt" / "fleet.toml").mkdir(parents=True)
    steps = FirstFleet(Chosen())
    with pytest.raises(FleetFileError, match=r"fleet\.toml"):
        await steps.paste("root@1.2.3.4")
