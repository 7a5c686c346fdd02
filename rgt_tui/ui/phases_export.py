"""The phases of a box as a Markdown page to take along: every check with its status, evidence, age and note."""

from __future__ import annotations

import getpass
import os
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from rgt_tui.files import publish, state_directory
from rgt_tui.model.evidence import CheckResult
from rgt_tui.ui.notation import clean, compact_time
from rgt_tui.ui.widgets.checklist import WORDS, Phase


def phases_markdown(box: str, phases: Sequence[Phase], now: float) -> str:
    """Return the page; what a box or a person has said is text in it, never markup."""
    checks = [check for phase in phases for check in phase.checks]
    proved = sum(phase.proved for phase in phases)
    written = time.strftime("%Y-%m-%d %H:%M %Z", time.localtime(now))
    out = [f"# Phases of {escaped(box)}", "", f"{written}: {proved} of {len(checks)} proved.", ""]
    for phase in phases:
        if not phase.checks:
            continue
        out += [f"## {phase.number} {phase.name} ({phase.proved}/{len(phase.checks)})", ""]
        out += [item(check, now) for check in phase.checks]
        out.append("")
    return "\n".join(out).rstrip("\n") + "\n"


def item(check: CheckResult, now: float) -> str:
    """Return a check as an item of a task list."""
    done = WORDS[check.status] == "proved"
    word = f"ticked by {escaped(check.by)}" if check.by else WORDS[check.status]
    age = "" if check.at is None else f", {compact_time(max(0.0, now - check.at))} old"
    evidence = f": {escaped(check.evidence)}" if check.evidence else ""
    advice = f"; advice: {escaped(check.advice)}" if check.advice else ""
    return f"- [{'x' if done else ' '}] {check.id} {escaped(check.title)} ({word}{age}){evidence}{advice}"


def escaped(text: str) -> str:
    """Return text in which Markdown and HTML see no markup."""
    return re.sub(r"([\\`*_{}\[\]<>#|!~&])", r"\\\1", " ".join(clean(text).split()))


def export_name(box: str, now: float) -> str:
    """Return what the file is called."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", clean(box)).strip(".-")[:60] or "box"
    return f"phases-{plain}-{time.strftime('%Y%m%d-%H%M%S', time.localtime(now))}.md"


def write_export(name: str, text: str, env: Mapping[str, str] = os.environ) -> Path:
    """Write a page to the working directory, else to rgt's own; return where it is. Blocks for a moment.

    Raises:
        OSError: it can be written to neither.
    """
    try:
        path = Path.cwd() / name
        publish(path, text.encode())
    except OSError:
        path = state_directory(env) / "exports" / name
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        publish(path, text.encode())
    return path


def own_name(env: Mapping[str, str] = os.environ) -> str:
    """Return the name of who runs rgt; empty where nobody says."""
    try:
        return env.get("LOGNAME") or env.get("USER") or getpass.getuser()
    except (KeyError, OSError):
        return ""
