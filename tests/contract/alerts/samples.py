"""Messages that the tests of the sinks send."""

from __future__ import annotations

from rgt_tui.health import alert_message
from rgt_tui.model import Alert, AlertEvent

NOW = 1_790_000_000.0
ALERT = Alert("inodes:/data", "error", "/data 97% of its inodes used · α", word="inodes", since=NOW)
EVENT: AlertEvent = alert_message("vast-1", ALERT, NOW)
