"""What lies on disk: the run folder and its files, on this machine or at a URL."""
