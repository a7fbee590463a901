"""What is wrong with a run, seen without labels: each check a figure held against a constant threshold.

`figures` has the kinds of figures with their intervals; `judgments`, `table` and `pairs` what is looked at in each.
"""
