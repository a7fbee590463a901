"""Factuality: the claims of each assistant turn, labelled, each with its words and the evidence it was checked against."""

from curate.judging.factuality.config import FactualityConfig
from curate.judging.factuality.judge import claims_of_turn, score_factuality
from curate.judging.factuality.prompting import prompt_version
