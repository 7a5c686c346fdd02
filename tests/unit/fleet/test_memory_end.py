from __future__ import annotations

import shutil
from pathlib import Path

from rgt_tui.fleet.memory import Memory
from rgt_tui.model.box import BoxSpec, BoxState
from rgt_tui.model.fleet import FleetState
from rgt_tui.store.history import History


async def test_a_fleet_that_is_stopped_twice_leaves_no_new_file(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    folder.mkdir()
    memory = Memory(History(folder / "history.db"))
    box = BoxState(spec=BoxSpec(name="lab", host="lab"))
    memory.published(FleetState((box,), at=5.0), ((box, box),))
    await memory.close()
    assert (folder / "history.db").exists()
    shutil.rmtree(folder)
    await memory.close()
    memory.published(FleetState((box,), at=6.0), ((box, box),))
    await memory.close()
    assert not folder.exists()
