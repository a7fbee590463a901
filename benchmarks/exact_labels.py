"""Measure how often a label's log-probability is there, and how exact it is.

    python benchmarks/exact_labels.py [--json] [--dialogues 3]

The judge's and the adherence questions about a few dialogues are answered by the `transformers` engine in fp32, which
reads the labels from the whole softmax. The reference is the plain model: each prompt by itself, no cache, log-softmax over
the last position. From that same distribution follows what an API with the likeliest 10 or 20 tokens would have shown. The same
prompts in fp64 tell how much of the difference is fp32's own rounding, which no way of asking avoids.
"""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from material import MODEL, ROOT, Capture, figure, parser, report, small_hf_folder

from curate.adherence.config import AdherenceConfig
from curate.dialogue import Dialogue
from curate.engines.base import Request
from curate.engines.config import TransformersConfig
from curate.engines.model_pool import Asks
from curate.engines.open import open_engine
from curate.engines.tokens import PromptTokens, load_tokenizer
from curate.judging.config import RubricConfig
from curate.sources import open_source
from curate.sources.config import SourceConfig
from curate.stages import WorkItem, adherence_stage, judge_stage

SAMPLE = ROOT / "recipes" / "sample" / "support.jsonl"


@dataclass
class Counts:
    """Over all calls and their labels.

    Attributes:
        calls: reads of a first token.
        labels: labels that have a token of their own, over all calls.
        exact, in_10, in_20: of these, found by the engine, and among the likeliest of the full softmax.
        whole, whole_10, whole_20: calls in which every label was.
        error: largest difference of a log-probability from the reference.
        error_64, plain_64: the same of the engine, and of the reference itself, from the model in fp64.
    """

    calls: int = 0
    labels: int = 0
    exact: int = 0
    in_10: int = 0
    in_20: int = 0
    whole: int = 0
    whole_10: int = 0
    whole_20: int = 0
    error: float = 0.0
    error_64: float = 0.0
    plain_64: float = 0.0


def reference(model: Any, ids: list[int]) -> Any:
    """log-softmax over the vocabulary behind a prompt, in fp64 from the model's logits."""
    import torch

    with torch.inference_mode():
        logits = model(torch.tensor([ids]), logits_to_keep=1).logits[0, -1]
    return logits.double().log_softmax(-1)


def count(
    counts: Counts, tokens: PromptTokens, request: Request, got: Any, model: Any, in_64: Any
) -> None:
    """Compare one reply with the reference, and both with the model in fp64."""
    prompt = tokens.prompt_ids(request)
    logprobs, exact = reference(model, prompt), reference(in_64, prompt)
    ranked = logprobs.argsort(descending=True)[:20].tolist()
    of_label: dict[str, list[int]] = {label: [] for label in request.labels}
    for index, text in tokens.label_ids(request).items():
        of_label[text.strip()].append(index)
    spelt = {label: ids for label, ids in of_label.items() if ids}
    read: dict[str, float] = {}
    for text, value in got.first_token:
        read[text.strip()] = read.get(text.strip(), 0.0) + math.exp(value)
    found = {label for label in spelt if read.get(label, 0.0) > 0}
    in_10 = {label for label, ids in spelt.items() if set(ids) & set(ranked[:10])}
    in_20 = {label for label, ids in spelt.items() if set(ids) & set(ranked)}
    counts.calls += 1
    counts.labels += len(spelt)
    counts.exact += len(found)
    counts.in_10 += len(in_10)
    counts.in_20 += len(in_20)
    counts.whole += found == spelt.keys()
    counts.whole_10 += in_10 == spelt.keys()
    counts.whole_20 += in_20 == spelt.keys()
    for label in found:
        plain, true = (
            math.log(sum(math.exp(float(each[index])) for index in spelt[label]))
            for each in (logprobs, exact)
        )
        ours = math.log(read[label])
        counts.error = max(counts.error, abs(ours - plain))
        counts.error_64 = max(counts.error_64, abs(ours - true))
        counts.plain_64 = max(counts.plain_64, abs(plain - true))


async def measure(folder: Path, number: int) -> Counts:
    from transformers import AutoModelForCausalLM

    source = open_source(SourceConfig(path=str(SAMPLE)))
    dialogues: list[Dialogue] = [item for unit in source.read() for item in unit.dialogues][:number]
    engine = await open_engine(TransformersConfig(model=str(folder), dtype="float32"))
    capture = Capture(engine)
    try:
        judged = judge_stage(RubricConfig(mode="tokens", text="off"), engine)
        adherence = adherence_stage(AdherenceConfig(output_mode="continuous"), engine)
        for dialogue in dialogues:
            await judged.run(WorkItem(dialogue), Asks.of(capture))
            await adherence.run(WorkItem(dialogue), Asks.of(capture))
    finally:
        await engine.close()
    model = AutoModelForCausalLM.from_pretrained(str(folder), dtype="float32").eval()
    in_64 = AutoModelForCausalLM.from_pretrained(str(folder), dtype="float64").eval()
    tokens = PromptTokens(load_tokenizer(str(folder)))
    counts = Counts()
    for request, reply in capture.calls:
        if request.labels:
            count(counts, tokens, request, reply, model, in_64)
    return counts


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--dialogues", type=int, default=3)
    given = arguments.parse_args()
    with small_hf_folder() as folder:
        counts = asyncio.run(measure(folder, given.dialogues))

    def share(part: int, whole: int) -> str:
        return f"{100 * part / whole:.1f} %"

    rows = [
        figure(
            "labels found / labels asked for",
            100 * counts.exact / counts.labels,
            unit="%",
            target="100 %",
            met=counts.exact == counts.labels,
            beside=f"in the likeliest 10: {share(counts.in_10, counts.labels)}, "
            f"20: {share(counts.in_20, counts.labels)}",
        ),
        figure(
            "calls in which every label is found",
            100 * counts.whole / counts.calls,
            unit="%",
            target="100 %",
            met=counts.whole == counts.calls,
            beside=f"in the likeliest 10: {share(counts.whole_10, counts.calls)}, "
            f"20: {share(counts.whole_20, counts.calls)}",
        ),
        figure(
            "largest error of a log-probability",
            counts.error,
            target="<= the model's own",
            met=counts.error <= counts.plain_64,
            beside="against log-softmax over the whole vocabulary, each prompt by itself, no cache; the model's own: "
            f"that softmax in fp32 against fp64, {counts.plain_64:.2g}",
        ),
        figure(
            "the same against the model in fp64",
            counts.error_64,
        ),
    ]
    how = (
        f"{counts.calls} calls with {counts.labels} labels about the first {given.dialogues} dialogues of "
        f"recipes/sample/support.jsonl, {MODEL} unpacked to fp32, the `transformers` engine on the CPU with its "
        "cache. Spellings of one label (with and without a blank) are added; a label that has no token "
        "of its own is not counted."
    )
    report(3, "Exact label log-probabilities", rows, how, as_json=given.json)


if __name__ == "__main__":
    main()
