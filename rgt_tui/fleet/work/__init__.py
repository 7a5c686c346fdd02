"""Work that a person starts on boxes: the agent's verbs, single jobs, and split queues."""

__all__ = [
    "agent_answers",
    "fix_trials",
    "installing",
    "job_file",
    "launching",
    "pod_jobs",
    "queue_split",
    "tunneling",
]
"""Modules that other packages may use."""
