"""Before a run: whether this machine can do it, what it will ask, how long that takes and what it costs."""
