"""What the agent, the trainer and the client share: pure functions, standard library only, Python 3.8."""

__all__ = [
    "USER_AGENT",
    "VERSION",
    "amounts",
    "checkpoint_layouts",
    "checkpoint_manifest",
    "checkpoint_names",
    "event_records",
    "log_text",
]

VERSION = "0.1.0"
"""Version of rgt, and so of the agent that it puts on a box."""
USER_AGENT = "rgt/" + VERSION
"""Sent with every HTTP request: Cloudflare, in front of RunPod's API, refuses programs that do not name themselves."""
