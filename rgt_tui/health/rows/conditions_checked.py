"""Conditions of the checklist that raise no alert; each has a check of a phase."""

from __future__ import annotations

from rgt_tui.health.condition import Condition, LifecycleCheck
from rgt_tui.health.rows import conditions_link as link
from rgt_tui.health.rows import conditions_money as money
from rgt_tui.health.rows import conditions_queue as queue
from rgt_tui.health.rows import conditions_runs as runs
from rgt_tui.health.rows import conditions_space as space

CHECKED_ONLY: tuple[Condition, ...] = (
    Condition("profile", "The platform is unknown",
        checks=(LifecycleCheck("0.1", "platform known, its page read", money.check_profile_known,
                               live=False),),
    ),
    Condition("memory-limit", "The memory limit is unknown",
        checks=(LifecycleCheck("0.3", "the memory limit is the container's",
                               space.check_memory_limit),),
    ),
    Condition("agent", "The agent does not answer",
        checks=(LifecycleCheck("1.2", "the agent answers", link.check_agent,
                               command="rgt doctor {box}"),),
    ),
    Condition("credentials", "A secret is exposed",
        checks=(LifecycleCheck("1.5", "no secret exposed", link.check_credentials, live=False),),
    ),
    Condition("smoke", "No evidence yet that a run saves and resumes",
        checks=(
            LifecycleCheck("2.1", "smoke: a short run saves and resumes", runs.check_smoke,
                           live=False,
                  command="rgt run {box} --smoke CMD -- CMD"),
        ),
    ),
    Condition("stop-loses", "A stop empties the disk of the checkpoints",
        checks=(
            LifecycleCheck("3.4", "checkpoints reach a disk that survives a "
                                  "stop", space.check_checkpoints_stay, live=False),
        ),
    ),
    Condition("no-durable", "A result has no copy",
        checks=(
            LifecycleCheck("3.5", "every cell copies to a durable place", queue.check_durable_named,
                           live=False,
                  command="rgt mirror {box} SRC DST"),
        ),
    ),
    Condition("layers", "A source of data is silent",
        checks=(LifecycleCheck("4.1", "four layers reporting", runs.check_four_layers),),
    ),
    Condition("checkpoint-old", "The newest checkpoint is old",
        checks=(LifecycleCheck("4.5", "newest checkpoint is recent", runs.check_checkpoint_age),),
    ),
    Condition("unlooked", "You have not checked the model's output",
        checks=(LifecycleCheck("4.6", "you compared two validation samples", runs.check_looked,
                               live=False),),
    ),
    Condition("unverified", "A copy is not verified",
        checks=(
            LifecycleCheck("5.2", "every finished cell verified on durable",
                           queue.check_all_verified, live=False,
                  command="rgt queue {box} reconcile"),
        ),
    ),
    Condition("durable-lost", "A destroy also deletes the durable storage",
        checks=(LifecycleCheck("5.3", "the durable place survives destroy",
                               money.check_durable_survives, live=False),),
    ),
    Condition("unopened", "You have not opened the results",
        checks=(
            LifecycleCheck("5.6", "results opened by you", runs.check_opened, live=False,
                  command="rgt verify pulled/{box}"),
        ),
    ),
)  # fmt: skip
