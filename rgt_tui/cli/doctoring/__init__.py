"""The checks of ``rgt doctor``: of this machine, of the fleet file, of each box."""
