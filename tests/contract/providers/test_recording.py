"""A recording of an account holds nothing of its owner, was made by reads alone, and reads as the account itself."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rgt_tui.demo import LocalServer
from rgt_tui.profiles import load_api_tables
from rgt_tui.providers import ProviderError, Providers
from rgt_tui.providers.recording import Recording, Redactor, record_account
from tests.contract.providers.api_check import answer_faults
from tests.contract.providers.platform_rows import ROWS
from tests.contract.providers.replaying import replayed
from tests.contract.providers.test_every_platform import KEY_ENV, bench

OVER_HTTP = [
    row
    for row in ROWS
    if row.kind
    in (
        "autodl",
        "digitalocean",
        "dstack",
        "lambda",
        "paperspace-core",
        "runpod",
        "skypilot",
        "vastai",
    )
]
READ_BY_POST = re.compile(
    r"/api/v0/bundles/?|/api/v1/dev/.*|/api/(instances|runs|volumes)/list|/api/project/[^/]+/.*/(list|get)"
    r"|/status|/cost_report"
)
"""Reads that these platforms offer as a POST: vast's search, and the lists of AutoDL, dstack and SkyPilot."""
ACCOUNTS = Path(__file__).parents[2] / "fixtures/accounts"


@pytest.mark.parametrize("row", OVER_HTTP, ids=lambda row: row.kind)
async def test_a_recording_reads_as_the_account_and_names_no_machine_of_it(row: Any) -> None:
    async with bench(row) as made:
        assert isinstance(made.server, LocalServer)
        key = made.server.key
        before = await made.provider.list()
        seen = len(made.server.requests)
        fresh = Providers(env={KEY_ENV: key}, clock=made.clock)
        account: Any = fresh.find_account(made.provider.ref)
        found = await record_account(account, "", rgt="1", kind=row.kind, month="2026-11")
        for what in made.server.requests[seen:]:
            method, path = what.split(" ", 1)
            assert method == "GET" or READ_BY_POST.fullmatch(path), what
        with pytest.raises(ProviderError, match="only reads are recorded"):
            await account.http.send("POST", "/anything")
        await fresh.close()
    text = msgspec.json.encode(found).decode()
    assert key not in text
    for machine in before:
        assert machine.id not in text
        assert machine.name not in text
        assert machine.host is None or machine.host not in text
    after = await replayed(msgspec.json.decode(text, type=Recording))
    assert len(after) == len(before) > 0
    for one, other in zip(before, after, strict=True):
        assert (one.meter.lifecycle, one.meter.kind, one.gpu) == (
            other.meter.lifecycle,
            other.meter.kind,
            other.gpu,
        )
        assert other.meter.compute_per_hour == one.meter.compute_per_hour


@pytest.mark.parametrize("path", sorted(ACCOUNTS.glob("*.json")), ids=lambda path: path.stem)
async def test_a_recorded_account_is_read_without_an_error(path: Path) -> None:
    """Recordings of real accounts that people attach to a report are put into this folder."""
    recording = msgspec.json.decode(path.read_bytes(), type=Recording)
    listed = await replayed(recording)
    assert [one.meter.error for one in listed] == [None] * len(listed) != []
    if (table := load_api_tables().get(recording.kind)) is not None:
        # The platform answers otherwise than the table says, or the recording replaced a word of the platform's own.
        for one in recording.exchanges:
            what = one.method, one.path.partition("?")[0]
            assert not list(
                answer_faults(table, *what, one.status, msgspec.json.encode(one.answer))
            ), what


@pytest.mark.parametrize(
    ("key", "value", "kept"),
    [
        ("actual_status", "running", True),
        ("gpu_name", "RTX 4090", True),
        ("dph_base", "0.41", True),
        ("start_date", "2026-11-01T00:00:00Z", True),
        ("label", "my-project", False),
        ("status_msg", "image acme/private:1 pulled", False),
        ("public_ipaddr", "203.0.113.9", False),
        ("ssh_key", "ssh-ed25519 AAAA me@home", False),
        ("something_new", "whatever", False),
        ("id", "31415926", False),
        ("error", "pod <abc> of me@example.org", False),
        ("credit", "23.45", False),
    ],
)
def test_text_is_replaced_unless_it_is_the_platforms_own_word(
    key: str, value: str, kept: bool
) -> None:
    assert (Redactor().redact_data({key: value}) == {key: value}) is kept


def test_a_name_that_looks_like_an_id_keeps_no_part_of_itself() -> None:
    shown: Any = Redactor().redact_data({"name": "lab-1", "uuid": "pro-0abc12"})
    assert "lab" not in shown["name"]
    assert shown["uuid"].startswith("pro-")


def test_json_in_a_text_is_read_as_json() -> None:
    shown: Any = Redactor().redact_data(
        {"return_value": '[{"name": "secret", "status": "UP"}]', "text": "{secret"}
    )
    assert "secret" not in str(shown)
    assert '"status":"UP"' in shown["return_value"]


def test_a_filter_is_read_as_the_key_that_it_filters() -> None:
    data = {"type": {"in": ["instance"]}, "id": {"in": [31415926]}, "label": {"eq": "my-project"}}
    shown: Any = Redactor().redact_data(data)
    assert shown["type"] == {"in": ["instance"]}
    assert shown["id"]["in"] != [31415926] and shown["label"]["eq"] != "my-project"


def test_the_same_text_gets_the_same_replacement_in_its_shape() -> None:
    redactor = Redactor()
    data = {"instances": [{"id": 31415926, "host": "203.0.113.9"}], "label_counts": {"secret": 1}}
    shown: Any = redactor.redact_data(data)
    number = shown["instances"][0]["id"]
    assert len(str(number)) == 8 and number != 31415926
    assert shown["instances"][0]["host"].startswith("198.18.")
    assert "secret" not in shown["label_counts"]
    assert redactor.redact_data({"source": "instance-31415926"}) == {"source": f"instance-{number}"}
    assert (
        redactor.redact_path("/api/v0/instances/31415926/?owner=me")
        == f"/api/v0/instances/{number}/?owner=me"
    )
