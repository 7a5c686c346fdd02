"""rgt: a terminal dashboard that babysits training on rented GPU boxes."""

from rgt_wire import VERSION

__version__ = VERSION
