"""Executors: running a stage in this process or on Ray. The rows are the same."""
