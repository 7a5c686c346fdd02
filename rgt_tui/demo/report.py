"""The headless demo's JSON object, made from the same fleet state that the screens show."""

from __future__ import annotations

from typing import Any

from rgt_tui.demo.stories import Stories
from rgt_tui.health import assess
from rgt_tui.model.box import BoxState
from rgt_tui.model.fleet import FleetState


def report(state: FleetState, stories: Stories, now: float, seconds: float) -> dict[str, Any]:
    """Return what the run has seen.

    Args:
        state: The newest state.
        stories: Which stories have happened.
        now: Client clock.
        seconds: How long the run took.
    """
    return {
        "boxes": [box_report(box, now) for box in state.boxes],
        "stories": dict(stories.seen),
        "seconds": round(seconds, 1),
    }


def box_report(box: BoxState, now: float) -> dict[str, Any]:
    """Return one box's part."""
    cells = [cell for queue in box.queues for cell in queue.cells]
    counts = {state: sum(cell.state == state for cell in cells) for state in ("done", "failed", "running")}
    latest = max(box.runs, key=lambda run: run.last_at or 0.0, default=None)
    return {
        "name": box.spec.name,
        "platform": box.spec.profile,
        "state": assess(box, now).health.value,
        "samples": box.counters.samples,
        "gaps": box.counters.gaps,
        "duplicates": box.counters.duplicates,
        "agent_rss_bytes": box.sample.agent_rss if box.sample is not None else None,
        "cells": {"total": len(cells), **counts},
        "last_step": latest.step if latest is not None else None,
        "last_loss": latest.loss if latest is not None else None,
        "resumed": any(run.resumes for run in box.runs),
        "findings": [
            {
                "gotcha": finding.gotcha,
                "evidence": finding.evidence,
                "resource": finding.resource,
                "where": finding.where,
                "fix": [fix.text for fix in finding.fixes],
            }
            for finding in box.findings
        ],
        "meter": box.meter.kind.value,
        "spent_usd": None if box.meter.spent is None else round(box.meter.spent, 6),
    }
