"""The keys of the curves."""

from __future__ import annotations

from dataclasses import replace

from rgt_tui.ui.commands import BOX_TARGET, Command

CURVES: tuple[Command, ...] = (
    Command("curves.metric", ("m",), "metric",
            "Show the next metric: loss, val_loss, lr, then any others.", "next_metric", footer=1),
    Command("curves.log", ("y",), "log", "Switch the y axis between logarithmic and linear.", "toggle_log", footer=2),
    Command("curves.smooth", ("s",), "smooth",
            "Smooth with an exponential moving average: 0, 0.6, 0.9, 0.97.", "smoother", footer=3),
    Command("curves.zoom-in", ("plus", "equals_sign"), "zoom",
            "Zoom in around the crosshair.", "zoom(0.5)", footer=4),
    Command("curves.zoom-out", ("minus",), "zoom out", "Zoom out.", "zoom(2.0)"),
    Command("curves.pan-left", ("left",), "earlier", "Move the window to earlier steps.", "pan(-0.25)"),
    Command("curves.pan-right", ("right",), "later",
            "Move the window to later steps; at the end it follows the newest.", "pan(0.25)"),
    Command("curves.reset", ("0",), "all", "Show all steps and follow the newest.", "reset_view"),
    Command("curves.cross-left", ("left_square_bracket",), "crosshair",
            "Read the values at an earlier step.", "cross(-1)", footer=5),
    Command("curves.cross-right", ("right_square_bracket",), "crosshair later",
            "Read the values at a later step.", "cross(1)"),
    Command("curves.next-run", ("j", "down"), "next run",
            "Select the next run; it is drawn on top.", "select_run(1)"),
    Command("curves.previous-run", ("k", "up"), "previous run", "Select the previous run.", "select_run(-1)"),
    Command("curves.hide", ("space",), "hide", "Hide the selected run, or show it again.", "hide_run"),
    Command("curves.only", ("v",), "only this", "Show the selected run alone, or all of them.", "only_run"),
    *(replace(command, footer={"box.phases": 6, "box.teardown": 7}.get(command.id, 0))
      for command in BOX_TARGET if command.id != "box.curves"),
)  # fmt: skip
"""Keys of the curves; those of the box are there, too."""
