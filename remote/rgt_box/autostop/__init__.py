"""Autostop: a box parks itself when idle or at the end of a lease, with its own API key.

`watchman` runs in the recorder. `work_signs` collects signs of work, `idle_clock` judges them and
runs the countdown, `armed_plan` stores the armed request, `stop_process` performs a stop in a
separate process, `own_stop` calls the provider, and `sink` notifies the user.
"""

from __future__ import annotations

__all__ = ["armed_plan", "autostop_command", "saving", "sink", "watchman"]
"""Modules that other packages may use."""
