"""Role adherence methods on labelled turns: the paper's tables, for any set of methods on any labelled file.

A benchmark is a list of dialogues that each end in the turn to be scored, labelled `adherent` or with the
kind of violation. Conditions are its first n turns, and a distribution method is fitted on those n alone, as
in the paper ("Role Adherence", Fritz and Fiorenza 2026). Scores come from the reference methods, from a judge
through the code that a run uses, or from a file; all are measured alike, beside baselines that understand
nothing. Scoring, figures, tables and plots are modules of their own, and none of them prints.
"""

from curate.benchmark.benchmark_run import Benchmark, Options, run_benchmark
from curate.benchmark.figures import MethodFigures, figures, result_row
