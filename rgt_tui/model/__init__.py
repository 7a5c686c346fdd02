"""Immutable structs only, shared by all other packages. Imports nothing else of rgt."""

__all__ = [
    "alert",
    "autostop",
    "box",
    "evidence",
    "figures",
    "fleet",
    "gpu_names",
    "gpu_table",
    "money",
    "plain",
    "profile",
    "protocol",
    "renting",
    "run",
]
"""Modules that other packages may use."""
