"""What deserves a look: one judge of a box's state for alerts, findings, the checklist and the gate."""
