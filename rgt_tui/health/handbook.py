"""The handbook applied to live boxes: its pages, and what samples prove about some of them."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from statistics import median, pstdev
from typing import NamedTuple

from rgt_tui.handbook import HandbookPage, LogJudge, PageRole, shipped_pages
from rgt_tui.health import condition, stuck_ranks
from rgt_tui.health.condition import EntryProof, HandbookEntry, Sign
from rgt_tui.health.facts import BoxFacts
from rgt_tui.health.rows import conditions_curves as curves
from rgt_tui.health.rows import conditions_gpu as gpu
from rgt_tui.health.rows import conditions_queue as queue
from rgt_tui.health.rows import conditions_runs as runs
from rgt_tui.health.rows import conditions_space as space
from rgt_tui.health.rows.conditions_runs import SPIKE_LIMITS, runs_of
from rgt_tui.language import translate
from rgt_tui.model import BoxState, RunState

NEWEST, WINDOW, LEAST = 3, 20, 60
"""Number of odd values in a row that are needed, of values that count as current, and of earlier
values that define the usual range.
"""


# Conditions of a field's own metrics: perplexity, preference margins, mAP, mIoU, rare classes,
# latents, reward, KL.
#
# Only metrics logged under a known name are judged; a metric that is not logged proves nothing. The
# limits are those of https://github.com/Hanyuyuan6/remote-gpu-trainer (2026-08).


class MetricFigures(NamedTuple):
    """The values of one metric in the current attempt."""

    name: str
    values: Sequence[float]
    step: int
    run: RunState
    resumed_at: int
    """Number of values before the newest resume; 0 if there was none."""

    @property
    def position(self) -> str:
        """The position of the newest value, with its unit."""
        if self.run.axis == "step":
            return translate("step {step:,}", step=self.step)
        return self.run.position

    def current_level(self) -> float:
        """Return the current level: the median of the last `WINDOW` values."""
        return median(self.values[-WINDOW:])

    def usual_values(self) -> Sequence[float]:
        """Return up to 200 values before the current window."""
        return self.values[-WINDOW - 200 : -WINDOW]


class MetricRule(NamedTuple):
    """One way in which a metric shows that something is wrong."""

    page: str
    names: tuple[str, ...]
    """Names of the metric in lower case, without the prefix up to the last slash."""
    wrong: Callable[[MetricFigures], str | None]
    """Returns why it is wrong, with the figures that prove it; None = it is not."""
    gaps: bool = False
    """The rule is about NaN values; for other rules they prove nothing."""


def _find_odd_newest(figures: MetricFigures, odd: Callable[[float], bool], why: str) -> str | None:
    newest = figures.values[-NEWEST:]
    if len(newest) < NEWEST or not all(map(odd, newest)):
        return None
    return translate(
        "{metric} {value:.4g} at {position}: {why}",
        metric=figures.name,
        value=newest[-1],
        position=figures.position,
        why=why,
    )


def _perplexity(figures: MetricFigures) -> str | None:
    return _find_odd_newest(
        figures, lambda value: value < 1.05 or value > 1e5, translate("impossible for real text")
    )


def _is_early(figures: MetricFigures, steps: int, epochs: float) -> bool:
    """Return whether a run is too young to be judged; where it counts epochs, these decide."""
    run = figures.run
    if run.axis == "epoch":
        return (run.epoch or 0.0) <= epochs
    return figures.step <= steps


def _map_zero(figures: MetricFigures) -> str | None:
    loss = figures.run.series.get("loss")
    if loss is not None:
        known = [value for value in loss.backing_columns()[1][: len(loss)] if math.isfinite(value)]
    else:
        known = []
    if figures.run.counts_epochs:
        # A point is the mean over an epoch.
        least, window = 6, 3
    else:
        least, window = LEAST, WINDOW
    falls = len(known) >= least and median(known[-window:]) < median(known[:window])
    if _is_early(figures, 500, 5.0) or not falls:
        return None
    return _find_odd_newest(
        figures, lambda value: value == 0.0, translate("exactly 0, while the loss falls")
    )


def _miou_zero(figures: MetricFigures) -> str | None:
    if _is_early(figures, 200, 2.0):
        return None
    return _find_odd_newest(
        figures, lambda value: value == 0.0 or math.isnan(value), translate("0 or no number")
    )


def _minority_ignored(figures: MetricFigures) -> str | None:
    accuracy = next(_iterate_figures(figures.run, ("accuracy",)), None)
    if accuracy is None or not accuracy.values or not accuracy.values[-1] > 0.8:
        return None
    least = 0.02
    # The mean over the classes: a model that knows one class alone has one by their number, at most
    # 0.5.
    if "macro" in figures.name.lower():
        least = 0.51
    return _find_odd_newest(
        figures,
        lambda value: value < least,
        translate("while {name} is {values:.4g}", name=accuracy.name, values=accuracy.values[-1]),
    )


def _latents_off_scale(figures: MetricFigures) -> str | None:
    return _find_odd_newest(
        figures,
        lambda value: not 0.5 <= value <= 2.0,
        translate("far from 1, which the schedule expects"),
    )


def _preferences(figures: MetricFigures) -> str | None:
    margins = next(_iterate_figures(figures.run, ("margins", "dpo_margin")), None)
    if (
        margins is None
        or len(margins.values) < LEAST
        or len(figures.values) < WINDOW
        or _is_early(figures, 300, 0.5)
    ):
        return None
    first, last = median(margins.values[-200:][:WINDOW]), margins.current_level()
    scatter = SPIKE_LIMITS.to_sigma * median([abs(value - last) for value in margins.values[-200:]])
    if figures.current_level() >= 0.55 or abs(last - first) > max(scatter, 1e-12):
        return None
    return translate(
        "{name} {figures:.3g} at {position}, and {name_2} stays at {last:.3g}",
        name=figures.name,
        figures=figures.current_level(),
        position=figures.position,
        name_2=margins.name,
        last=last,
    )


def _has_fallen(usual: Sequence[float], level: float, now: float) -> bool:
    """Return whether a reward fell by half of its level, and by more than four times its scatter.

    Many rewards are negative: -200 that becomes -300 has fallen as much as 200 that becomes 100.
    """
    scatter = SPIKE_LIMITS.to_sigma * median([abs(value - level) for value in usual])
    return level - now > max(0.5 * abs(level), 4.0 * scatter, 1e-12)


def _fallen_below_half(figures: MetricFigures) -> str | None:
    """Report a level below half of the usual one, by more than four times its scatter."""
    usual = figures.usual_values()
    if len(usual) < LEAST or figures.resumed_at > len(figures.values) - WINDOW - LEAST:
        return None
    level, now = median(usual), figures.current_level()
    if not _has_fallen(usual, level, now):
        return None
    return translate(
        "{name} {now:.4g} at {position}, before {level:.4g}",
        name=figures.name,
        now=now,
        position=figures.position,
        level=level,
    )


def _fallen_at_resume(figures: MetricFigures) -> str | None:
    at = figures.resumed_at
    if at < LEAST or not WINDOW <= len(figures.values) - at <= 200:
        return None
    level, now = (
        median(figures.values[max(0, at - 200) : at]),
        median(figures.values[at : at + WINDOW]),
    )
    if not _has_fallen(figures.values[max(0, at - 200) : at], level, now):
        return None
    return translate(
        "{name} {now:.4g} since the resume, {level:.4g} before it",
        name=figures.name,
        now=now,
        level=level,
    )


def _divergence(figures: MetricFigures) -> str | None:
    if told := _find_odd_newest(figures, lambda value: value > 50.0, "above 50"):
        return told
    usual = figures.usual_values()
    if len(usual) < LEAST or figures.current_level() <= 5.0 * median(usual) or median(usual) <= 0.0:
        return None
    return translate(
        "{name} {figures:.4g} at {position}, it was {usual:.4g}",
        name=figures.name,
        figures=figures.current_level(),
        position=figures.position,
        usual=median(usual),
    )


def _advantages(figures: MetricFigures) -> str | None:
    field = _metric_field(figures.name)
    # Whitened advantages have the mean 0 and the deviation 1.
    if field.endswith("std"):
        return _find_odd_newest(
            figures, lambda value: value > 10.0, translate("it is 1 if advantages are whitened")
        )
    if field.endswith(("max", "min")):
        return _find_odd_newest(
            figures,
            lambda value: abs(value) > 100.0,
            translate("some 10 deviations at most if advantages are whitened"),
        )
    if len(figures.values) < 50 or (spread := pstdev(figures.values[-50:])) <= 10.0:
        return None
    return translate(
        "{name} scatters by {spread:.4g} over 50 points, up to {position}",
        name=figures.name,
        spread=spread,
        position=figures.position,
    )


def _value_loss(figures: MetricFigures) -> str | None:
    """Report a value loss of unscaled returns, if the reward is no higher than at first."""
    reward = next(_iterate_figures(figures.run, _REWARD), None)
    if reward is None or len(reward.values) < LEAST or len(figures.values) < LEAST:
        return None
    first, now = median(reward.values[:WINDOW]), reward.current_level()
    if figures.current_level() <= 1e3 or now > first:
        return None
    return translate(
        "{name} {level:.4g} at {position}: returns are not scaled, and {reward} is {now:.4g}, "
        "{first:.4g} at first",
        name=figures.name,
        level=figures.current_level(),
        position=figures.position,
        reward=reward.name,
        now=now,
        first=first,
    )


def _update_ratio(figures: MetricFigures) -> str | None:
    if _is_early(figures, 200, 0.2):
        return None
    if min(figures.values) < 0:
        return None  # its logarithm
    # All of them: a schedule that ends at 0 makes the last updates small.
    if len(figures.values) >= 10 and max(figures.values) < 1e-5:
        return translate(
            "{name} {value:.2g} at {position}, never above 1e-5: the weights hardly move",
            name=figures.name,
            value=figures.values[-1],
            position=figures.position,
        )
    return _find_odd_newest(
        figures, lambda value: value > 0.03, translate("about 1e-3 is usual: the steps are large")
    )


def _dead_units(figures: MetricFigures) -> str | None:
    if _is_early(figures, 100, 0.1):
        return None
    if max(figures.values) > 1:
        return None  # a number of units, or percent
    return _find_odd_newest(
        figures, lambda value: value >= 0.5, translate("the share of units that are always zero")
    )


_REWARD = (
    "reward", "mean_reward", "rewards_mean", "episode_reward", "ep_rew_mean", "mean reward",
    "episodic_return",
    "averageepret", "rlhf_reward", "score/mean", "rewards/mean",
)  # fmt: skip
_ADVANTAGE = (
    "advantage", "advantages", "advantage_mean", "advantages/mean", "advantages/max",
    "advantages/min",
    "advantages/std", "advantages_std", "advantages_max", "advantages_min", "advantage_std",
    "adv_std",
)  # fmt: skip
RULES = (
    MetricRule("L7", ("perplexity", "ppl"), _perplexity),
    MetricRule("L9", ("accuracies", "dpo_acc"), _preferences),
    MetricRule(
        "V3",
        ("map", "map50", "map_50", "map50-95", "bbox_map", "map50(b)", "map50-95(b)", "ap"),
        _map_zero,
    ),
    MetricRule("V5", ("miou", "mean_iou"), _miou_zero, gaps=True),
    MetricRule("V6", ("minority_recall", "min_class_recall", "macro_recall"), _minority_ignored),
    MetricRule("DF3", ("latent_std", "latents_std"), _latents_off_scale),
    MetricRule("R1", (*_REWARD, "resp_len", "response_length"), _fallen_below_half),
    MetricRule("R2", ("kl", "approx_kl", "objective_kl", "kl_divergence"), _divergence),
    MetricRule("R3", _ADVANTAGE, _advantages),
    MetricRule("R3", ("value_loss", "vf_loss", "value_function_loss"), _value_loss),
    MetricRule("R4", _REWARD, _fallen_at_resume),
    MetricRule("O22", ("update_ratio", "update_to_weight"), _update_ratio),
    MetricRule("O25", ("dead_units", "dead_relu", "dead_neurons", "dead_fraction"), _dead_units),
)


@lru_cache(maxsize=4096)
def _metric_field(name: str) -> str:
    """Return a metric's name without the parts before it and without its set (``val_map``: ``map``)."""
    parts = name.lower().split("/")
    field = re.sub(r"^(?:train|val|valid|eval|test)_", "", parts[-1])
    # verl: critic/score/mean
    if field in ("mean", "max", "min", "std") and len(parts) > 1:
        return f"{parts[-2]}/{field}"
    return field


@lru_cache(maxsize=4096)
def _judged_by(name: str) -> frozenset[int]:
    """Return the rules that judge a metric. Usually none, so the lookup is cached."""
    field = _metric_field(name)
    return frozenset(number for number, rule in enumerate(RULES) if field in rule.names)


def _iterate_figures(run: RunState, names: Sequence[str]) -> Iterator[MetricFigures]:
    for name, series in run.series.items():
        if _metric_field(name) not in names or not len(series):
            continue
        xs, ys, count = series.backing_columns()
        if run.resumes:
            resume = run.resumes[-1]
        else:
            resume = None
        if resume is None:
            at = 0
        else:
            at = sum(1 for x in xs[:count] if x <= resume.step)
        yield MetricFigures(
            name,
            ys[max(0, count - 1000) : count],
            xs[count - 1],
            run,
            max(0, at - max(0, count - 1000)),
        )


def proof_function(page: str) -> Callable[[BoxFacts], Iterable[EntryProof]]:
    """Return a function that yields the runs whose metrics prove the page."""
    return lambda view: proofs_by_page(view).get(page, ())


_JUDGED: list[tuple[BoxFacts, dict[str, list[EntryProof]]]] = []
"""The view that was judged last, because every page asks for the same one."""


def proofs_by_page(view: BoxFacts) -> dict[str, list[EntryProof]]:
    """Return the proofs by page, from one pass over the runs."""
    for last, found in _JUDGED:
        if last is view:
            return found
    found = {}
    for run in runs_of(view):
        for number in sorted({number for name in run.series for number in _judged_by(name)}):
            if (proof := _judge_run(run, RULES[number])) is not None:
                found.setdefault(RULES[number].page, []).append(proof)
    _JUDGED[:] = [(view, found)]
    return found


def _judge_run(run: RunState, rule: MetricRule) -> EntryProof | None:
    # Confidence: a figure may be odd on purpose, e.g. because of another reward or scale.
    likely = 0.7
    for figures in _iterate_figures(run, rule.names):
        whole = rule.gaps or all(map(math.isfinite, figures.values[-LEAST:]))
        if whole and (why := rule.wrong(figures)):
            return EntryProof(
                f"{run.name}: {why}", "scalars", run=run.name, step=figures.step, confidence=likely
            )
    return None


class LiveReadings(NamedTuple):
    """What the readings of a box add to a page."""

    prove: Callable[[BoxFacts], Iterable[EntryProof]] | None = None
    needs: Sign | None = None
    gives_way: str = ""
    reading: Callable[[BoxState], str | None] | None = None
    cleared_by: str = "step"
    fixes: bool = True
    """True = show the page's own steps; False = they are made from the reading."""


LIVE = {
    "U6": LiveReadings(fixes=False),
    "U7": LiveReadings(fixes=False),
    "CKPT1": LiveReadings(cleared_by="saved"),
    "U33": LiveReadings(prove=queue.prove_copy_failed, needs=condition.has_queues),
    "U9": LiveReadings(
        queue.prove_killed_by_kernel,
        condition.has_work,
        gives_way="any",
        reading=space.memory_reading,
    ),
    "U10": LiveReadings(reading=gpu.vram_reading),
    "U11": LiveReadings(reading=gpu.vram_reading),
    "LO3": LiveReadings(reading=gpu.vram_reading),
    "M8": LiveReadings(reading=gpu.vram_reading),
    "M14": LiveReadings(reading=gpu.vram_reading),
    "M15": LiveReadings(reading=gpu.vram_reading),
    "M17": LiveReadings(reading=gpu.vram_reading),
    "SP1": LiveReadings(prove=queue.prove_preempted, needs=condition.has_queues, gives_way="any"),
    "U3": LiveReadings(
        prove=queue.prove_killed,
        needs=condition.has_queues,
        gives_way="any",
        reading=space.memory_reading,
    ),
    "P8": LiveReadings(prove=runs.prove_nan, needs=condition.has_nonfinite_loss, gives_way="log"),
    "D5": LiveReadings(prove=gpu.prove_one_process, needs=condition.has_work, gives_way="log"),
    "U22": LiveReadings(prove=gpu.prove_lost, needs=condition.ailing_card),
    "END1": LiveReadings(reading=runs.end_reading),
    "BOOT1": LiveReadings(prove=queue.prove_restarted, needs=condition.has_work, gives_way="any"),
    "C12": LiveReadings(prove=curves.prove_epoch_restart, needs=condition.has_resumed_run),
    "C14": LiveReadings(prove=curves.prove_lr_restart, needs=condition.has_resumed_run),
    "HANG1": LiveReadings(prove=stuck_ranks.prove_stopped, needs=condition.has_ranks),
    "HANG2": LiveReadings(prove=stuck_ranks.prove_away, needs=condition.has_ranks, gives_way="log"),
    "D19": LiveReadings(
        prove=stuck_ranks.prove_all_wait, needs=condition.has_ranks, gives_way="log"
    ),
    "D20": LiveReadings(prove=stuck_ranks.prove_gone, needs=condition.has_ranks, gives_way="log"),
    **{
        rule.page: LiveReadings(
            prove=proof_function(rule.page), needs=proofs_by_page, gives_way="log"
        )
        for rule in RULES
    },
}
"""By page id."""
STORAGE_IDS = ("U6", "U7")
"""Pages about a full disk: the live reading decides which one it is, and whether it is over."""


def _build_entry(page: HandbookPage) -> HandbookEntry:
    live = LIVE.get(page.id, LiveReadings())
    return HandbookEntry(
        id=page.id,
        title=page.title,
        severity=page.severity,
        action=str(page.action),
        resource=page.resource,
        fixes=page.fixes if live.fixes else (),
        never=page.never,
        prove=live.prove,
        needs=live.needs,
        gives_way=live.gives_way,
        reading=live.reading,
        cleared_by=live.cleared_by,
        beats=page.beats,
        confidence=log_judge().rate_confidence(page),
        symptom=page.role in (PageRole.CONSEQUENCE, PageRole.UNKNOWN),
    )


@functools.cache
def run_pages() -> tuple[HandbookPage, ...]:
    """Return the pages that the log of a run can show."""
    return tuple(
        page
        for page in shipped_pages().values()
        if (page.patterns or page.word_groups) and not page.terminal_only
    )


@functools.cache
def log_judge() -> LogJudge:
    """Return the judge of the logs of runs."""
    return LogJudge(shipped_pages())


@functools.cache
def _load_entries() -> dict[str, HandbookEntry]:
    shown = run_pages()
    known = {page.id for page in shown}
    by_readings = [
        page for page in shipped_pages().values() if page.id in LIVE and page.id not in known
    ]
    return {page.id: _build_entry(page) for page in (*shown, *by_readings)}


class _LazyHandbook(Mapping[str, HandbookEntry]):
    """Loads the pages on first use: parsing 230 KB of TOML must not delay the first frame."""

    def __getitem__(self, id_: str) -> HandbookEntry:
        return _load_entries()[id_]

    def __iter__(self) -> Iterator[str]:
        return iter(_load_entries())

    def __len__(self) -> int:
        return len(_load_entries())


HANDBOOK: Mapping[str, HandbookEntry] = _LazyHandbook()
"""Everything that can be found on a box: first by logs, then by readings alone."""
