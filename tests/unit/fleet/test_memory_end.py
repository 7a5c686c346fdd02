from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

from rgt_tui.fleet import HistoryRecorder, apply_frame
from rgt_tui.model import BoxSpec, BoxState, FleetState
from rgt_tui.ssh import read_frame
from rgt_tui.store import FleetHistory


async def test_a_fleet_that_is_stopped_twice_leaves_no_new_file(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    folder.mkdir()
    memory = HistoryRecorder(FleetHistory(folder / "history.db"))
    box = BoxState(spec=BoxSpec(name="lab", host="lab"))
    memory.published(FleetState((box,), at=5.0), ((box, box),))
    await memory.close()
    assert (folder / "history.db").exists()
    shutil.rmtree(folder)
    await memory.close()
    memory.published(FleetState((box,), at=6.0), ((box, box),))
    await memory.close()
    assert not folder.exists()


async def test_insane_numbers_of_one_box_cost_no_other_its_history(tmp_path: Path) -> None:
    """From the line on the wire to the file and back."""
    path = tmp_path / "history.db"
    insane = (
        b'{"t":"sample","boot":"b","seq":1,"at":-1e300}',
        b'{"t":"sample","boot":"b","seq":2,"at":1000.0,"gpus":[{"index":0,"name":"x","util":1e39}]}',
        b'{"t":"sample","boot":"b","seq":3,"at":1001.0,"disks":[{"mount":"/","bytes_used":9e18,"bytes_total":1e-9}]}',
        b'{"t":"sample","boot":"b","seq":4,"at":1002.0,"disks":[{"mount":"/","bytes_used":%d,"bytes_total":1}]}'
        % 10**18,
    )
    sane = b'{"t":"sample","boot":"b","seq":%d,"at":1000.0,"mem":{"used":50,"limit":100}}'
    memory = HistoryRecorder(
        FleetHistory(path, clock=lambda: 1200.0), clock=lambda: 1200.0, seconds=0.0
    )
    states = {name: BoxState(spec=BoxSpec(name=name, host=name)) for name in ("insane", "sane")}
    for number, line in enumerate(insane):
        new = dict(states)
        for name, told in (("insane", line), ("sane", sane % (number + 1))):
            try:
                new[name] = apply_frame(states[name], read_frame(told), 1005.0)
            except ValueError:  # it is no frame
                new[name] = states[name]
        pairs = tuple(zip(states.values(), new.values(), strict=True))
        states = new
        memory.published(FleetState(tuple(states.values()), at=1005.0), pairs)
        await asyncio.sleep(0)
    await memory.close()
    assert memory.take_events() == ()
    assert [item.name for item in tmp_path.glob("*.damaged*")] == []
    found = await FleetHistory(path, clock=lambda: 1200.0).recall_states(
        [state.spec for state in states.values()]
    )
    assert found["sane"].past.names == ("cgroup",)
    assert found["sane"].past.values == ((50.0,),)
    assert found["insane"].past.names == ()
