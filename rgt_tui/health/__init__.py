"""The single place that judges a box's state, used by alerts, findings, the checklist and the gate.

Thresholds, and the definitions of *training* and *unseen*, are in `rgt_tui.health.facts`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rgt_wire import imported_later

if TYPE_CHECKING:
    from rgt_tui.health.alert_sinks import (
        MAKERS,
        Apprise,
        Aside,
        Bell,
        Command,
        Desktop,
        Sink,
        SinkError,
        address,
        build_sink,
        sequence,
        split,
        write_tty,
    )
    from rgt_tui.health.alert_state import (
        GONE,
        REST,
        SOURCES,
        AlertState,
        Machine,
        Step,
        advance,
        clock_set,
        holding,
        instant,
        listed,
        ordered,
        resumed,
        sources,
        step_alerts,
    )
    from rgt_tui.health.assessment import (
        ADVISED_AT,
        PHASES,
        Assessment,
        Remedy,
        advice,
        alert_began,
        alert_ended,
        alert_message,
        assess,
        calls,
        calls_once,
        evaluate,
        standing_remedies,
    )
    from rgt_tui.health.autostop_words import (
        box_words,
        clock_words,
        of_box,
        off_words,
        story_lines,
        told_words,
    )
    from rgt_tui.health.condition import Check, Condition, Entry, Reading, Rung
    from rgt_tui.health.conditions import ALERTS, BY_ID, CHECKS, all_conditions, covered, told_by
    from rgt_tui.health.danger_clocks import (
        Bound,
        ClockReading,
        clock_readings,
        dangers,
        notices,
        pending_readings,
        stopped,
    )
    from rgt_tui.health.delivery import (
        GATHER_S,
        MARGIN_S,
        MAX_DIGEST_BYTES,
        SINKS,
        Delivery,
        Plan,
        SettingsError,
        alert_rows,
        digest,
        failure_reason,
        hears_findings,
        minutes_left,
        parse_alerts,
        plan,
    )
    from rgt_tui.health.diagnosis import diagnose, log_finding
    from rgt_tui.health.facts import (
        BUSY_PCT,
        DISK_ERROR_PCT,
        DISK_WARN_PCT,
        MEMORY_ERROR_PCT,
        MEMORY_WARN_PCT,
        TYPED_S,
        Facts,
        alike,
        facts_of,
        trainers,
        unseen,
    )
    from rgt_tui.health.handbook import HANDBOOK, STORAGE_IDS, run_pages
    from rgt_tui.health.lognotes import WINDOW, scan
    from rgt_tui.health.mutes import (
        DAY_S,
        EVERYTHING,
        KEEP_S,
        UNSEEN_S,
        Mute,
        Notes,
        Stored,
        Told,
        alerts_path,
        alerts_stamp,
        key_of,
        load_alerts,
        mark_muted,
        mute_changes,
        mute_covers,
        mute_event,
        mute_is_over,
        put_mute,
        silences,
        update_alerts,
    )
    from rgt_tui.health.remembered import (
        TREND_LEAST,
        TREND_POINTS,
        Memory,
        Trend,
        lived,
        news_of,
        park_confirmed,
        stop_asked,
        xid_level,
    )
    from rgt_tui.health.rows.conditions_gpu import slowed, throttle_words
    from rgt_tui.health.rows.conditions_queue import finding_key
    from rgt_tui.health.rows.conditions_runs import ended_at
    from rgt_tui.health.stuck_ranks import beat_of
    from rgt_tui.health.worst_case import Worst, WorstCase, worst_case_of, worst_of

__all__ = [
    "ADVISED_AT",
    "ALERTS",
    "BUSY_PCT",
    "BY_ID",
    "CHECKS",
    "DAY_S",
    "DISK_ERROR_PCT",
    "DISK_WARN_PCT",
    "EVERYTHING",
    "GATHER_S",
    "GONE",
    "HANDBOOK",
    "KEEP_S",
    "MAKERS",
    "MARGIN_S",
    "MAX_DIGEST_BYTES",
    "MEMORY_ERROR_PCT",
    "MEMORY_WARN_PCT",
    "PHASES",
    "REST",
    "SINKS",
    "SOURCES",
    "STORAGE_IDS",
    "TREND_LEAST",
    "TREND_POINTS",
    "TYPED_S",
    "UNSEEN_S",
    "WINDOW",
    "AlertState",
    "Apprise",
    "Aside",
    "Assessment",
    "Bell",
    "Bound",
    "Check",
    "ClockReading",
    "Command",
    "Condition",
    "Delivery",
    "Desktop",
    "Entry",
    "Facts",
    "Machine",
    "Memory",
    "Mute",
    "Notes",
    "Plan",
    "Reading",
    "Remedy",
    "Rung",
    "SettingsError",
    "Sink",
    "SinkError",
    "Step",
    "Stored",
    "Told",
    "Trend",
    "Worst",
    "WorstCase",
    "address",
    "advance",
    "advice",
    "alert_began",
    "alert_ended",
    "alert_message",
    "alert_rows",
    "alerts_path",
    "alerts_stamp",
    "alike",
    "all_conditions",
    "assess",
    "beat_of",
    "box_words",
    "build_sink",
    "calls",
    "calls_once",
    "clock_readings",
    "clock_set",
    "clock_words",
    "covered",
    "dangers",
    "diagnose",
    "digest",
    "ended_at",
    "evaluate",
    "facts_of",
    "failure_reason",
    "finding_key",
    "hears_findings",
    "holding",
    "instant",
    "key_of",
    "listed",
    "lived",
    "load_alerts",
    "log_finding",
    "mark_muted",
    "minutes_left",
    "mute_changes",
    "mute_covers",
    "mute_event",
    "mute_is_over",
    "news_of",
    "notices",
    "of_box",
    "off_words",
    "ordered",
    "park_confirmed",
    "parse_alerts",
    "pending_readings",
    "plan",
    "put_mute",
    "resumed",
    "run_pages",
    "scan",
    "sequence",
    "silences",
    "slowed",
    "sources",
    "split",
    "standing_remedies",
    "step_alerts",
    "stop_asked",
    "stopped",
    "story_lines",
    "throttle_words",
    "told_by",
    "told_words",
    "trainers",
    "unseen",
    "update_alerts",
    "worst_case_of",
    "worst_of",
    "write_tty",
    "xid_level",
]

__getattr__ = imported_later(
    __name__,
    {
        "alert_sinks": (
            "Apprise Aside Bell Command Desktop MAKERS Sink SinkError address build_sink sequence split "
            "write_tty"
        ),
        "alert_state": (
            "AlertState GONE Machine REST SOURCES Step advance clock_set holding instant listed ordered "
            "resumed sources step_alerts"
        ),
        "assessment": (
            "ADVISED_AT PHASES Assessment Remedy advice alert_began alert_ended alert_message assess "
            "calls calls_once evaluate standing_remedies"
        ),
        "autostop_words": "box_words clock_words of_box off_words story_lines told_words",
        "condition": "Check Condition Entry Reading Rung",
        "conditions": "ALERTS BY_ID CHECKS all_conditions covered told_by",
        "danger_clocks": "Bound ClockReading clock_readings dangers notices pending_readings stopped",
        "delivery": (
            "GATHER_S MARGIN_S MAX_DIGEST_BYTES SINKS Delivery Plan SettingsError alert_rows digest "
            "failure_reason hears_findings minutes_left parse_alerts plan"
        ),
        "diagnosis": "diagnose log_finding",
        "facts": (
            "BUSY_PCT DISK_ERROR_PCT DISK_WARN_PCT Facts MEMORY_ERROR_PCT MEMORY_WARN_PCT TYPED_S alike "
            "facts_of trainers unseen"
        ),
        "handbook": "HANDBOOK STORAGE_IDS run_pages",
        "lognotes": "WINDOW scan",
        "mutes": (
            "DAY_S EVERYTHING KEEP_S Mute Notes Stored Told UNSEEN_S alerts_path alerts_stamp key_of "
            "load_alerts mark_muted mute_changes mute_covers mute_event mute_is_over put_mute silences "
            "update_alerts"
        ),
        "remembered": (
            "Memory TREND_LEAST TREND_POINTS Trend lived news_of park_confirmed stop_asked xid_level"
        ),
        "rows.conditions_gpu": "slowed throttle_words",
        "rows.conditions_queue": "finding_key",
        "rows.conditions_runs": "ended_at",
        "stuck_ranks": "beat_of",
        "worst_case": "Worst WorstCase worst_case_of worst_of",
    },
)
