"""One module per screen, imported when it is opened, never before the first frame."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rgt_wire import imported_later

# For type checkers, which do not see the names below.
if TYPE_CHECKING:
    from rgt_tui.ui.screens.alerts import (
        AlertRow,
        AlertsScreen,
        detail_lines,
        ended_rows,
        finding_of,
        row_line,
    )
    from rgt_tui.ui.screens.audit_log import AuditScreen
    from rgt_tui.ui.screens.base import FleetAwareScreen
    from rgt_tui.ui.screens.box import LEAST_LOG, BoxScreen, WantedHeights, place_panes
    from rgt_tui.ui.screens.command import CommandScreen
    from rgt_tui.ui.screens.curves import CurvesScreen, listed_runs
    from rgt_tui.ui.screens.dialogs import ChoiceScreen
    from rgt_tui.ui.screens.event_journal import (
        HappeningList,
        JournalScreen,
        alert_of,
        find_durations,
        pack_words,
    )
    from rgt_tui.ui.screens.fix_trial import FixTrialScreen
    from rgt_tui.ui.screens.fleet import FleetScreen
    from rgt_tui.ui.screens.handbook_pages import HandbookScreen, list_rows, page_sections
    from rgt_tui.ui.screens.help import HelpPanel, HelpScreen, key_rows
    from rgt_tui.ui.screens.lifecycle import LifecycleScreen
    from rgt_tui.ui.screens.log import LogKeys, LogScreen, findings_of, log_with_steps, zone_of
    from rgt_tui.ui.screens.night import NightScreen
    from rgt_tui.ui.screens.platform import FirstContactScreen, PlatformPage, PlatformScreen
    from rgt_tui.ui.screens.question import QuestionScreen, question_lines
    from rgt_tui.ui.screens.receipt import ReceiptScreen
    from rgt_tui.ui.screens.teardown import TOO_SOON, TeardownScreen
    from rgt_tui.ui.screens.time_machine import TimeMachineScreen
    from rgt_tui.ui.screens.transfers import (
        TransfersScreen,
        entry_details,
        from_note,
        pull_row,
        silent_for,
        state_of,
    )
    from rgt_tui.ui.screens.welcome import WelcomeScreen, list_choices
    from rgt_tui.ui.screens.what_changed import MarkedMoment, WhatChangedScreen, event_lines

__all__ = [
    "LEAST_LOG",
    "TOO_SOON",
    "AlertRow",
    "AlertsScreen",
    "AuditScreen",
    "BoxScreen",
    "ChoiceScreen",
    "CommandScreen",
    "CurvesScreen",
    "FirstContactScreen",
    "FixTrialScreen",
    "FleetAwareScreen",
    "FleetScreen",
    "HandbookScreen",
    "HappeningList",
    "HelpPanel",
    "HelpScreen",
    "JournalScreen",
    "LifecycleScreen",
    "LogKeys",
    "LogScreen",
    "MarkedMoment",
    "NightScreen",
    "PlatformPage",
    "PlatformScreen",
    "QuestionScreen",
    "ReceiptScreen",
    "TeardownScreen",
    "TimeMachineScreen",
    "TransfersScreen",
    "WantedHeights",
    "WelcomeScreen",
    "WhatChangedScreen",
    "alert_of",
    "alerts",
    "audit_log",
    "base",
    "box",
    "curves",
    "detail_lines",
    "ended_rows",
    "entry_details",
    "event_journal",
    "event_lines",
    "find_durations",
    "finding_of",
    "findings_of",
    "fleet",
    "from_note",
    "handbook_pages",
    "help",
    "key_rows",
    "lifecycle",
    "list_choices",
    "list_rows",
    "listed_runs",
    "log",
    "log_with_steps",
    "pack_words",
    "page_sections",
    "place_panes",
    "platform",
    "pull_row",
    "question",
    "question_lines",
    "receipt",
    "row_line",
    "silent_for",
    "state_of",
    "teardown",
    "time_machine",
    "transfers",
    "welcome",
    "zone_of",
]

# Imported when first used, as each screen is when it opens.
__getattr__ = imported_later(
    __name__,
    {
        "alerts": "AlertRow AlertsScreen detail_lines ended_rows finding_of row_line",
        "audit_log": "AuditScreen",
        "base": "FleetAwareScreen",
        "box": "BoxScreen LEAST_LOG WantedHeights place_panes",
        "dialogs": "ChoiceScreen",
        "command": "CommandScreen",
        "curves": "CurvesScreen listed_runs",
        "event_journal": "HappeningList JournalScreen alert_of find_durations pack_words",
        "fix_trial": "FixTrialScreen",
        "fleet": "FleetScreen",
        "handbook_pages": "HandbookScreen list_rows page_sections",
        "help": "HelpPanel HelpScreen key_rows",
        "lifecycle": "LifecycleScreen",
        "log": "LogKeys LogScreen findings_of log_with_steps zone_of",
        "night": "NightScreen",
        "platform": "FirstContactScreen PlatformPage PlatformScreen",
        "question": "QuestionScreen question_lines",
        "receipt": "ReceiptScreen",
        "teardown": "TOO_SOON TeardownScreen",
        "time_machine": "TimeMachineScreen",
        "transfers": "TransfersScreen entry_details from_note pull_row silent_for state_of",
        "welcome": "WelcomeScreen list_choices",
        "what_changed": "MarkedMoment WhatChangedScreen event_lines",
    },
)
