"""A machine that two platforms show is one machine, and jobs that nobody is billed for are no unseen bill."""

from __future__ import annotations

from rgt_tui.fleet import build_bills
from rgt_tui.model import Lifecycle, Meter, MeterKind, ProviderRef
from rgt_tui.providers import AccountListing, Instance

ON = Meter(kind=MeterKind.COMPUTE_AND_STORAGE, lifecycle=Lifecycle.RUNNING, per_hour=0.69)
POD = Instance(id="k3v9", name="lab-0", meter=ON)
OVER_IT = Instance(id="main/lab/0", name="lab-0", meter=ON, below="k3v9")
DSTACK = ProviderRef("dstack", "main/lab/0", "https://dstack.example")
RUNPOD = ProviderRef("runpod", "k3v9")


def unseen(named: ProviderRef) -> list[tuple[str, str]]:
    listed = (
        AccountListing(ref=DSTACK, machines=(OVER_IT,), at=1.0),
        AccountListing(
            ref=RUNPOD, machines=(POD, Instance(id="other", name="other", meter=ON)), at=1.0
        ),
    )
    return [
        (thing.kind, thing.id)
        for bill in build_bills(listed, {}, (named,))
        for thing in bill.things
    ]


def test_the_box_that_names_it_at_one_platform_names_it_at_the_other() -> None:
    assert unseen(RUNPOD) == [("runpod", "other")]
    assert unseen(DSTACK) == [("runpod", "other")]


def test_where_no_id_is_told_the_address_and_the_port_say_it() -> None:
    sky = ProviderRef("skypilot", "train-a", "http://127.0.0.1:46580")
    cloud = ProviderRef("lambda", "0f1e")
    here, there = (
        Instance(id=one, name="", meter=ON, host="198.51.100.9", port=22)
        for one in ("train-a", "0f1e")
    )
    other = Instance(id="9999", name="", meter=ON, host="198.51.100.9", port=40122)
    listed = (
        AccountListing(ref=sky, machines=(here,), at=1.0),
        AccountListing(ref=cloud, machines=(there, other), at=1.0),
    )
    for named in (sky, cloud):
        seen = [thing.id for bill in build_bills(listed, {}, (named,)) for thing in bill.things]
        assert seen == ["9999"], "another port of the same address is another machine"


def test_where_no_box_names_it_it_is_told() -> None:
    assert ("runpod", "k3v9") in unseen(ProviderRef("runpod", "mine"))


def test_ones_other_jobs_on_a_cluster_are_no_bill() -> None:
    job = Instance(
        id="4711",
        name="sweep",
        meter=Meter(kind=MeterKind.COMPUTE_AND_STORAGE, lifecycle=Lifecycle.RUNNING),
    )
    listed = (AccountListing(ref=ProviderRef("slurm", "4712"), machines=(job,), at=1.0),)
    (bill,) = build_bills(listed, {}, (ProviderRef("slurm", "4712"),))
    assert bill.things == ()
