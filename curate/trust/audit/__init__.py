"""The checks of an audit: what is wrong with a run, seen without labels, each a figure against a constant threshold.

`audit_figures` has the kinds of figures with their intervals; `judgment_audit`, `table_audit` and `pair_audit` check a
run's judgments, its score table and its pairs.
"""
