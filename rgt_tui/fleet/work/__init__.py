"""Work on a box, asked for by a person: its agent's verbs, one job, and queues over several boxes."""

__all__ = ["agent_answers", "fleet_roster", "launching", "queue_split", "tunneling"]
"""Modules that other packages may use."""
