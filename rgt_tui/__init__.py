"""rgt: a terminal dashboard that babysits training on rented GPU boxes."""

__version__ = "0.1.0"
