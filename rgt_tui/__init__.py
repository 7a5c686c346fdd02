"""rgt: a terminal dashboard that babysits training on rented GPU boxes."""

from collections.abc import Callable, Mapping
from importlib import import_module

from rgt_wire import VERSION

__version__ = VERSION


def imported_later(package: str, homes: Mapping[str, str]) -> Callable[[str], object]:
    """Return the ``__getattr__`` of a package whose public names are imported when they are first asked for.

    Args:
        package: Its full name.
        homes: Module of the package → the names that come from it, with blanks between them.
    """
    found = {name: f"{package}.{module}" for module, names in homes.items() for name in names.split()}

    def load(name: str) -> object:
        if name not in found:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(found[name]), name)

    return load
