"""rgt: a terminal dashboard that watches over training on rented GPU boxes."""

from rgt_wire import VERSION

__version__ = VERSION
