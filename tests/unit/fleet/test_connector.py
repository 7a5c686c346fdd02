"""Which of two addresses a session tries next. Nothing listens at either, so each message tells where it went."""

from __future__ import annotations

import pytest

from rgt_tui.fleet import ConnectLimit, Connector
from rgt_tui.model import BoxSpec
from rgt_tui.profiles import load_profile
from rgt_tui.ssh import HostKeyPolicy, Unreachable
from tests.free_ports import free_port


class Nowhere:
    """The approach to a box that answers nowhere."""

    def __init__(self) -> None:
        self.described, self.other = free_port(), free_port()
        spec = BoxSpec(name="lab", host="127.0.0.1", port=self.described, ssh_config="none")
        profile = load_profile("generic-ssh")
        self.approach = Connector(
            spec, profile, ConnectLimit(), None, None, HostKeyPolicy.ASK, lambda _: None
        )

    def told(self) -> bool:
        return self.approach.set_moved_address("127.0.0.1", self.other)

    async def tried(self) -> str:
        with pytest.raises(Unreachable) as error:
            async with self.approach.hold_slot():
                await self.approach.connect()
        return "other" if f":{self.other}" in str(error.value) else "described"


async def test_the_described_address_comes_first_then_both_in_turn() -> None:
    box = Nowhere()
    assert box.told() and not box.told()
    assert [await box.tried() for _ in range(4)] == ["described", "other", "described", "other"]


async def test_news_of_another_address_counts_at_once_where_the_described_one_has_failed() -> None:
    box = Nowhere()
    assert [await box.tried(), await box.tried()] == ["described", "described"]
    box.told()
    assert box.approach.has_another_address
    assert [await box.tried(), await box.tried()] == ["other", "described"]


async def test_old_news_does_not_lead_away_from_the_address_whose_turn_it_is() -> None:
    box = Nowhere()
    box.told()
    assert [await box.tried(), await box.tried()] == ["described", "other"]
    box.told()
    assert await box.tried() == "described"
