"""Side-by-side measurements. `python -m benchmarks` runs all of them, `python -m benchmarks.NAME` one.

A number of one machine means little: where it can, a benchmark measures an alternative in the same
    run and
gives the ratio. A module is a benchmark when it has a function `run(quick)`; the others are its
tools.
"""
