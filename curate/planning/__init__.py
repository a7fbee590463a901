"""Before a run: whether this machine can do it, and the estimate of its requests, time and cost."""
