"""A value that must not show itself anywhere."""

from __future__ import annotations


class Secret:
    """A key, an address or a token that shows in no repr, no traceback's locals, no log and no pickle."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """Return it, for the one place it goes to."""
        return self._value

    def __repr__(self) -> str:
        return "Secret(…)"

    def __reduce__(self) -> str:
        raise TypeError("a secret is not written anywhere")
