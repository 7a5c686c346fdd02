"""The fleet file: what it takes, and how it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from rgt_tui.fleet.config import FleetFileError, dump_fleet, load_fleet
from rgt_tui.model import BoxSpec, ProviderRef


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "rgt.toml"
    path.write_text(text)
    return path


def test_the_smallest_file_names_a_host(tmp_path: Path) -> None:
    (spec,) = load_fleet(write(tmp_path, '[boxes.lab]\nhost = "lab-a100"\n'))
    assert spec == BoxSpec(name="lab", host="lab-a100")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            '[boxes.lab]\nhost = "x"\nprofil = "runpod"\n',
            [":3:", "'profil'", "did you mean 'profile'"],
        ),
        ('[boxes.lab]\nhost = "x"\nprofile = "runpood"\n', ["boxes.lab", "runpod"]),
        ("[boxes.lab]\nport = 3\n", ["boxes.lab", "host"]),
        ('[boxes.lab]\nhost = "x"\nport = "a"\n', ["boxes.lab", "port"]),
        ('[box.lab]\nhost = "x"\n', [":1:", "'box'", "boxes"]),
        ('[boxes."a b"]\nhost = "x"\n', ["'a b'", "not a valid box name"]),
        ("[boxes.lab\n", ["not valid TOML"]),
        ("", ["names no box"]),
        (
            '[boxes.lab]\nhost = "x"\n[boxes.lab.provider]\nkind="runpod"\ninstance="i"\nkey="s"\n',
            ["'key'"],
        ),
    ],
)
def test_errors_name_file_line_key_and_the_nearest_word(
    tmp_path: Path, text: str, words: list[str]
) -> None:
    path = write(tmp_path, text)
    with pytest.raises(FleetFileError) as error:
        load_fleet(path)
    assert str(path) in str(error.value)
    for word in words:
        assert word in str(error.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FleetFileError, match="cannot read"):
        load_fleet(tmp_path / "none.toml")


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    specs = (
        BoxSpec(
            name="a-1",
            host="127.0.0.1",
            port=2022,
            profile="runpod",
            identity='/tmp/a b/"id"',
            mounts=("/", "/data"),
            tiers={"/": "system", "/data": "data"},
            provider=ProviderRef(kind="runpod", instance="i", base_url="http://127.0.0.1:1"),
        ),
        BoxSpec(name="b", host="h", interval=2.5),
    )
    assert load_fleet(write(tmp_path, dump_fleet(specs))) == specs
