"""Control planes: who owns a box, what it costs now, and the calls that stop the meter.

Import `rgt_tui.providers.registry` to open one; the HTTP client is loaded only then.
"""
