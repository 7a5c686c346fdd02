"""What bills unseen, as a person and a script see it: `rgt status`, `rgt metrics`, `rgt import --from`."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator
from dataclasses import dataclass

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from rgt_tui.demo import InjectedFault
from rgt_tui.fleet.config import load_fleet
from rgt_tui.model import BoxSpec, ProviderRef, RentalTerms
from tests.contract.cli.conftest import Rgt
from tests.contract.providers.fakes.renting_runpod import RentingRunPod
from tests.free_ports import free_port

KEY = "RGT_TEST_KEY"


@dataclass
class Unseen:
    """A fleet of one box that cannot be reached, in an account with more than that."""

    rgt: Rgt
    server: RentingRunPod
    spec: BoxSpec

    async def __call__(self, *words: str) -> subprocess.CompletedProcess[str]:
        return await asyncio.to_thread(self.rgt.on, *words)


@pytest.fixture
async def unseen(rgt: Rgt) -> AsyncIterator[Unseen]:
    server = RentingRunPod(settle_s=0.0)
    await server.start()
    server.add_pod("pod1", "lab", cost=0.5)
    server.add_pod("pod9", "forgotten one", cost=1.25, host="127.0.0.1", port=40022)
    server.add_pod("pod8", "lab", cost=0.3, status="EXITED")
    server.add_volume("vol1", 100.0)
    rgt.env[KEY] = server.key
    ref = ProviderRef("runpod", "pod1", base_url=server.base_url, key_env=KEY)
    spec = BoxSpec(name="lab", host="127.0.0.1", port=free_port(), profile="runpod", provider=ref)
    rgt.describe([spec])
    yield Unseen(rgt, server, spec)
    await server.stop()


async def test_status_has_a_line_of_the_account_and_an_alert(unseen: Unseen) -> None:
    done = await unseen("status")
    assert done.returncode == 1, done.stderr
    _, account = done.stdout.splitlines()
    assert account.startswith("runpod           unlisted    $1.31/h ")
    assert "machine forgotten one (pod9)" in account and "volume vol1, 100 GB" in account
    assert account.endswith("rgt import --from runpod adds machines to the fleet")
    done = await unseen("status", "--json")
    line, bill = (json.loads(text) for text in done.stdout.splitlines())
    assert {one["id"] for one in line["alerts"]} >= {
        "unlisted:pod9",
        "unlisted:pod8",
        "leftover:volume:vol1",
    }
    assert (bill["account"], [one["id"] for one in bill["unlisted"]]) == (
        "runpod",
        ["pod9", "pod8", "vol1"],
    )
    assert (bill["machines_error"], bill["leftovers_error"]) == (None, None)


async def test_some_boxes_of_a_fleet_say_nothing_of_the_others(unseen: Unseen) -> None:
    other = ProviderRef("runpod", "pod9", base_url=unseen.server.base_url, key_env=KEY)
    mill = BoxSpec(
        name="mill", host="127.0.0.1", port=free_port(), profile="runpod", provider=other
    )
    unseen.rgt.describe([unseen.spec, mill])
    done = await unseen("status", "lab", "--json")
    (line,) = (json.loads(text) for text in done.stdout.splitlines())
    assert [
        one["id"] for one in line["alerts"] if one["id"].startswith(("unlisted", "leftover"))
    ] == []


async def test_what_cannot_be_listed_is_said(unseen: Unseen) -> None:
    unseen.server.inject_faults(InjectedFault(on="GET /v2/network-volumes", status=403, times=-1))
    done = await unseen("status")
    assert "volumes, addresses and snapshots: unknown" in done.stdout.splitlines()[1]
    assert "≥ $" in done.stdout.splitlines()[1]


async def test_a_box_that_is_dearer_than_the_fleet_file_says_it_was_asked_for_is_an_alert(
    unseen: Unseen,
) -> None:
    unseen.rgt.describe([msgspec.structs.replace(unseen.spec, asked=RentalTerms(max_per_hour=0.2))])
    done = await unseen("status", "--json")
    line = json.loads(done.stdout.splitlines()[0])
    assert "agreed:price" in {one["id"] for one in line["alerts"]}


async def test_metrics_have_a_gauge_for_each(unseen: Unseen) -> None:
    done = await unseen("metrics", "--once")
    assert done.returncode == 0, done.stderr
    families = {one.name: one.samples for one in text_string_to_metric_families(done.stdout)}
    assert {one.labels["id"]: one.value for one in families["rgt_unlisted"]} == {
        "pod9": 1,
        "pod8": 1,
        "vol1": 1,
    }
    prices = {one.labels["id"]: one.value for one in families["rgt_unlisted_per_hour"]}
    assert prices["pod9"] > 1.25
    assert {one.labels["provider"] for one in families["rgt_account_machines_age_seconds"]} == {
        "runpod"
    }


async def test_import_shows_then_writes_boxes_and_leaves_volumes_to_the_person(
    unseen: Unseen,
) -> None:
    before = unseen.rgt.fleet.read_text()
    shown = await unseen("import", "--from", "runpod")
    assert (shown.returncode, unseen.rgt.fleet.read_text()) == (0, before)
    assert "# runpod: machine forgotten one (pod9)" in shown.stdout
    assert "DELETE" in shown.stdout and "[boxes.forgotten-one.provider]" in shown.stdout
    done = await unseen("import", "--from", "runpod", "--write")
    assert done.returncode == 0, done.stderr
    boxes = {spec.name: spec for spec in load_fleet(unseen.rgt.fleet)}
    assert list(boxes) == ["lab", "forgotten-one", "lab-2"]
    taken, stopped = boxes["forgotten-one"], boxes["lab-2"]
    assert (taken.host, taken.port, taken.user, taken.profile) == (
        "127.0.0.1",
        40022,
        "root",
        "runpod",
    )
    assert taken.provider == ProviderRef(
        "runpod", "pod9", base_url=unseen.server.base_url, key_env=KEY
    )
    assert (stopped.host, stopped.provider and stopped.provider.instance) == (
        "pod8.invalid",
        "pod8",
    )
    again = await unseen("import", "--from", "runpod")
    assert (again.returncode, "nothing to import" in again.stderr) == (1, True)


async def test_import_takes_only_what_matches_and_knows_its_providers(unseen: Unseen) -> None:
    done = await unseen("import", "pod8", "--from", "runpod", "--json")
    (line,) = (json.loads(text) for text in done.stdout.splitlines())
    assert (line["box"], line["file"]) == ("lab-2", None)
    done = await unseen("import", "--from", "runpood")
    assert (done.returncode, done.stderr) == (
        2, "rgt: there is no provider 'runpood'; there are: " + done.stderr.partition("there are: ")[2],
    )  # fmt: skip
    unseen.server.inject_faults(InjectedFault(on="GET /v2/pods", status=500, times=-1))
    done = await unseen("import", "--from", "runpod", "--write")
    assert done.returncode == 3
    assert "500" in done.stderr
