"""verl: Parquet only. SFT rows of `messages`; reward-model rows of three texts.

verl reads Parquet through pandas, where messages and tools are structs: every tool would be given the keys of
every other, filled with null, and arguments could be no objects. So rows with tools are refused. Its SFT reader
trains on every assistant message of a row and knows no mask, so mixed dialogues are refused as well. Its
reward-model reader applies no chat template: prompt and answer are the texts that are trained on, in the form
of its own example, `\\n\\nHuman: …\\n\\nAssistant:`.
"""

from __future__ import annotations

from typing import Final

from curate.export.template_messages import Refused, Wire, bare, refuse_reasoning, refuse_tools
from curate.export.trainer_facts import Fate, Layout, StageFacts, TrainerFacts, pairs_in
from curate.export.trainer_module import Columns, TrainerRow, TrainingFile

_NO_TOOLS = "verl's Parquet would fill each tool and call with the keys of all others"
_TEXTS_ONLY = "verl's reward model reads plain texts"
_NO_THINKING = "verl's Parquet would give every message that key"
_SPEAKERS: Final = {"system": "System", "user": "Human", "assistant": "Assistant"}
FACTS: Final = TrainerFacts(
    package="verl",
    release="0.9.1",
    setting="data.max_length",
    formats=("parquet",),
    stages={
        "reward": StageFacts(
            layouts=(pairs_in("prompt", "chosen", "rejected", holds="text"),),
            marker_columns=(frozenset({"chosen", "rejected"}),),
            limit=1024,
            fates={
                "empty_side": Fate("corrupted", "score the prompt alone"),
                "empty_prompt": Fate("corrupted", "score an answer to nothing"),
                "prompt_too_long": Fate(
                    "corrupted", "cut both answers off whole: the prompt alone fills max_length"
                ),
                "too_long": Fate(
                    "truncated", "cut off the end of the answer, and its end-of-text token"
                ),
            },
            drops_tools=_TEXTS_ONLY,
            renders="text",
        ),
        "sft": StageFacts(
            layouts=(Layout(("messages",)),),
            limit=1024,
            fates={
                "too_long": Fate(
                    "stops", "stop: a row is longer than max_length, and truncation is `error`"
                ),
                "no_assistant": Fate(
                    "corrupted", "train on nothing: no message is the assistant's"
                ),
            },
        ),
    },
    suffixes=(".parquet",),
)
_MARKERS: Final = tuple(f"\n\n{speaker}:" for speaker in _SPEAKERS.values())


def _sft(row: TrainerRow) -> TrainerRow:
    refuse_tools(row, _NO_TOOLS)
    refuse_reasoning(row, _NO_THINKING)
    return {"messages": [bare(message) for message in row["messages"]]}


def _masked(_: TrainerRow) -> TrainerRow:
    raise Refused("mask_not_carried", "verl trains on every assistant message of a row")


def _texts(row: TrainerRow) -> TrainerRow:
    refuse_tools(row, FACTS.stages["reward"].drops_tools)
    refuse_reasoning(row, _TEXTS_ONLY)
    return {
        "prompt": "".join(map(_line, row["prompt"])) + "\n\nAssistant: ",
        "chosen": _unmarked(row["chosen"][0]["content"]),
        "rejected": _unmarked(row["rejected"][0]["content"]),
    }


def _line(message: Wire) -> str:
    return f"\n\n{_SPEAKERS[message['role']]}: {_unmarked(message['content'])}"


def _unmarked(text: str) -> str:
    """Return the text; refuse one that would be read as several messages."""
    for marker in _MARKERS:
        if marker in text:
            raise Refused("marker_in_text", f"a message holds {marker!r}, which opens a message")
    return text


_SFT: Final[Columns] = {"messages": "messages"}
_TEXTS: Final[Columns] = {"prompt": "text", "chosen": "text", "rejected": "text"}

FILES: Final = (
    TrainingFile("sft", "sft", "dialogues", _SFT, _sft),
    TrainingFile("sft_salvaged", "sft", "masked", _SFT, _masked),
    TrainingFile("rm", "reward", "pairs", _TEXTS, _texts),
    TrainingFile("rm_natural", "reward", "natural", _TEXTS, _texts),
)
