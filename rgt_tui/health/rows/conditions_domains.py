"""Conditions of a field's own metrics: perplexity, preference margins, mAP, mIoU, rare classes, latents, reward, KL.

Only what a run logs under a name that is known here is judged; a figure that is not logged proves nothing.
The limits are those of https://github.com/Hanyuyuan6/remote-gpu-trainer (2026-08).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from statistics import median, pstdev
from typing import NamedTuple

from rgt_tui.health.condition import Proof
from rgt_tui.health.facts import Facts
from rgt_tui.health.rows.conditions_runs import TO_SIGMA, runs_of
from rgt_tui.model import RunState

LIKELY = 0.7
"""A figure may be odd on purpose: another reward, another scale."""
NEWEST, WINDOW, LEAST = 3, 20, 60
"""Values in a row that must be odd, those that count as now, and those that say what is usual."""


class Figures(NamedTuple):
    """The values of one metric in the present attempt."""

    name: str
    values: Sequence[float]
    step: int
    run: RunState
    resumed_at: int
    """Values that stand before the newest resume; 0 where there was none."""

    def now(self) -> float:
        """Return the level of now."""
        return median(self.values[-WINDOW:])

    def usual(self) -> Sequence[float]:
        """Return the values before those of now."""
        return self.values[-WINDOW - 200 : -WINDOW]


class Rule(NamedTuple):
    """One way in which a figure shows that something is wrong."""

    page: str
    names: tuple[str, ...]
    """Of the metric, in lower case, without what stands before its last slash."""
    wrong: Callable[[Figures], str | None]
    """Why it is wrong, with the figures that prove it."""
    gaps: bool = False
    """What is no number is what it is about; elsewhere it proves nothing."""


def _latest(figures: Figures, odd: Callable[[float], bool], why: str) -> str | None:
    newest = figures.values[-NEWEST:]
    if len(newest) < NEWEST or not all(map(odd, newest)):
        return None
    return f"{figures.name} {newest[-1]:.4g} at step {figures.step:,}: {why}"


def _perplexity(figures: Figures) -> str | None:
    return _latest(figures, lambda value: value < 1.05 or value > 1e5, "no text is that easy, or that hard")


def _map_zero(figures: Figures) -> str | None:
    loss = figures.run.series.get("loss")
    known = (
        [value for value in loss.columns()[1][: len(loss)] if math.isfinite(value)]
        if loss is not None
        else []
    )
    falls = len(known) >= LEAST and median(known[-WINDOW:]) < median(known[:WINDOW])
    if figures.step <= 500 or not falls:
        return None
    return _latest(figures, lambda value: value == 0.0, "exactly 0, while the loss falls")


def _miou(figures: Figures) -> str | None:
    if figures.step <= 200:
        return None
    return _latest(figures, lambda value: value == 0.0 or math.isnan(value), "0 or no number")


def _minority(figures: Figures) -> str | None:
    accuracy = next(_of(figures.run, ("accuracy", "val_accuracy", "eval_accuracy")), None)
    if accuracy is None or not accuracy.values or not accuracy.values[-1] > 0.8:
        return None
    return _latest(figures, lambda value: value < 0.02, f"while {accuracy.name} is {accuracy.values[-1]:.4g}")


def _latents(figures: Figures) -> str | None:
    return _latest(
        figures, lambda value: not 0.5 <= value <= 2.0, "far from 1, for which the schedule is made"
    )


def _preferences(figures: Figures) -> str | None:
    margins = next(_of(figures.run, ("margins", "dpo_margin")), None)
    if margins is None or len(margins.values) < LEAST or len(figures.values) < WINDOW or figures.step <= 300:
        return None
    first, last = median(margins.values[-200:][:WINDOW]), margins.now()
    scatter = TO_SIGMA * median([abs(value - last) for value in margins.values[-200:]])
    if figures.now() >= 0.55 or abs(last - first) > max(scatter, 1e-12):
        return None
    return (
        f"{figures.name} {figures.now():.3g} at step {figures.step:,}, and {margins.name} stays at {last:.3g}"
    )


def _fallen(figures: Figures) -> str | None:
    """Below half of what was usual, by more than its scatter."""
    usual = figures.usual()
    if len(usual) < LEAST or figures.resumed_at > len(figures.values) - WINDOW - LEAST:
        return None
    level, now = median(usual), figures.now()
    scatter = TO_SIGMA * median([abs(value - level) for value in usual])
    if level <= 0.0 or now >= 0.5 * level or level - now < 4.0 * scatter:
        return None
    return f"{figures.name} {now:.4g} at step {figures.step:,}, it was {level:.4g}"


def _fallen_at_resume(figures: Figures) -> str | None:
    at = figures.resumed_at
    if at < LEAST or not WINDOW <= len(figures.values) - at <= 200:
        return None
    level, now = median(figures.values[max(0, at - 200) : at]), median(figures.values[at : at + WINDOW])
    scatter = TO_SIGMA * median([abs(value - level) for value in figures.values[max(0, at - 200) : at]])
    if level <= 0.0 or now >= 0.5 * level or level - now < 4.0 * scatter:
        return None
    return f"{figures.name} {now:.4g} since the resume, {level:.4g} before it"


def _divergence(figures: Figures) -> str | None:
    if told := _latest(figures, lambda value: value > 50.0, "above 50"):
        return told
    usual = figures.usual()
    if len(usual) < LEAST or figures.now() <= 5.0 * median(usual) or median(usual) <= 0.0:
        return None
    return f"{figures.name} {figures.now():.4g} at step {figures.step:,}, it was {median(usual):.4g}"


def _advantages(figures: Figures) -> str | None:
    if len(figures.values) < 50 or (spread := pstdev(figures.values[-50:])) <= 10.0:
        return None
    return f"{figures.name} scatters by {spread:.4g} over 50 points, up to step {figures.step:,}"


_REWARD = ("reward", "mean_reward", "rewards_mean", "episode_reward", "ep_rew_mean")
RULES = (
    Rule("L7", ("perplexity", "ppl", "val_perplexity", "eval_perplexity", "val_ppl"), _perplexity),
    Rule("L9", ("accuracies", "dpo_acc"), _preferences),
    Rule("V3", ("map", "val_map", "map50", "map50-95", "bbox_map"), _map_zero),
    Rule("V5", ("miou", "val_miou", "mean_iou", "eval_mean_iou"), _miou, gaps=True),
    Rule(
        "V6",
        ("minority_recall", "val_minority_recall", "min_class_recall", "val_min_class_recall"),
        _minority,
    ),
    Rule("DF3", ("latent_std", "latents_std"), _latents),
    Rule("R1", (*_REWARD, "resp_len", "response_length"), _fallen),
    Rule("R2", ("kl", "approx_kl", "objective_kl", "kl_divergence"), _divergence),
    Rule("R3", ("advantage", "advantages", "advantage_mean"), _advantages),
    Rule("R4", _REWARD, _fallen_at_resume),
)
_RULES = {rule.page: rule for rule in RULES}


@lru_cache(maxsize=4096)
def _field(name: str) -> str:
    return name.rpartition("/")[2].lower()


@lru_cache(maxsize=4096)
def _judged_by(name: str) -> frozenset[str]:
    """Return the pages that judge a metric: nearly always none, which has to cost next to nothing."""
    return frozenset(rule.page for rule in RULES if _field(name) in rule.names)


def _of(run: RunState, names: Sequence[str]) -> Iterator[Figures]:
    for name, series in run.series.items():
        if _field(name) not in names or not len(series):
            continue
        xs, ys, count = series.columns()
        resume = run.resumes[-1] if run.resumes else None
        at = 0 if resume is None else sum(1 for x in xs[:count] if x <= resume.step)
        yield Figures(
            name, ys[max(0, count - 1000) : count], xs[count - 1], run, max(0, at - max(0, count - 1000))
        )


def proves(page: str) -> Callable[[Facts], Iterable[Proof]]:
    """Return what gives the runs whose figures show what a page is about."""
    return lambda view: judged(view).get(page, ())


_JUDGED: list[tuple[Facts, dict[str, list[Proof]]]] = []
"""The view that was judged last: every page asks for the same one."""


def judged(view: Facts) -> dict[str, list[Proof]]:
    """Return the proofs by page, from one walk over the runs."""
    for last, found in _JUDGED:
        if last is view:
            return found
    found = {}
    for run in runs_of(view):
        for page in sorted({page for name in run.series for page in _judged_by(name)}):
            if (proof := _judge(run, _RULES[page])) is not None:
                found.setdefault(page, []).append(proof)
    _JUDGED[:] = [(view, found)]
    return found


def _judge(run: RunState, rule: Rule) -> Proof | None:
    for figures in _of(run, rule.names):
        whole = rule.gaps or all(map(math.isfinite, figures.values[-LEAST:]))
        if whole and (why := rule.wrong(figures)):
            return Proof(f"{run.name}: {why}", "scalars", run=run.name, step=figures.step, confidence=LIKELY)
    return None
