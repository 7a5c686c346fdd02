"""The tables of the fleet file: each mistake names its key, and no secret is repeated."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from rgt_tui.health import (
    ALERTS,
    BY_ID,
    MAKERS,
    SINKS,
    SettingsError,
    alert_rows,
    build_sink,
    parse_alerts,
)
from rgt_tui.model import AlertSettings

SECRET = "https://ntfy.sh/very-secret-topic"


def test_nothing_said_is_the_table_as_it_is() -> None:
    assert parse_alerts(None, None) == AlertSettings()
    assert alert_rows(AlertSettings()) == ALERTS


def test_a_kind_can_be_set_or_switched_off() -> None:
    settings = parse_alerts(
        {
            "idle-gpu": {"warn": 20, "hold_s": 900},
            "bytes": {"warn": 70, "clear_warn": 65, "quiet_s": 0},
            "ecc": {"enabled": False},
        },
        None,
    )
    made = {kind.id: kind for kind in alert_rows(settings)}
    assert made.keys() == BY_ID.keys() - {"ecc"}
    assert (made["idle-gpu"].rungs[0].at, made["idle-gpu"].rungs[0].clear) == (20, 25)
    assert made["idle-gpu"].hold_s == 900
    assert [(rung.at, rung.clear) for rung in made["bytes"].rungs] == [(70, 65), (95, 92)]


@pytest.mark.parametrize(
    ("alerts", "where", "words"),
    [
        ({"inode": {}}, ("alerts", "inode"), "unknown kind of alert 'inode'; did you mean 'inodes'?"),
        ({"inodes": {"wrn": 1}}, ("alerts", "inodes", "wrn"), "unknown key 'wrn'; did you mean 'warn'?"),
        ({"inodes": 5}, ("alerts", "inodes"), "must be a table"),
        ({"inodes": {"warn": "80"}}, ("alerts", "inodes", "warn"), "Expected `float | null`, got `str`"),
        ({"inodes": {"warn": -1}}, ("alerts", "inodes", "warn"), "must be a number, 0 or more (% used)"),
        ({"inodes": {"warn": float("nan")}}, ("alerts", "inodes", "warn"), "must be a number, 0 or more (% used)"),
        ({"inodes": {"warn": 96}}, ("alerts", "inodes"), "the limit of error must be worse than that of warn"),
        ({"inodes": {"clear_warn": 81}}, ("alerts", "inodes"), "clear_warn 81 must be below warn 80, or equal"),
        ({"balance": {"clear_error": 1}}, ("alerts", "balance"), "clear_error 1 must be above error 6, or equal"),
        ({"ecc": {"error": 1}}, ("alerts", "ecc", "error"), "ecc has no level error; it has warn"),
        ({"failed": {"error": 1}}, ("alerts", "failed", "error"), "failed has no limit to set: it is active or not"),
        ({"memory": {"hold_s": -1}}, ("alerts", "memory", "hold_s"), "must be a number of seconds, 0 or more"),
    ],
)  # fmt: skip
def test_mistakes_in_kinds(alerts: dict[str, Any], where: tuple[str, ...], words: str) -> None:
    with pytest.raises(SettingsError) as caught:
        parse_alerts(alerts, None)
    assert (caught.value.where, caught.value.words) == (where, words)


NTFY = {"kind": "ntfy", "url_env": "NTFY_URL"}


@pytest.mark.parametrize(
    ("sinks", "where", "words"),
    [
        ({}, ("sinks",), "must be a list of tables: write [[sinks]]"),
        ([{}], ("sinks", 0), "Object missing required field `kind`"),
        ([{"kind": "nfty"}], ("sinks", 0, "kind"), "no such sink; did you mean 'ntfy'?"),
        ([{**NTFY, "urlenv": "X"}], ("sinks", 0, "urlenv"), "unknown key 'urlenv'; did you mean 'url_env'?"),
        ([{**NTFY, "url": SECRET}], ("sinks", 0, "url"), "unknown key 'url'"),
        ([{"kind": "ntfy"}], ("sinks", 0), "needs url_env or url_file"),
        ([{**NTFY, "url_file": "x"}], ("sinks", 0), "needs url_env or url_file"),
        ([{"kind": "ntfy", "url_env": SECRET}], ("sinks", 0, "url_env"), "must be the name of an environment"),
        ([{"kind": "ntfy", "url_file": SECRET}], ("sinks", 0, "url_file"), "must be a file that contains the address"),
        ([{"kind": "bell", "url_env": "X"}], ("sinks", 0, "url_env"), "a bell has no url_env"),
        ([{"kind": "command"}], ("sinks", 0), "needs argv"),
        ([{"kind": "command", "argv": "notify"}], ("sinks", 0, "argv"), "Expected `array`, got `str`"),
        ([{**NTFY, "min_level": "bad"}], ("sinks", 0, "min_level"), "must be warn or error"),
        ([{**NTFY, "kinds": ["diks"]}], ("sinks", 0, "kinds", 0), "'diks' is not a kind of alert"),
        ([{**NTFY, "quiet_hours": "night"}], ("sinks", 0, "quiet_hours"), "must be two times of the day"),
        ([{**NTFY, "timeout_s": 0}], ("sinks", 0, "timeout_s"), "must be a number of seconds"),
        ([{**NTFY, "digest_over": 0}], ("sinks", 0, "digest_over"), "must be 1 or more"),
        ([NTFY, NTFY], ("sinks", 1), "a second sink is called 'ntfy'"),
    ],
)  # fmt: skip
def test_mistakes_in_sinks(sinks: Any, where: tuple[str | int, ...], words: str) -> None:
    with pytest.raises(SettingsError) as caught:
        parse_alerts(None, sinks)
    assert caught.value.where == where
    assert caught.value.words.startswith(words)
    assert "very-secret" not in caught.value.words


def test_every_kind_of_sink_can_be_made() -> None:
    assert MAKERS.keys() == SINKS.keys()
    own: dict[tuple[str, ...], dict[str, Any]] = {
        (): {},
        ("url",): {"url_env": "X"},
        ("argv",): {"argv": ["true"]},
    }
    tables = [{"kind": kind, **own[needs]} for kind, needs in SINKS.items()]
    for settings in parse_alerts(None, tables).sinks:
        assert build_sink(settings, {}) is not None
        assert settings.name == settings.kind
        assert msgspec.json.encode(settings)
