"""Files of a run: the run folder and what is in it, on this machine or at a URL."""
