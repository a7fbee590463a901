"""A run: its stages in order over a run folder, and the joins of rooms that know nothing of each other."""
