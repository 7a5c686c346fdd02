"""The config's keys as Markdown tables: ``python -m rgt_train.config.table`` prints what docs/trainer.md holds."""

from __future__ import annotations

from typing import Iterable, List

from rgt_train.config.fields import COMMON, TASK_DEFAULTS, TASKS, Field, Value


def tables() -> str:
    """Return a table for each section of the common keys, and one for each task."""
    parts: List[str] = []
    for section in dict.fromkeys(field.section for field in COMMON):
        parts.append(f"Section `{section}`:\n\n" + _table(f for f in COMMON if f.section == section))
    for task, fields in TASKS.items():
        own = TASK_DEFAULTS.get(task, {})
        changed = ", ".join(f"`{name}` {_shown(value)}" for name, value in own.items())
        title = f"Section `model` of `{task}`" + (f" (its other defaults: {changed})" if changed else "")
        parts.append(f"{title}:\n\n" + _table(fields))
    return "\n\n".join(parts) + "\n"


def _table(fields: Iterable[Field]) -> str:
    rows = [f"| `{field.name}` | {_shown(field.default)} | {field.help} |" for field in fields]
    return "\n".join(["| key | default | meaning |", "|---|---|---|", *rows])


def _shown(value: Value) -> str:
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{value}`" if value != "" else "none"


if __name__ == "__main__":
    print(tables(), end="")
