"""The single place that judges a box's state, used by alerts, findings, the checklist and the gate.

Thresholds, and the definitions of *training* and *unseen*, are in `rgt_tui.health.facts`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

# Each name is imported when it is first used: the first frame and short commands need few of them.
from rgt_wire import imported_later

if TYPE_CHECKING:
    from rgt_tui.health.alert_sinks import (
        MAKERS,
        AlertSink,
        AppriseSink,
        BellSink,
        CommandSink,
        DesktopSink,
        SinkError,
        ThreadRunner,
        build_sink,
        notification_sequence,
        read_sink_address,
        split_topic_url,
        write_tty,
    )
    from rgt_tui.health.alert_state import (
        GONE,
        REST,
        SOURCES,
        AlertMachine,
        AlertState,
        AlertStep,
        active_alerts,
        advance_machine,
        alerts_to_show,
        clock_set,
        judge_without_history,
        restore_alert_state,
        sort_alerts,
        source_values,
        step_alerts,
    )
    from rgt_tui.health.assessment import (
        ADVISED_AT,
        PHASES,
        Assessment,
        Remedy,
        alert_advice,
        alert_began,
        alert_ended,
        alert_message,
        assess_box,
        calls_for_person,
        calls_for_person_once,
        evaluate_checks,
        list_remedies,
    )
    from rgt_tui.health.autostop_words import (
        describe_armed_off,
        describe_clock,
        describe_hung_runs,
        describe_reported_park,
        describe_self_stop,
        list_readings,
        story_lines,
    )
    from rgt_tui.health.condition import (
        AlertRung,
        Condition,
        HandbookEntry,
        LifecycleCheck,
        Reading,
    )
    from rgt_tui.health.conditions import (
        ALERTS,
        BY_ID,
        CHECKS,
        all_conditions,
        covered_alert_ids,
        ids_referring_to,
    )
    from rgt_tui.health.danger_clocks import (
        ClockBound,
        ClockReading,
        action_warnings,
        clock_readings,
        find_stop_span,
        first_contact_notices,
        pending_readings,
    )
    from rgt_tui.health.delivery import (
        GATHER_S,
        MARGIN_S,
        MAX_DIGEST_BYTES,
        SINKS,
        DeliveryPlan,
        SettingsError,
        SinkDelivery,
        alert_rows,
        build_digest_event,
        failure_reason,
        includes_findings,
        minutes_left,
        parse_alerts,
        plan_delivery,
    )
    from rgt_tui.health.diagnosis import diagnose_box, log_finding
    from rgt_tui.health.facts import (
        LIMITS,
        BoxFacts,
        facts_of,
        reuse_facts,
        training_processes,
        unseen_reason,
    )
    from rgt_tui.health.fix_commands import (
        CopiedOnly,
        LookTrial,
        RemovalTrial,
        Trial,
        plan_trial,
        split_stages,
    )
    from rgt_tui.health.fulldisk import find_removal_objection, paths_to_keep
    from rgt_tui.health.handbook import HANDBOOK, STORAGE_IDS, run_pages
    from rgt_tui.health.lognotes import SEARCH_LIMITS, scan_log
    from rgt_tui.health.moment_changes import (
        MomentChange,
        MomentComparison,
        compare_moments,
        recent_level,
        step_seconds,
    )
    from rgt_tui.health.mutes import (
        DAY_S,
        EVERYTHING,
        KEEP_S,
        UNSEEN_S,
        AlertMute,
        BoxAlertNotes,
        SentAlert,
        StoredAlerts,
        alerts_path,
        alerts_stamp,
        is_alert_muted,
        key_of,
        load_alerts,
        mark_muted,
        mute_changes,
        mute_covers,
        mute_event,
        mute_is_over,
        put_mute,
        update_alerts,
    )
    from rgt_tui.health.remembered import (
        TREND,
        FigureTrend,
        RememberedBox,
        gather_event_news,
        park_confirmed,
        record_stop_request,
        update_life,
        xid_level,
    )
    from rgt_tui.health.rows.conditions_gpu import is_slowed, throttle_words
    from rgt_tui.health.rows.conditions_queue import describe_resource, finding_key
    from rgt_tui.health.rows.conditions_runs import ended_at
    from rgt_tui.health.stuck_ranks import heartbeat_of
    from rgt_tui.health.worst_case import FleetWorstCase, WorstCase, worst_case_of, worst_of

__all__ = [
    "ADVISED_AT",
    "ALERTS",
    "BY_ID",
    "CHECKS",
    "DAY_S",
    "EVERYTHING",
    "GATHER_S",
    "GONE",
    "HANDBOOK",
    "KEEP_S",
    "LIMITS",
    "MAKERS",
    "MARGIN_S",
    "MAX_DIGEST_BYTES",
    "PHASES",
    "REST",
    "SEARCH_LIMITS",
    "SINKS",
    "SOURCES",
    "STORAGE_IDS",
    "TREND",
    "UNSEEN_S",
    "AlertMachine",
    "AlertMute",
    "AlertRung",
    "AlertSink",
    "AlertState",
    "AlertStep",
    "AppriseSink",
    "Assessment",
    "BellSink",
    "BoxAlertNotes",
    "BoxFacts",
    "ClockBound",
    "ClockReading",
    "CommandSink",
    "Condition",
    "CopiedOnly",
    "DeliveryPlan",
    "DesktopSink",
    "FigureTrend",
    "FleetWorstCase",
    "HandbookEntry",
    "LifecycleCheck",
    "LookTrial",
    "MomentChange",
    "MomentComparison",
    "Reading",
    "Remedy",
    "RememberedBox",
    "RemovalTrial",
    "SentAlert",
    "SettingsError",
    "SinkDelivery",
    "SinkError",
    "StoredAlerts",
    "ThreadRunner",
    "Trial",
    "WorstCase",
    "action_warnings",
    "active_alerts",
    "advance_machine",
    "alert_advice",
    "alert_began",
    "alert_ended",
    "alert_message",
    "alert_rows",
    "alerts_path",
    "alerts_stamp",
    "alerts_to_show",
    "all_conditions",
    "assess_box",
    "build_digest_event",
    "build_sink",
    "calls_for_person",
    "calls_for_person_once",
    "clock_readings",
    "clock_set",
    "compare_moments",
    "covered_alert_ids",
    "describe_armed_off",
    "describe_clock",
    "describe_hung_runs",
    "describe_reported_park",
    "describe_resource",
    "describe_self_stop",
    "diagnose_box",
    "ended_at",
    "evaluate_checks",
    "facts_of",
    "failure_reason",
    "find_removal_objection",
    "find_stop_span",
    "finding_key",
    "first_contact_notices",
    "gather_event_news",
    "heartbeat_of",
    "ids_referring_to",
    "includes_findings",
    "is_alert_muted",
    "is_slowed",
    "judge_without_history",
    "key_of",
    "list_readings",
    "list_remedies",
    "load_alerts",
    "log_finding",
    "mark_muted",
    "minutes_left",
    "mute_changes",
    "mute_covers",
    "mute_event",
    "mute_is_over",
    "notification_sequence",
    "park_confirmed",
    "parse_alerts",
    "paths_to_keep",
    "pending_readings",
    "plan_delivery",
    "plan_trial",
    "put_mute",
    "read_sink_address",
    "recent_level",
    "record_stop_request",
    "restore_alert_state",
    "reuse_facts",
    "run_pages",
    "scan_log",
    "sort_alerts",
    "source_values",
    "split_stages",
    "split_topic_url",
    "step_alerts",
    "step_seconds",
    "story_lines",
    "throttle_words",
    "training_processes",
    "unseen_reason",
    "update_alerts",
    "update_life",
    "worst_case_of",
    "worst_of",
    "write_tty",
    "xid_level",
]

__getattr__ = imported_later(
    __name__,
    {
        "alert_sinks": (
            "AppriseSink ThreadRunner BellSink CommandSink DesktopSink MAKERS AlertSink "
            "SinkError read_sink_address build_sink notification_sequence split_topic_url "
            "write_tty"
        ),
        "alert_state": (
            "AlertState GONE AlertMachine REST SOURCES AlertStep advance_machine clock_set "
            "active_alerts judge_without_history alerts_to_show sort_alerts "
            "restore_alert_state source_values step_alerts"
        ),
        "assessment": (
            "ADVISED_AT PHASES Assessment Remedy alert_advice alert_began alert_ended "
            "alert_message assess_box calls_for_person calls_for_person_once evaluate_checks "
            "list_remedies"
        ),
        "autostop_words": "describe_self_stop describe_clock describe_hung_runs list_readings "
        "describe_armed_off story_lines describe_reported_park",
        "condition": "LifecycleCheck Condition HandbookEntry Reading AlertRung",
        "conditions": "ALERTS BY_ID CHECKS all_conditions covered_alert_ids ids_referring_to",
        "danger_clocks": "ClockBound ClockReading clock_readings action_warnings "
        "first_contact_notices pending_readings find_stop_span",
        "delivery": (
            "GATHER_S MARGIN_S MAX_DIGEST_BYTES SINKS SinkDelivery DeliveryPlan SettingsError "
            "alert_rows build_digest_event "
            "failure_reason includes_findings minutes_left parse_alerts plan_delivery"
        ),
        "diagnosis": "diagnose_box log_finding",
        "facts": ("LIMITS BoxFacts reuse_facts facts_of training_processes unseen_reason"),
        "fix_commands": "CopiedOnly LookTrial RemovalTrial Trial plan_trial split_stages",
        "fulldisk": "find_removal_objection paths_to_keep",
        "handbook": "HANDBOOK STORAGE_IDS run_pages",
        "lognotes": "SEARCH_LIMITS scan_log",
        "moment_changes": (
            "MomentChange MomentComparison compare_moments recent_level step_seconds"
        ),
        "mutes": (
            "DAY_S EVERYTHING KEEP_S AlertMute BoxAlertNotes StoredAlerts SentAlert UNSEEN_S "
            "alerts_path alerts_stamp key_of "
            "load_alerts mark_muted mute_changes mute_covers mute_event mute_is_over put_mute "
            "is_alert_muted update_alerts"
        ),
        "remembered": (
            "RememberedBox TREND FigureTrend update_life gather_event_news "
            "park_confirmed record_stop_request xid_level"
        ),
        "rows.conditions_gpu": "is_slowed throttle_words",
        "rows.conditions_queue": "describe_resource finding_key",
        "rows.conditions_runs": "ended_at",
        "stuck_ranks": "heartbeat_of",
        "worst_case": "FleetWorstCase WorstCase worst_case_of worst_of",
    },
)
