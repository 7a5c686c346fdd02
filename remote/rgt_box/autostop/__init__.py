"""A box that stops itself: parked when idle or at the end of a lease, by its own recorder with its own key.

watchman is what runs in the recorder; work_signs looks at the box, idle_clock judges, countdown says what is due.
armed_plan is what was armed, stop_process carries a stop out in a process of its own, own_stop makes the call, sink
tells a person.
"""

from __future__ import annotations

__all__ = ["armed_plan", "autostop_command", "saving", "sink", "watchman"]
"""Modules that other packages may use."""
