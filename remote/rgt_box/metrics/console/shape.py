"""Line formats as data: a pattern for the whole line, and one for the ``name value`` pairs in its rest."""

from __future__ import annotations

import re

from rgt_box.metrics.console.numbers import NUM, number
from rgt_box.metrics.console.row import Row

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

    from rgt_box.metrics.console.row import Parse

    Pairs = Callable[[str], List[Tuple[str, str]]]

_ALONE = re.compile(r"\s{0,40}(%s)\s{0,40}$" % NUM, re.I)


def pipes(rest: str) -> List[Tuple[str, str]]:
    """Return the pairs of ``name: 1.0 | name: 2.0 |``; cells that hold more than one number are left out."""
    found = []
    for cell in rest.split("|")[:200]:
        name, colon, text = cell.partition(":")
        value = _ALONE.match(text) if colon else None
        if value is not None:
            found.append((name.strip()[:100], value.group(1)))
    return found


def _all(pattern: str) -> Pairs:
    return re.compile(pattern % NUM, re.I).findall


colons = _all(r"([A-Za-z_\[][\w/.\[\]\-()%%]{0,80}):\s*(%s)")
"""``name: 1.0  name:2.0``"""

equals = _all(r"(?:^|, ?|\| )([A-Za-z_]\w{0,80})[= ](%s)")
"""``name=1.0, name=2.0`` and ``| name 1.0 | name 2.0``"""

dictionary = _all(r"'([^'{}]{1,100})':\s*'?(%s)'?(?=\s*[,}]|\s*$)")
"""``'name': 1.0, 'name': '2.0'``"""

dashes = _all(r"(?:^| - )([^\s:][^:]{0,100}?):(?:np\.\w{1,20}\()?(%s)")
"""``name:1.0 - name:np.float64(2.0)``"""

_PLACES = ("step", "epoch", "rest")


class Shape:
    """One kind of line.

    Args:
        pattern: For ``search``, without regard to case. Group ``step`` or ``epoch`` is the place, ``rest`` is searched
            for pairs, any other group is a value of that name (``name`` and ``value`` together are one pair).
        pairs: Finds the pairs in ``rest``.
        names: Tag as printed → tag to use; None drops it.
        prefix: Put before every tag that is not in `names`.
        step_key: The pair that is the step.
        weak: See `Row`.
    """

    def __init__(
        self,
        pattern: str,
        pairs: Optional[Pairs] = None,
        names: Optional[Mapping[str, Optional[str]]] = None,
        prefix: str = "",
        step_key: str = "",
        weak: bool = False,
    ) -> None:
        self._search = re.compile(pattern.replace("{N}", NUM), re.I).search
        self._pairs, self._names, self._prefix = pairs, names or {}, prefix
        self._step_key, self._weak = step_key, weak

    def read(self, line: str) -> Row | None:
        """Return the row of a line; None where the line is of another kind or has no number."""
        match = self._search(line)
        if match is None:
            return None
        groups = match.groupdict()
        pairs: Dict[str, Any] = {k: v for k, v in groups.items() if v is not None and k not in _PLACES}
        if "name" in pairs and "value" in pairs:
            pairs[pairs.pop("name")] = pairs.pop("value")
        if self._pairs is not None and groups.get("rest"):
            pairs.update(self._pairs(groups["rest"]))
        step, epoch = groups.get("step"), groups.get("epoch")
        if self._step_key:
            step = pairs.pop(self._step_key, step)
        epoch = pairs.pop("epoch", epoch) if epoch is None else epoch
        values = {}
        for key, text in pairs.items():
            tag = self._names[key] if key in self._names else self._prefix + key
            if tag is not None:
                values[tag] = number(text)
        row = Row(
            values,
            step=None if step is None else whole(step),
            epoch=None if epoch is None else number(epoch),
            weak=self._weak,
        )
        return row if values and row.place() else None


def whole(text: str) -> Optional[int]:
    """Return a step as an integer; None for one that is no number of steps."""
    value = number(text)
    return int(value) if 0 <= value < 1e15 else None


def any_of(*shapes: Shape) -> Parse:
    """Return a parse function that takes the first of `shapes` that fits."""

    def parse(line: str, _: Dict[str, Any]) -> List[Row]:
        for shape in shapes:
            row = shape.read(line)
            if row is not None:
                return [row]
        return []

    return parse
