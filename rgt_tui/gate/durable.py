"""Would a result be lost? Answered by the profile's survival facts and the runner's own verified copies."""

from __future__ import annotations

from collections.abc import Mapping

from rgt_tui.gate.storage import path_survives, tiers_of
from rgt_tui.gate.words import listed, quoted
from rgt_tui.model.box import BoxState
from rgt_tui.model.evidence import EvidenceItem, Verb
from rgt_tui.model.profile import Profile
from rgt_tui.model.protocol import Cell


def durable(state: BoxState, profile: Profile | None, verb: Verb, known: Mapping[str, str]) -> EvidenceItem:
    """Say whether every result outlives the verb.

    For a destroy: every done cell has a copy that the runner verified, on a tier that survives a destroy. For
    a park: what is not safe in that way must at least lie on a tier that survives a stop.
    """

    def item(ok: bool, text: str) -> EvidenceItem:
        return EvidenceItem(key="durable", ok=ok, text=text, at=state.sample_at)

    if profile is None:
        return item(False, "the platform's profile is unknown, so nothing says what would be lost")
    cells = [cell for queue in state.queues for cell in queue.cells]
    copied = {
        cell.name for cell in cells if cell.state == "done" and _copy_survives(cell, profile, known, verb)
    }
    problems: list[str] = []
    if verb is Verb.DESTROY:
        problems += [
            _why(cell, profile, known) for cell in cells if cell.state == "done" and cell.name not in copied
        ]
    problems += _left_behind(state, cells, copied, profile, known, verb)
    if problems:
        more = f"; and {len(problems) - 3} more" if len(problems) > 3 else ""
        return item(False, "; ".join(problems[:3]) + more)
    if copied:
        return item(
            True,
            f"{len(copied)} results verified on storage that outlives the action ({listed(sorted(copied))})",
        )
    return item(True, "no result on the box is at stake")


def _copy_survives(cell: Cell, profile: Profile, known: Mapping[str, str], verb: Verb) -> bool:
    if cell.durable != "verified" or not cell.durable_path:
        return False
    return path_survives(cell.durable_path, profile, known, verb) is True


def _why(cell: Cell, profile: Profile, known: Mapping[str, str]) -> str:
    """Return why a done cell's result would not outlive a destroy."""
    name = quoted(cell.name)
    if cell.durable != "verified" or not cell.durable_path:
        return f"{name} has no verified durable copy ({cell.durable or 'the job names no durable directory'})"
    tiers = tiers_of(cell.durable_path, profile, known)
    where = (
        f"{quoted(cell.durable_path)} ({' or '.join(tier.name for tier in tiers) or 'no known storage tier'})"
    )
    if path_survives(cell.durable_path, profile, known, Verb.DESTROY) is False:
        return f"the copy of {name} at {where} is erased with the box"
    return f"nothing says that the copy of {name} at {where} outlives the box"


def _left_behind(
    state: BoxState,
    cells: list[Cell],
    copied: set[str],
    profile: Profile,
    known: Mapping[str, str],
    verb: Verb,
) -> list[str]:
    """Return what the verb would take although nobody has a copy: checkpoints and outputs without one."""
    handled = copied | (
        {cell.name for cell in cells if cell.state == "done"} if verb is Verb.DESTROY else set()
    )
    paths: dict[str, str] = {}
    for cell in cells:
        if cell.name not in handled and cell.out and cell.state != "waiting":
            paths[cell.name] = cell.out
    for group in state.checkpoints:
        if group.run not in handled and group.items:
            paths[group.run] = group.items[-1].path
    problems = []
    if state.left_out.checkpoints:
        lists = f"{state.left_out.checkpoints} lists of checkpoints of this box"
        problems.append(f"{lists} were not kept: whether a copy of them is anywhere is unknown")
    for name, path in paths.items():
        answer = path_survives(path, profile, known, verb)
        if answer is not True:
            fate = "is erased by it" if answer is False else "may be erased by it (the profile does not say)"
            problems.append(f"what {quoted(name)} has at {quoted(path)} {fate}")
    return problems
