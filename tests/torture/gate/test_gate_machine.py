"""No sequence of events destroys a result that nobody gave up, sends a call twice, or leaves a crash unexplained.

`make gate-check` takes a hundred thousand steps, and shows that each guard that is left out is missed at once.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from rgt_tui.model import BillingVerb
from tests.torture.gate.box_disk import ODD
from tests.torture.gate.gate_world import (
    ACTING,
    CREATED,
    HAND,
    PLACES,
    QUEUE,
    SERVERS,
    Broken,
    Machine,
    World,
    reached,
)
from tests.torture.gate.gate_world import BOXES as BOX_NAMES
from tests.torture.gate.mutants import MUTANTS

FULL = os.environ.get("RGT_TORTURE") == "full"
STEPS = 100_000 if FULL else 500
RULES, LENGTH = 25, 40
"""Rules of one example, and steps, of which some rules take several."""

BOXES = st.sampled_from(sorted(BOX_NAMES))
VERBS = st.sampled_from(list(BillingVerb))
RGTS = st.sampled_from([0, 1])
STATES = ("intent", "sent", "answered", "confirmed", "off", "call")
DEATHS = st.tuples(st.sampled_from(["before", "after"]), st.sampled_from(STATES))
FAULTS = st.sampled_from(
    ["nothing", "500", "401", "409", "302", "408", "unreadable", "cut before", "cut after"]
)


def writes(world: World, box: str, path: str = PLACES[0]) -> None:
    """A checkpoint comes to be, unless the box is held still or off."""
    machine = world.spoken[box]
    if still(world, machine) or not machine.pod.is_on:
        return
    machine.files[path] = machine.files.get(path, 0) + 1
    reached["a checkpoint newer than the list"] += 1


def still(world: World, machine: Machine) -> bool:
    if machine.sealed_until >= world.ticks:
        reached["something was held back by the seal"] += 1
        return True
    return False


def trains(world: World, box: str) -> None:
    machine = world.spoken[box]
    if machine.pod.is_on and not still(world, machine):
        machine.training = True
        reached["a training begins"] += 1


def types(world: World, box: str) -> None:
    world.spoken[box].typed_at = world.wall
    reached["somebody types"] += 1


def rests(world: World, box: str) -> None:
    machine = world.spoken[box]
    machine.training, machine.typed_at = False, 0.0
    if machine.cell in ("running", "interrupted", "failed"):
        machine.cell = "done"


def queues(world: World, box: str) -> None:
    machine = world.spoken[box]
    if machine.pod.is_on and machine.cell == "done" and not still(world, machine):
        machine.cell = "waiting"
        machine.files[QUEUE] = machine.files.get(QUEUE, 0) + 1
        reached["a cell is appended"] += 1


def starts(world: World, box: str) -> None:
    """The queue's runner takes a cell, for which it needs the lock that a seal holds."""
    machine = world.spoken[box]
    if (
        machine.pod.is_on
        and machine.cell in ("waiting", "interrupted")
        and not still(world, machine)
    ):
        machine.cell = "running"
        machine.files[PLACES[0]] = machine.files.get(PLACES[0], 0) + 1
        reached["a cell starts"] += 1


def damages(world: World, box: str, path: str = PLACES[0]) -> None:
    # What breaks in the moment after it was looked at for the call is beyond any check before the call.
    if (box, path) in world.copies and not world.proved:
        world.copies[box, path] = (world.copies[box, path][0], False)
        reached["a copy is damaged"] += 1


def reborn(world: World, box: str) -> None:
    """Another machine answers under the box's name and address; the fleet file still names the old instance."""
    machine = world._machine(box)
    machine.pod.id = "pod2"
    world.spoken[box] = machine
    if box == HAND:  # nothing but the address says which machine it is
        world.machines[box] = machine
    for rgt in world.rgts:
        world.cut(rgt, box)
    reached["reborn under its name"] += 1


def elsewhere(world: World, box: str) -> None:
    """Somebody starts or stops the machine in the console."""
    pod = world.machines[box].pod
    if pod.status == "EXITED":
        world.started(box)
        reached["started in the console"] += 1
    elif pod.status == "RUNNING":
        world._stopped(box, "EXITED")
        reached["stopped in the console"] += 1


def unplugs(world: World, box: str) -> None:
    world.linked[box] = not world.linked[box]
    reached["the network to a box changes"] += 1


def deafens(world: World, box: str) -> None:
    world.deaf = not world.deaf
    reached["the network to the providers changes"] += 1


def back(world: World, box: str) -> None:
    world.wall -= 86_400.0
    reached["the wall clock is set back"] += 1


def forward(world: World, box: str) -> None:
    world.wall += 86_400.0
    reached["the wall clock is set forward"] += 1


def sleeps(world: World, box: str) -> None:
    """The computer sleeps for eight hours, and everything else goes on."""
    world.wall += 8 * 3600.0
    world.ticks += 8 * 3600.0
    for name in BOX_NAMES:
        starts(world, name)
    reached["eight hours of sleep"] += 1


def writes_oddly(world: World, box: str) -> None:
    """A result comes to be where no job, run or name tells of it: next to an environment, among the image's files."""
    machine = world.spoken[box]
    if still(world, machine) or not machine.pod.is_on:
        return
    place = ODD[sum(machine.files.values()) % len(ODD)]
    machine.files[place] = machine.files.get(place, 0) + 1
    machine.disk.times[place] = (world.wall, world.wall)
    reached["a result at an odd place"] += 1


def writes_in_the_past(world: World, box: str) -> None:
    """The clock of the box was years behind while a result was written, and is right again."""
    machine = world.spoken[box]
    if still(world, machine) or not machine.pod.is_on:
        return
    machine.files[ODD[1]] = machine.files.get(ODD[1], 0) + 1
    machine.disk.times[ODD[1]] = (CREATED - 1e8, CREATED - 1e8)
    reached["a result under a clock that was behind"] += 1


def is_created_later(world: World, box: str) -> None:
    """The provider's date moves, as with every launch of SkyPilot, after a result was copied onto the box."""
    machine = world.spoken[box]
    if still(world, machine) or not machine.pod.is_on:
        return
    machine.files[ODD[2]] = machine.files.get(ODD[2], 0) + 1
    machine.disk.times[ODD[2]] = (world.wall, CREATED)
    machine.pod.created = world.wall + (3600.0 if machine.pod.created == CREATED else 7200.0)
    world.wall += 5 * 3600.0
    world.ticks += 5 * 3600.0
    reached["the date of creation moves"] += 1


def claims_the_root(world: World, box: str) -> None:
    """The provider reports a network volume at the root."""
    world.spoken[box].pod.networks = (("volume", "/"),)
    reached["a volume is claimed at the root"] += 1


def is_not_mounted(world: World, box: str) -> None:
    """The provider reports a network volume at /workspace, which is a directory of the root."""
    machine = world.spoken[box]
    machine.pod.networks, machine.disk.volume = (("volume", "/workspace"),), False
    reached["nothing is mounted at /workspace"] += 1


def second(world: World, box: str) -> Any:
    """Another rgt does the same, while the first is at it."""
    first = ACTING.get()
    other = next(rgt for rgt in world.rgts if rgt is not first)
    reached["a second rgt acts meanwhile"] += 1

    async def acts() -> None:
        token = ACTING.set(other)
        try:
            await world.act(other, box, BillingVerb.DESTROY, give_up=False, right=True)
        finally:
            ACTING.reset(token)

    return acts()


Event = Callable[[World, str], Any]
EVENTS: tuple[Event, ...] = (
    writes,
    trains,
    types,
    rests,
    queues,
    starts,
    damages,
    reborn,
    elsewhere,
    unplugs,
    deafens,
    back,
    forward,
    sleeps,
    writes_oddly,
    writes_in_the_past,
    is_created_later,
    claims_the_root,
    is_not_mounted,
    second,
)
EVENT = st.sampled_from(EVENTS)
MOMENTS = st.integers(1, 24)
"""How often rgt has asked the world something since the person looked at the review."""
MEANWHILE = st.dictionaries(MOMENTS, EVENT, max_size=2)


WRITES = (writes, writes_oddly, writes_in_the_past, is_created_later)
ALL = len(PLACES) + len(ODD)


class GateMachine(RuleBasedStateMachine):
    """Two boxes at two accounts and one without a provider, two rgt on one computer, and whatever can happen."""

    mutant: ClassVar[str] = ""
    """Which guard is left out."""

    def __init__(self) -> None:
        super().__init__()
        memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self.folder = Path(tempfile.mkdtemp(prefix="gate-machine-", dir=memory))
        self.patch = pytest.MonkeyPatch()
        self.world = World(self.folder, self.patch)
        if self.mutant:
            MUTANTS[self.mutant](self.patch)
        self.steps = 0

    def teardown(self) -> None:
        self.world.close()
        self.patch.undo()
        shutil.rmtree(self.folder, ignore_errors=True)
        reached["steps"] += self.steps
        reached["sequences"] += 1

    def act(
        self,
        number: int,
        box: str,
        verb: BillingVerb,
        meanwhile: Mapping[int, Event],
        **how: Any,
    ) -> None:
        world = self.world
        self.steps += 1
        for name in BOX_NAMES:
            world.sample(world.rgts[number], name)
        world.script = {at: partial(event, world, box) for at, event in meanwhile.items()}
        world.run(number, lambda rgt: world.act(rgt, box, verb, **how))

    @initialize(pulled=st.booleans())
    def begins(self, pulled: bool) -> None:
        if pulled:
            for box in SERVERS:
                self.pulls(box, ALL)

    @rule(box=BOXES, event=EVENT.filter(lambda event: event is not second))
    def happens(self, box: str, event: Event) -> None:
        self.steps += 1
        event(self.world, box)

    @rule(box=BOXES, count=st.sampled_from([1, ALL]))
    def pulls(self, box: str, count: int) -> None:
        """What was pulled before stays where the box has lost it."""
        self.steps += 1
        machine = self.world.spoken[box]
        for path in list(machine.files)[:count]:
            self.world.copies[box, path] = (machine.fingerprint(path), True)
        reached["pulled" if count > 1 else "pull half done"] += 1

    @rule(box=BOXES)
    def pulls_while_a_result_becomes_a_link(self, box: str) -> None:
        """What is read through it is no copy of the result; the pull names it, and is not complete."""
        self.steps += 1
        machine = self.world.spoken[box]
        for path in list(machine.files)[:1]:
            if machine.disk.read_once_swapped(path) is not None:
                raise Broken("a link that took the place of a result was followed")
            self.world.copies[box, path] = (machine.fingerprint(path), False)
            reached["a result becomes a link during a pull"] += 1

    @rule(box=BOXES)
    def calms(self, box: str) -> None:
        """All is well again: the box rests, its results are here, everything can be reached."""
        self.steps += 1
        world = self.world
        if box == HAND:
            world.run(0, world.settle_click)
        rests(world, box)
        world.spoken[box], world.linked[box], world.deaf = world.machines[box], True, False
        machine = world.machines[box]
        machine.cell = "done"
        machine.disk.volume, machine.pod.networks, machine.pod.created = True, (), CREATED
        if machine.pod.status == "EXITED":
            world.started(box)
        if (
            machine.pod.status == "TERMINATED"
        ):  # another is rented, and written into the fleet file under the same id
            world.machines[box] = world.spoken[box] = world._machine(box)
        self.pulls(box, ALL)

    @rule(number=RGTS, box=BOXES, verb=VERBS, give_up=st.booleans(), meanwhile=MEANWHILE)
    def confirms(
        self, number: int, box: str, verb: BillingVerb, give_up: bool, meanwhile: Any
    ) -> None:
        self.act(number, box, verb, meanwhile, give_up=give_up, right=True)

    @rule(number=RGTS, box=BOXES, verb=VERBS, event=EVENT, at=MOMENTS)
    def confirms_after_calm(
        self, number: int, box: str, verb: BillingVerb, event: Any, at: int
    ) -> None:
        self.calms(box)
        self.act(number, box, verb, {at: event}, give_up=False, right=True)

    @rule(
        number=RGTS,
        box=BOXES,
        verb=VERBS,
        event=st.sampled_from([second, sleeps, writes]),
        at=st.integers(6, 14),
    )
    def something_happens_in_mid_call(
        self, number: int, box: str, verb: BillingVerb, event: Any, at: int
    ) -> None:
        self.calms(box)
        self.act(number, box, verb, {at: event}, give_up=False, right=True)

    @rule(
        number=RGTS,
        box=BOXES,
        verb=VERBS,
        event=st.sampled_from(
            [reborn, queues, trains, types, damages, *WRITES, claims_the_root, is_not_mounted]
        ),
    )
    def confirms_with_one_thing_wrong(
        self, number: int, box: str, verb: BillingVerb, event: Any
    ) -> None:
        """All results of what is there are here, and one thing else is wrong."""
        self.calms(box)
        event(self.world, box)
        if event not in (damages, *WRITES):
            self.pulls(box, ALL)
        self.act(number, box, verb, {}, give_up=False, right=True)

    @rule(number=RGTS, box=BOXES, verb=VERBS, wait=st.sampled_from([0.0, 5.0, 59.0, 61.0, 900.0]))
    def confirms_later(self, number: int, box: str, verb: BillingVerb, wait: float) -> None:
        self.calms(box)
        self.act(number, box, verb, {}, give_up=False, right=True, wait=wait)

    @rule(number=RGTS, box=BOXES, verb=VERBS, give_up=st.booleans())
    def mistypes(self, number: int, box: str, verb: BillingVerb, give_up: bool) -> None:
        self.calms(box)
        self.act(number, box, verb, {}, give_up=give_up, right=False)

    @rule(number=RGTS, box=BOXES, verb=VERBS, fault=FAULTS, deaf=st.booleans())
    def is_answered_badly(
        self, number: int, box: str, verb: BillingVerb, fault: str, deaf: bool
    ) -> None:
        self.calms(box)
        self.world.fault = fault
        meanwhile = {12: deafens} if deaf else {}
        self.act(number, box, verb, meanwhile, give_up=False, right=True)

    @rule(number=RGTS, box=BOXES, verb=VERBS, death=DEATHS, fault=st.one_of(st.just(""), FAULTS))
    def dies(
        self, number: int, box: str, verb: BillingVerb, death: tuple[str, str], fault: str
    ) -> None:
        """It dies at some moment, another tries at once, and then one finds out."""
        self.calms(box)
        self.world.die, self.world.fault = death, fault
        self.act(number, box, verb, {}, give_up=False, right=True)
        self.act(number, box, verb, {}, give_up=True, right=True)
        self.finds_out(number)

    @rule(number=RGTS, box=BOXES, again=VERBS)
    def parks_and_then(self, number: int, box: str, again: BillingVerb) -> None:
        """A parked box cannot be asked; its sealed evidence counts as long as nobody starts it."""
        self.calms(box)
        self.act(number, box, BillingVerb.PARK, {}, give_up=False, right=True)
        self.act(number, box, again, {}, give_up=False, right=True)

    @rule(number=RGTS, box=BOXES)
    def parks_then_somebody_works_on_it(self, number: int, box: str) -> None:
        """It is started in the console, writes, and is stopped there, and no rgt sees any of it."""
        self.calms(box)
        self.act(number, box, BillingVerb.PARK, {}, give_up=False, right=True)
        if self.world.machines[box].pod.status == "EXITED":
            for event in (elsewhere, writes, elsewhere):
                event(self.world, box)
        self.act(number, box, BillingVerb.DESTROY, {}, give_up=False, right=True)

    @rule(number=RGTS)
    def says_done(self, number: int) -> None:
        self.steps += 1
        self.world.run(number, self.world.say_done)

    @rule(number=RGTS, verb=VERBS, clicks=st.booleans(), event=EVENT, at=MOMENTS)
    def clicks_and_says_done(
        self, number: int, verb: BillingVerb, clicks: bool, event: Any, at: int
    ) -> None:
        """A person is sent to the console; they say that it is done, also where they have forgotten the click."""
        self.calms(HAND)
        self.world.clicks = clicks
        self.act(number, HAND, verb, {at: event}, give_up=False, right=True)
        self.says_done(1 - number)

    @rule(number=RGTS)
    def finds_out(self, number: int) -> None:
        self.steps += 1
        self.world.run(number, self.world.find_out)

    @precondition(lambda self: self.world.permits)
    @rule(number=RGTS, which=st.integers(0, 99))
    def uses_a_permit_again(self, number: int, which: int) -> None:
        self.steps += 1
        self.world.run(number, lambda rgt: self.world.use_again(rgt, which))


def check(steps: int, machine: type[GateMachine] = GateMachine) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=max(1, steps // LENGTH),
            stateful_step_count=RULES,
            deadline=None,
            derandomize=True,
            database=None,
            report_multiple_bugs=False,
            phases=(Phase.generate,),
            suppress_health_check=list(HealthCheck),
        ),
    )


SOON = (
    "destroy sent",
    "park sent",
    "destroy: meter-off",
    "park: meter-off",
    "sealed",
    "destroy refused",
)
HAS_TO_REACH = (
    *SOON,
    "destroy with forfeits: meter-off",
    "park refused",
    "a result that was given up was lost",
    "something was held back by the seal",
    "a permit was refused",
    "resumed from sent",
    "resumed from answered",
    "resumed from unknown",
    "refused: another action is open, or held by another rgt",
    "crash after sent is written",
    "crash before the call was carried out",
    "crash after the call was carried out",
    "a result at an odd place",
    "a result under a clock that was behind",
    "the date of creation moves",
    "a volume is claimed at the root",
    "nothing is mounted at /workspace",
    "a result becomes a link during a pull",
    "destroy clicked",
    "park clicked",
    "a word taken",
    "a word refused",
)
"""Without these a run has shown nothing."""


QUICKLY_MISSED = (
    "seal skipped",
    "an open action is no obstacle",
    "sent is not written",
    "every answer proves that nothing was done",
    "a link in the place of a result is followed",
)
"""The guards that the short form leaves out; the others take more steps to be missed."""


def test_no_sequence_loses_a_result_or_sends_twice() -> None:
    reached.clear()
    check(STEPS)
    if FULL:
        print()
        for what, times in sorted(reached.items()):
            print(f"{times:>9,}  {what}")
        assert reached["steps"] >= STEPS, "too few steps"
    assert [what for what in (HAS_TO_REACH if FULL else SOON) if not reached[what]] == []


def test_a_second_rgt_and_again_the_first_while_the_first_is_at_it() -> None:
    machine = GateMachine()
    try:
        machine.begins(pulled=True)
        machine.confirms(
            1, "twin", BillingVerb.DESTROY, give_up=True, meanwhile={10: second, 13: second}
        )
    finally:
        machine.teardown()


def test_a_volume_that_is_claimed_only_since_the_stop_keeps_nothing() -> None:
    machine = GateMachine()
    try:
        machine.begins(pulled=True)
        machine.confirms_later(0, "lab", BillingVerb.PARK, wait=0.0)
        machine.happens("lab", is_not_mounted)
        machine.pulls_while_a_result_becomes_a_link("lab")
        machine.confirms(0, "lab", BillingVerb.DESTROY, give_up=False, meanwhile={})
    finally:
        machine.teardown()


@pytest.mark.full  # it tests the machine, and not the product
@pytest.mark.parametrize("name", MUTANTS if FULL else QUICKLY_MISSED)
def test_a_guard_that_is_left_out_is_missed(name: str) -> None:
    class Mutated(GateMachine):
        mutant = name

    reached.clear()
    with pytest.raises(Broken) as missed:
        check(60_000, Mutated)
    print(f"\n{name}: missed after {reached['steps']:,} steps: {missed.value}")
