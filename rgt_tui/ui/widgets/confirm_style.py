"""The looks of the teardown dialog."""

from __future__ import annotations

DIALOG_WIDTH = 122
FIELD_WIDTH = 36

STYLE = """
TeardownScreen { align: center middle; background: $background 60%; }
TeardownScreen #dialog {
    width: 100%; max-width: 122; height: auto; max-height: 100%; padding: 0 1;
    background: $background; border: round $rgt-faint;
    border-title-color: $foreground; border-title-style: bold;
    border-subtitle-color: $rgt-faint; border-subtitle-align: right;
}
TeardownScreen.ascii #dialog { border: ascii $rgt-faint; }
TeardownScreen #verbs { margin: 0 0 1 0; }
TeardownScreen #scroll { height: auto; scrollbar-size-vertical: 1; }
TeardownScreen #answer { height: 1; margin: 1 0 0 0; }
TeardownScreen #typing { width: auto; height: 1; }
TeardownScreen #buttons { width: 1fr; height: 1; align-horizontal: left; }
TeardownScreen.stacked #answer { layout: vertical; height: 2; }
TeardownScreen.stacked #typing { width: 100%; }
TeardownScreen.stacked #name { width: 1fr; }
TeardownScreen.stacked #buttons { width: 100%; align-horizontal: right; }
TeardownScreen #prompt { width: 15; }
TeardownScreen #name {
    width: 36; height: 1; background: $rgt-raised; color: $foreground;
    border: none; padding: 0 1;
}
TeardownScreen #name:focus { background: $rgt-raised; background-tint: $accent 20%; }
TeardownScreen DialogButton { width: auto; height: 1; margin: 0 0 0 2; }
TeardownScreen DialogButton:hover > .tone--text { color: $accent; }
TeardownScreen #status, TeardownScreen #course { height: 1; }
TeardownScreen #status { padding: 0; }
"""
