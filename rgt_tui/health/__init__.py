"""The one judge of a box's state, asked by alerts, findings, the checklist and the gate.

The thresholds, and what counts as training or unseen, are asked of `rgt_tui.health.facts`.
"""

from typing import TYPE_CHECKING

from rgt_tui import imported_later

if TYPE_CHECKING:
    from rgt_tui.health.alert_settings import (
        SINKS,
        SettingsError,
        alert_rows,
        parse_alerts,
    )
    from rgt_tui.health.alert_sinks import (
        Aside,
        Sink,
        SinkError,
        build_sink,
    )
    from rgt_tui.health.alert_state import (
        AlertState,
        Step,
        clock_set,
        holding,
        listed,
        ordered,
        resumed,
        step_alerts,
    )
    from rgt_tui.health.assessment import (
        PHASES,
        Assessment,
        advice,
        alert_began,
        alert_ended,
        alert_message,
        assess,
        calls,
        calls_once,
        evaluate,
    )
    from rgt_tui.health.condition import (
        Condition,
        Reading,
        Rung,
    )
    from rgt_tui.health.conditions import (
        ALERTS,
        BY_ID,
        CHECKS,
        all_conditions,
        covered,
        told_by,
    )
    from rgt_tui.health.danger_clocks import (
        Bound,
        ClockReading,
        clock_readings,
        dangers,
        notices,
        pending_readings,
    )
    from rgt_tui.health.delivery import (
        GATHER_S,
        MARGIN_S,
        Delivery,
        failure_reason,
        hears_findings,
    )
    from rgt_tui.health.diagnosis import (
        diagnose,
        log_finding,
    )
    from rgt_tui.health.facts import (
        Facts,
        facts_of,
    )
    from rgt_tui.health.handbook import (
        HANDBOOK,
    )
    from rgt_tui.health.mutes import (
        EVERYTHING,
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
    from rgt_tui.health.remedies import (
        Remedy,
        standing_remedies,
    )
    from rgt_tui.health.remembered import (
        Memory,
        Trend,
        park_confirmed,
        stop_asked,
    )
    from rgt_tui.health.rows.conditions_gpu import (
        slowed,
        throttle_words,
    )
    from rgt_tui.health.rows.conditions_queue import (
        finding_key,
    )
    from rgt_tui.health.rows.conditions_runs import (
        ended_at,
    )
    from rgt_tui.health.worst_case import (
        Worst,
        WorstCase,
        worst_case_of,
        worst_of,
    )

__all__ = [
    "ALERTS", "BY_ID", "CHECKS", "EVERYTHING", "GATHER_S", "HANDBOOK", "MARGIN_S", "PHASES",
    "SINKS", "AlertState", "Aside", "Assessment", "Bound", "ClockReading", "Condition", "Delivery",
    "Facts", "Memory", "Mute", "Notes", "Reading", "Remedy", "Rung", "SettingsError", "Sink", "SinkError", "Step",
    "Stored", "Told", "Trend", "Worst", "WorstCase", "advice", "alert_began", "alert_ended",
    "alert_message", "alert_rows", "alerts_path", "alerts_stamp", "all_conditions", "assess", "build_sink", "calls",
    "calls_once", "clock_readings", "clock_set", "covered", "dangers", "diagnose", "ended_at", "evaluate", "facts_of",
    "failure_reason", "finding_key", "hears_findings", "holding", "key_of", "listed", "load_alerts",
    "log_finding", "mark_muted", "mute_changes", "mute_covers", "mute_event", "mute_is_over", "notices", "ordered",
    "park_confirmed", "parse_alerts",
    "pending_readings", "put_mute", "resumed", "silences", "slowed", "standing_remedies", "step_alerts", "stop_asked",
    "throttle_words", "told_by", "update_alerts", "worst_case_of", "worst_of",
]  # fmt: skip

# The first frame is drawn before anything is judged, and the gate asks for facts alone.
__getattr__ = imported_later(
    __name__,
    {
        "alert_settings": "SINKS SettingsError alert_rows parse_alerts",
        "alert_sinks": "Aside Sink SinkError build_sink",
        "alert_state": "AlertState Step clock_set holding listed ordered resumed step_alerts",
        "assessment": "PHASES Assessment advice alert_began alert_ended alert_message assess calls calls_once evaluate",
        "condition": "Condition Reading Rung",
        "conditions": "ALERTS BY_ID CHECKS all_conditions covered told_by",
        "danger_clocks": "Bound ClockReading clock_readings dangers notices pending_readings",
        "delivery": "GATHER_S MARGIN_S Delivery failure_reason hears_findings",
        "diagnosis": "diagnose log_finding",
        "facts": "Facts facts_of",
        "handbook": "HANDBOOK",
        "mutes": (
            "EVERYTHING Mute Notes Stored Told alerts_path alerts_stamp key_of "
            "load_alerts mark_muted mute_changes mute_covers mute_event mute_is_over put_mute silences update_alerts"
        ),
        "remedies": "Remedy standing_remedies",
        "remembered": "Memory Trend park_confirmed stop_asked",
        "rows.conditions_gpu": "slowed throttle_words",
        "rows.conditions_queue": "finding_key",
        "rows.conditions_runs": "ended_at",
        "worst_case": "Worst WorstCase worst_case_of worst_of",
    },
)
