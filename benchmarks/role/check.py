"""Are the role-adherence files what their README says: format, split, and baselines that find nothing?

    python benchmarks/role/check.py

Prints the tables of the README and every fault found; exits with 1 if there is one. What each rule is for:
replies to one message come in groups of like length, so that a score of length, place or wording cannot
pass for a reading of the role; in the plain tier every reply stands twice, once right and once wrong, so
that no score of a reply alone can; the sealed half is fixed by its hash, so that nobody tunes on it unseen.
`tests/run/test_role_file.py` runs the same rules.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from curate.api import load_dialogues
from curate.benchmark.baselines import baselines
from curate.benchmark.labelled_turns import ADHERENT, LabelledTurn, labelled_turns
from curate.trust.agreement import auc

HERE = Path(__file__).resolve().parent
HALVES = ("dev", "sealed")
TIERS = {"subtle": "", "plain": "plain_"}
"""Tiers by name, with what the names of their files begin with."""

KINDS = ("tone", "scope", "constructive", "persona")
FIELDS = ("id", "group", "role_id", "label", "role_definition", "messages", "references")
SEED = 42
LENGTH_RATIO = 1.15
FROM_CHANCE = 0.15
LEAST_TURNS, LEAST_ROLES, LEAST_REFERENCES = 120, 8, 3

Row = dict[str, Any]
Scores = Mapping[str, Sequence[float | None]]

SURFACE = {
    "numbers": r"\d+",
    "questions": r"\?",
    "exclamations": r"!",
    "sentences": r"[.!?](?:\s|$)",
    "first person": r"\b(?:I|me|my|myself|we|our|us)\b",
    "you": r"\byou\w*",
    "politeness": r"\b(?:please|thank\w*|glad\w*|kindly|sorry)\b",
    "hedges": r"\b(?:if|may|might|could|would|should|whether|perhaps)\b",
    "negations": r"\b(?:not|no|none|never|nothing|nor|cannot)\b|n't\b",
}
"""Marks that a reply can be counted by, as regular expressions that ignore case."""

_WORDS = re.compile(r"\w+")


def read_rows(half: str, tier: str = "subtle") -> list[Row]:
    """The rows of `dev` or `sealed` as they stand in the file."""
    return [json.loads(line) for line in path_of(half, tier).read_text("utf-8").splitlines()]


def path_of(half: str, tier: str = "subtle") -> Path:
    """The file of a half."""
    return HERE / f"{TIERS[tier]}{half}.jsonl"


def read_turns(half: str, tier: str = "subtle") -> list[LabelledTurn]:
    """The labelled turns of a half, read by curate's own sources; `all` is dev, then sealed."""
    halves = HALVES if half == "all" else (half,)
    dialogues = [d for name in halves for d in load_dialogues(path_of(name, tier)).dialogues]
    return labelled_turns(dialogues)


def reply_of(row: Row) -> str:
    """The labelled reply."""
    return str(row["messages"][-1]["content"])


def groups_of(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Rows by group: replies to the same message under the same role."""
    found: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        found[row["group"]].append(row)
    return dict(found)


def dev_roles(roles: Sequence[str]) -> set[str]:
    """The subtle tier's rule of the split: roles ranked by the SHA-256 of `42:<role_id>`, the first half is dev.

    The plain tier's sealed half was written after its dev half, and `split.json` names the roles of each.
    """
    ranked = sorted(set(roles), key=lambda role: hashlib.sha256(f"{SEED}:{role}".encode()).digest())
    return set(ranked[: len(ranked) // 2])


def faults(halves: Mapping[str, Sequence[Row]], tier: str = "subtle") -> Iterator[str]:
    """What is wrong with the rows, their groups and the whole, in words; nothing where all is well."""
    rows = [row for half in halves.values() for row in half]
    for row in rows:
        yield from _row_faults(row)
    for name, group in groups_of(rows).items():
        yield from _group_faults(name, group)
    if len(rows) < LEAST_TURNS or len({row["role_id"] for row in rows}) < LEAST_ROLES:
        yield f"{len(rows)} turns over {len({row['role_id'] for row in rows})} roles are too few"
    once = {"id": [row["id"] for row in rows]}
    if tier == "plain":
        yield from _mirror_faults(rows)
    else:
        once["labelled reply"] = [reply_of(row) for row in rows]
    for what, values in once.items():
        yield from (f"{what} twice: {v[:60]}" for v, n in Counter(values).items() if n > 1)
    if len({(row["role_id"], row["role_definition"]) for row in rows}) != len(
        {row["role_id"] for row in rows}
    ):
        yield "a role_id stands for two role definitions"


def split_faults(halves: Mapping[str, Sequence[Row]], tier: str = "subtle") -> Iterator[str]:
    """What is wrong with the split: its rule, a message in both halves, or a file that is not the one fixed."""
    fixed = json.loads((HERE / "split.json").read_text("utf-8"))
    roles = {name: {row["role_id"] for row in half} for name, half in halves.items()}
    expected = (
        dev_roles([*roles["dev"], *roles["sealed"]])
        if tier == "subtle"
        else set(fixed["plain_dev"]["roles"])
    )
    if roles["dev"] != expected:
        yield f"dev should hold the roles {sorted(expected)}"
    fields = {name: {_field(role) for role in held} for name, held in roles.items()}
    yield from (f"field in both halves: {name}" for name in fields["dev"] & fields["sealed"])
    said = {name: {_asked(row) for row in half} for name, half in halves.items()}
    yield from (
        f"user message in both halves: {text[:60]}" for text in said["dev"] & said["sealed"]
    )
    for half in HALVES:
        path = path_of(half, tier)
        found, said_to_be = (
            hashlib.sha256(path.read_bytes()).hexdigest(),
            fixed[path.stem]["sha256"],
        )
        if found != said_to_be:
            yield f"{path.name} has SHA-256 {found}, split.json says {said_to_be}"


def decided_by(rows: Sequence[Row]) -> list[str]:
    """Of each row `history` where another has the same role and reply with another label, else `role`."""
    labels: dict[tuple[str, str], set[bool]] = defaultdict(set)
    for row in rows:
        labels[row["role_id"], reply_of(row)].add(row["label"] == ADHERENT)
    return ["history" if len(labels[row["role_id"], reply_of(row)]) > 1 else "role" for row in rows]


def cheap_scores(turns: Sequence[LabelledTurn]) -> Scores:
    """Curate's baselines and two of our own, by name.

    `unigram_message` is naive Bayes over words fitted on all other user messages; `place` is that of the
    reply within its group, negated.
    """
    places: Counter[str | None] = Counter()
    place: list[float] = []
    for turn in turns:
        place.append(-float(places[turn.dialogue.group]))
        places[turn.dialogue.group] += 1
    return {**baselines(turns), "unigram_message": _unigram_by_message(turns), "place": place}


def areas(turns: Sequence[LabelledTurn], scores: Sequence[float | None]) -> dict[str, float]:
    """AUC of the adherent turns against all others (`all`) and against each kind of violation.

    Raises:
        ValueError: a turn has no score, or there is no turn of a kind.
    """
    found: dict[str, float] = {}
    for kind in ("all", *KINDS):
        held = [
            (score, turn.is_adherent)
            for score, turn in zip(scores, turns, strict=True)
            if score is not None and (kind == "all" or turn.label in (ADHERENT, kind))
        ]
        value = auc([score for score, _ in held], [gold for _, gold in held])
        if value is None or None in scores:
            raise ValueError(f"no AUC against {kind}: a score or a class is missing")
        found[kind] = value
    return found


def baseline_areas(tier: str = "subtle") -> dict[tuple[str, str], dict[str, float]]:
    """AUCs by half (`all`, `dev`, `sealed`) and baseline."""
    found = {}
    for half in ("all", *HALVES):
        turns = read_turns(half, tier)
        for name, scores in cheap_scores(turns).items():
            found[half, name] = areas(turns, scores)
    return found


def surface_areas(tier: str = "subtle") -> dict[tuple[str, str], dict[str, float]]:
    """AUCs of the number of each mark of `SURFACE` in a reply, over the whole file."""
    turns = read_turns("all", tier)
    return {
        ("all", name): areas(
            turns,
            [float(len(re.findall(mark, turn.case.candidate, re.IGNORECASE))) for turn in turns],
        )
        for name, mark in SURFACE.items()
    }


def baseline_faults(
    found: Mapping[tuple[str, str], Mapping[str, float]], tier: str = "subtle"
) -> Iterator[str]:
    """Baselines further from chance than allowed: over the whole file, each half, and each kind of violation.

    In the plain tier a kind is bound to few messages, so that its AUC compares these with all others: kinds
    are shown there and not asked for.
    """
    for (half, name), by_kind in found.items():
        for kind, value in by_kind.items():
            # A kind has some 12 turns in a half, where chance alone strays further than this.
            counts = kind == "all" or (half == "all" and tier == "subtle")
            if counts and abs(value - 0.5) > FROM_CHANCE:
                yield f"{name} has AUC {value:.3f} on {half} against {kind}"


def _row_faults(row: Row) -> Iterator[str]:
    name = row.get("id", "a row without id")
    if tuple(row) != FIELDS:
        yield f"{name}: fields {tuple(row)}"
        return
    if row["label"] not in (ADHERENT, *KINDS):
        yield f"{name}: label {row['label']}"
    said = [message["role"] for message in row["messages"]]
    if said != ["user", "assistant"] * (len(said) // 2) or not 2 <= len(said) <= 8:
        yield f"{name}: messages by {said}"
    *earlier, last = row["references"]
    if len(earlier) + 1 != said.count("assistant") or any(earlier):
        yield f"{name}: references do not stand with the last turn"
    if len(set(last)) < LEAST_REFERENCES or reply_of(row) in last:
        yield f"{name}: {len(set(last))} references, or the reply is one of them"
    texts = [row["role_definition"], *last, *(message["content"] for message in row["messages"])]
    if any(text != text.strip() or not text for text in texts):
        yield f"{name}: an empty text, or blanks around one"


def _group_faults(name: str, group: Sequence[Row]) -> Iterator[str]:
    if any(_shared(row) != _shared(group[0]) for row in group):
        yield f"{name}: another role, history or references within the group"
    labels = Counter(row["label"] == ADHERENT for row in group)
    if labels[True] != labels[False]:
        yield f"{name}: {labels[True]} adherent replies and {labels[False]} others"
    lengths = [len(reply_of(row).split()) for row in group]
    if max(lengths) > LENGTH_RATIO * min(lengths):
        yield f"{name}: replies of {min(lengths)} to {max(lengths)} words"


def _mirror_faults(rows: Sequence[Row]) -> Iterator[str]:
    """Where the plain tier's balance is broken: a reply is right once and wrong once, half by the history."""
    seen: dict[tuple[str, str], list[bool]] = defaultdict(list)
    for row in rows:
        seen[_asked(row), reply_of(row)].append(row["label"] == ADHERENT)
    for (_, reply), labels in seen.items():
        if sorted(labels) != [False, True]:
            yield f"not once adherent and once not: {reply[:60]}"
    ways = Counter(decided_by(rows))
    if 2 * ways["history"] < len(rows):
        yield f"earlier turns decide {ways['history']} of {len(rows)} rows, less than half"


def _field(role: str) -> str:
    """What stands before the hyphen of a role's id: roles of one field share messages."""
    return role.partition("-")[0]


def _shared(row: Row) -> tuple[Any, ...]:
    """What all rows of a group have in common."""
    return row["role_id"], row["role_definition"], row["messages"][:-1], row["references"]


def _asked(row: Row) -> str:
    return str(row["messages"][-2]["content"])


def _unigram_by_message(turns: Sequence[LabelledTurn]) -> list[float]:
    """Mean log-odds of adherent over the words of a turn, add-one smoothed, fitted on other messages' turns.

    A message that stands in two groups, under two roles or histories, is left out as one.
    """
    words = [_WORDS.findall(turn.case.candidate.lower()) for turn in turns]
    total: dict[bool, Counter[str]] = {True: Counter(), False: Counter()}
    own: dict[tuple[str | None, bool], Counter[str]] = defaultdict(Counter)
    asked = [turn.dialogue.messages[-2].content for turn in turns]
    for turn, said, message in zip(turns, words, asked, strict=True):
        total[turn.is_adherent].update(said)
        own[message, turn.is_adherent].update(said)
    size = len(total[True] | total[False])
    others = {
        (message, kind): (left := total[kind] - own[message, kind], left.total() + size)
        for message in set(asked)
        for kind in (True, False)
    }
    scores = []
    for said, message in zip(words, asked, strict=True):
        odds = 0.0
        for kind, sign in ((True, 1), (False, -1)):
            left, count = others[message, kind]
            odds += sign * sum(math.log((left[w] + 1) / count) for w in said)
        scores.append(odds / max(1, len(said)))
    return scores


def _counts_table(halves: Mapping[str, Sequence[Row]]) -> list[str]:
    lines = ["| role | half | messages | adherent | " + " | ".join(KINDS) + " |"]
    lines.append("|---|---|" + "---:|" * (2 + len(KINDS)))
    for half, rows in halves.items():
        for role in dict.fromkeys(row["role_id"] for row in rows):
            own = [row for row in rows if row["role_id"] == role]
            labels = Counter(row["label"] for row in own)
            cells = [len(groups_of(own)), *(labels[kind] for kind in (ADHERENT, *KINDS))]
            lines.append(f"| {role} | {half} | " + " | ".join(map(str, cells)) + " |")
    return lines


def _areas_table(found: Mapping[tuple[str, str], Mapping[str, float]]) -> list[str]:
    lines = [
        "| baseline | half | all | " + " | ".join(KINDS) + " |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for (half, name), by_kind in sorted(found.items(), key=lambda item: item[0][1]):
        cells = " | ".join(f"{by_kind[kind]:.3f}" for kind in ("all", *KINDS))
        lines.append(f"| {name} | {half} | {cells} |")
    return lines


def _sizes(rows: Sequence[Row]) -> str:
    words = sorted(len(reply_of(row).split()) for row in rows)
    earlier = Counter(len(group[0]["messages"]) // 2 - 1 for group in groups_of(rows).values())
    history = ", ".join(f"{turns} earlier turns: {n}" for turns, n in sorted(earlier.items()))
    return f"replies of {words[0]} to {words[-1]} words; messages with {history}"


def main() -> int:
    """Print tables and faults of both tiers; 1 where there is a fault."""
    wrong = []
    for tier in TIERS:
        halves = {half: read_rows(half, tier) for half in HALVES}
        rows = [row for half in halves.values() for row in half]
        found, marks = baseline_areas(tier), surface_areas(tier)
        print("\n".join([f"## {tier}", "", *_counts_table(halves), ""]))
        print("\n".join([*_areas_table(found), "", *_areas_table(marks), ""]))
        print(_sizes(rows), end="\n\n")
        wrong += [*faults(halves, tier), *split_faults(halves, tier)]
        wrong += baseline_faults({**found, **marks}, tier)
    print("\n".join(wrong) or "no fault")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
