"""Where the history lies, and by what a box is known again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from rgt_tui.model.box import BoxSpec

OFF = ("off", "none", "0", "")
ENV = "RGT_HISTORY"


def history_path(env: Mapping[str, str], named: str | None = None) -> Path | None:
    """Return the history's file; None when none is wanted.

    Args:
        env: The environment; ``RGT_HISTORY`` names a file, or says ``off``.
        named: The file that the command line names.
    """
    said = named if named is not None else env.get(ENV)
    if said is not None:
        return None if said.lower() in OFF else Path(said).expanduser()
    state = Path(env.get("XDG_STATE_HOME", ""))
    return (state if state.is_absolute() else Path.home() / ".local" / "state") / "rgt" / "history.db"


def place_of(spec: BoxSpec) -> str:
    """Return what a box is known by, so that it never inherits a stranger's past.

    A provider never gives an instance id twice: such a box keeps its past when it is renamed, and a new rental under
    the old name begins with none. An address says less (rentals hand them on), so without a provider the name and the
    whole address must be the same.
    """
    ref = spec.provider
    if ref is not None:
        known: list[object] = [ref.kind, ref.instance]
        if ref.base_url is not None:
            known.append(ref.base_url)
    else:
        known = ["ssh", spec.name, spec.user, spec.host, spec.port]
    return msgspec.json.encode(known).decode()
