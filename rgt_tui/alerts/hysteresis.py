"""The state machine of one alert: it must last before it rises, and be over for a while before it clears."""

from __future__ import annotations

import math

import msgspec

from rgt_tui.alerts.kind import Kind, Reading
from rgt_tui.model.alert import Alert

GONE = Reading("", -math.inf)
"""The resource is there no more."""


class Machine(msgspec.Struct, frozen=True):
    """One alert of one resource. Time is counted in known seconds: those without a reading count for nothing."""

    rung: int = 0
    """0 = not raised, else the place of the kind's rung, from 1."""
    up_s: float | None = None
    """For how long it has been bad enough for a higher rung; None = it is not."""
    down_s: float = 0.0
    """For how long it has been good enough for a lower rung."""
    count: float | None = None
    """The last value of a kind that counts."""
    alert: Alert | None = None
    """What is shown while it is raised."""
    fading: bool = False
    """The reading is good by now; it clears once that has lasted."""

    @property
    def idle(self) -> bool:
        """Nothing is to be remembered."""
        return self.rung == 0 and self.up_s is None and self.count is None


REST = Machine()


def known(reading: Reading) -> bool:
    """Say whether there is a value."""
    return reading.value is not None and reading.value == reading.value


def advance(kind: Kind, machine: Machine, reading: Reading, dt: float) -> Machine:
    """Return the machine after a known `reading`; its `alert` is left as it was.

    Args:
        kind: The row of the table.
        machine: The state so far.
        reading: Its value is neither None nor NaN.
        dt: Known seconds since the last reading.
    """
    value = reading.value
    assert value is not None
    if kind.rises:
        return _count(kind, machine, reading, value, dt)
    sign = -1.0 if kind.below and reading is not GONE else 1.0
    rungs = kind.rungs
    up = machine.rung
    for place in range(len(rungs), machine.rung, -1):
        if sign * value >= sign * rungs[place - 1].at:
            up = place
            break
    if up > machine.rung:
        waited = (reading.age_s or 0.0) if machine.up_s is None else machine.up_s + dt
        if waited >= kind.hold_s:
            return Machine(rung=up, up_s=waited, alert=machine.alert)
        return Machine(machine.rung, waited, 0.0, None, machine.alert)
    down = machine.rung
    while down and sign * value < sign * rungs[down - 1].clear:
        down -= 1
    if down < machine.rung:
        over = machine.down_s + dt
        if over >= kind.quiet_s:
            return Machine(rung=down, alert=machine.alert)
        return Machine(machine.rung, None, over, None, machine.alert, fading=down == 0)
    if machine.up_s is None and not machine.down_s and not machine.fading:
        return machine
    return Machine(rung=machine.rung, alert=machine.alert)


def _count(kind: Kind, machine: Machine, reading: Reading, value: float, dt: float) -> Machine:
    if reading is GONE:
        if machine.rung == 0:
            return REST  # what is counted after that begins anew, such as after a reboot
        value = machine.count if machine.count is not None else 0.0
    if machine.rung == 0 and (machine.count is None or value < machine.count):
        if reading.age_s is None or reading.age_s > kind.quiet_s:
            return Machine(count=value)
        return Machine(rung=1, up_s=reading.age_s, down_s=reading.age_s, count=value)
    if machine.count is not None and value > machine.count:
        return Machine(rung=1, count=value, alert=machine.alert)
    if machine.rung == 0:
        return machine if value == machine.count else Machine(count=value)
    over = machine.down_s + dt
    if over >= kind.quiet_s:
        return Machine(count=value)
    return Machine(machine.rung, None, over, value, machine.alert)
