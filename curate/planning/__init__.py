"""Whether this machine can do a run, and the estimate of its requests, time and cost."""
