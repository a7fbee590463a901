"""The rubric judge: every turn of a dialogue scored, and the dialogue as a whole."""

from curate.judging.config import RubricConfig, resolve_mode
from curate.judging.rubric import judge_dialogue
from curate.judging.rubric_prompts import PROMPT_VERSION, WORDINGS, prompt_version
from curate.judging.turn_rescoring import describe_issue, score_turn
from curate.judging.verdict import rule_verdict, weakest_turn
