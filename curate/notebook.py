"""How dialogues, judgments and runs are displayed in a notebook: static HTML in the style of the report's page.

It has no scripts, and text from the data is always escaped. What is too long for a cell is cut, with a note;
`curate report` shows everything.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.resources import files
from typing import Any, Final

from markupsafe import Markup, escape

from curate.untrusted import visible
from curate.wording import plural

MAX_TURNS: Final = 30
MAX_CHARACTERS: Final = 3_000
_CLASSES: Final = 12

StoredRecord = Mapping[str, Any]


def element(tag: str, *children: str, **attributes: str) -> Markup:
    """Return an element; children are text unless they are elements. `class_` stands for `class`."""
    inside = Markup("").join(_text(child) for child in children)
    names = {name.rstrip("_").replace("_", "-"): value for name, value in attributes.items()}
    written = Markup("").join(Markup(' {}="{}"').format(*item) for item in names.items())
    return Markup("<{}{}>{}</{}>").format(Markup(tag), written, inside, Markup(tag))


def _text(child: str) -> Markup:
    return child if isinstance(child, Markup) else escape(visible(child))


def cell(*children: str) -> str:
    """Return the HTML of a notebook cell: the children with the style they need."""
    return str(element("div", element("style", Markup(_style())), *children, class_="curate"))


@cache
def _style() -> str:
    # The page's style and its variables apply only inside the cell.
    style = (files("curate.report") / "built" / "report.css").read_text().replace(":root", "&")
    own = "background: var(--ground); color: var(--ink); padding: .6em 1em; overflow-wrap: anywhere"
    # Saving or printing a notebook must include turns that were not scrolled to.
    return f".curate {{ {style} & {{ {own} }} .turn {{ content-visibility: visible }} }}"


@contextmanager
def progress_bars() -> Iterator[Callable[[str, int, int], None]]:
    """Yield a function that shows each stage's progress with tqdm; outside a notebook it shows nothing."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    bars: dict[str, Any] = {}

    def show(stage: str, done: int, total: int) -> None:
        from tqdm.auto import tqdm

        bar = bars.get(stage)
        if bar is None:
            bar = bars[stage] = tqdm(total=total, desc=stage)
        bar.total = total
        bar.update(done - bar.n)

    try:
        yield show if getattr(shell, "kernel", None) is not None else lambda *_: None
    finally:
        for bar in bars.values():
            bar.close()


def spoken(name: str) -> str:
    """Return a key of a record in words."""
    return name.replace("_", " ")


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Markup:
    """Return a table; the first cell of each row is its heading."""
    head = element("tr", *(element("th", name, scope="col") for name in heads))
    body = (
        element(
            "tr", element("th", row[0], scope="row"), *(element("td", part) for part in row[1:])
        )
        for row in rows
    )
    return element("table", element("thead", head), element("tbody", *body), class_="plain")


def bars(rows: Iterable[tuple[str, int]], whole: int, kind: Callable[[str], str]) -> Markup:
    """Return one bar per row, as long as its share of `whole`; `kind` gives the CSS class of its colour."""
    return element(
        "ul",
        *(
            element(
                "li",
                element("span", name, class_="bar-label"),
                element("span", _filled(number, whole, f"bar-fill {kind(name)}"), class_="bar"),
                element("span", f"{number:,} of {whole:,}", class_="bar-count"),
                class_="bar-row",
            )
            for name, number in rows
        ),
        class_="bars",
    )


def _filled(number: int, whole: int, classes: str) -> Markup:
    return element("span", class_=classes, style=f"width: {number / (whole or 1):.1%}")


def histogram(name: str, values: Sequence[float]) -> Markup:
    """Return a histogram; a few whole numbers get one column each."""
    low, high = min(values), max(values)
    if high - low < _CLASSES and all(float(value).is_integer() for value in values):
        counts = Counter(int(value) - int(low) for value in values)
        classes = int(high - low) + 1
    else:
        width = (high - low) / _CLASSES
        counts = Counter(min(int((value - low) / width), _CLASSES - 1) for value in values)
        classes = _CLASSES
    most = max(counts.values())
    columns = (
        element(
            "span",
            element("span", style=f"height: {counts[at] / most:.0%}"),
            class_="column",
            title=f"{counts[at]:,}",
        )
        for at in range(classes)
    )
    ends = (f"{low:.3g}", f"mean {sum(values) / len(values):.3g}", f"{high:.3g}")
    return element(
        "figure",
        element("figcaption", spoken(name)),
        element("div", *columns, class_="columns"),
        element("div", *(element("span", end) for end in ends), class_="axis"),
        class_="histogram",
    )


def badge(name: str, kind: str = "") -> Markup:
    """Return a word in a coloured frame; `kind` is `good`, `bad`, or `verdict-…`."""
    return element("span", name, class_=f"badge {kind}".rstrip())


def judgment_parts(record: StoredRecord) -> list[Markup]:
    """Return a judgment's elements: verdict, conversation scores, and one table row per turn."""
    turns = [
        (
            str(turn["turn"]),
            *(_level(score) for score in turn["scores"].values()),
            Markup("").join(element("p", issue, class_="issue") for issue in turn["issues"]),
            badge("weakest turn", "bad") if turn["turn"] == record["weakest_turn"] else "",
        )
        for turn in record["per_turn"]
    ]
    names = [spoken(name) for turn in record["per_turn"][:1] for name in turn["scores"]]
    unscored = (
        f"turn {turn['turn']}: {spoken(turn['reason'])}" for turn in record["unscored_turns"]
    )
    return [
        *_whole(record),
        table(("turn", *names, "issues", ""), turns[:MAX_TURNS]),
        _left_out(len(turns) - MAX_TURNS, "turn"),
        *(_note(f"unscored: {turn}") for turn in unscored),
    ]


def _whole(record: StoredRecord) -> list[Markup]:
    """Return a judgment's elements about the whole dialogue."""
    levels = (
        element(
            "div",
            element("dt", spoken(name)),
            element("dd", _level(entry["score"]), " ", entry["note"]),
        )
        for name, entry in record["conversation_level"].items()
    )
    return [
        element(
            "p", badge(record["verdict"], f"verdict-{record['verdict']}"), record["decision_basis"]
        ),
        element("dl", *levels, class_="levels"),
    ]


def _level(score: Any) -> Markup:
    return element("span", str(score), class_=f"level level-{score}")


def dialogue_parts(
    dialogue: StoredRecord,
    turns: Sequence[tuple[int, int, int]],
    judgment: StoredRecord | None = None,
    adherence: StoredRecord | None = None,
) -> list[Markup]:
    """Return a dialogue's elements turn by turn, with the scores of each turn if there are any.

    Args:
        dialogue: the record as stored.
        turns: for each turn its number, first message and the index after its last.
        judgment, adherence: records as stored; unscored ones have a `reason` in place of scores.
    """
    messages = dialogue["messages"]
    scores, roles = _by_turn(judgment), _by_turn(adherence)
    parts = [element("h4", dialogue["id"])]
    if judgment is not None:
        parts += _whole(judgment) if "verdict" in judgment else [_unscored("judge", judgment)]
    if adherence is not None and "session_score" in adherence:
        parts.append(element("p", f"Role adherence {adherence['session_score']:.2f}."))
    elif adherence is not None:
        parts.append(_unscored("adherence", adherence))
    for name in ("role_definition", "scenario"):
        if dialogue.get(name):
            parts.append(
                element("details", element("summary", spoken(name)), _text_block(dialogue[name]))
            )
    first = turns[0][1] if turns else len(messages)
    parts += map(_message, messages[:first])
    for number, start, stop in turns[:MAX_TURNS]:
        turn, role = scores.get(number), roles.get(number)
        least = f"edge-{min(turn['scores'].values())}" if turn else ""
        heading = [element("span", f"Turn {number}"), *_turn_scores(turn, role)]
        if judgment is not None and judgment.get("weakest_turn") == number:
            heading.append(badge("weakest turn", "bad"))
        issues = (element("p", issue, class_="issue") for issue in (turn or {}).get("issues", ()))
        body = (*map(_message, messages[start:stop]), *issues)
        parts.append(
            element("section", element("h3", *heading), *body, class_=f"turn {least}".rstrip())
        )
    return [*parts, _left_out(len(turns) - MAX_TURNS, "turn")]


def _by_turn(record: StoredRecord | None) -> dict[int, StoredRecord]:
    return {turn["turn"]: turn for turn in (record or {}).get("per_turn", ())}


def _unscored(stage: str, record: StoredRecord) -> Markup:
    return _note(f"{stage}: unscored, {spoken(record['reason'])}")


def _turn_scores(turn: StoredRecord | None, role: StoredRecord | None) -> list[Markup]:
    scores = (turn or {}).get("scores", {}).items()
    parts = [
        element("span", f"{spoken(name)} ", _level(score), class_="score") for name, score in scores
    ]
    if role is not None and role.get("score") is not None:
        level = min(5, int(role["score"] * 5) + 1)
        figure = element("span", f"{role['score']:.2f}", class_=f"level level-{level}")
        parts.append(element("span", "role ", figure, class_="score"))
    return parts


def _message(message: StoredRecord) -> Markup:
    calls = (
        element(
            "details",
            element("summary", "calls ", element("code", call["name"])),
            _text_block(str(call["arguments"])),
            class_="call",
        )
        for call in message.get("tool_calls") or ()
    )
    who = element("div", message["role"], class_="who")
    return element(
        "div",
        who,
        _text_block(message.get("content") or ""),
        *calls,
        class_=f"message {message['role']}",
    )


def _text_block(text: str) -> Markup:
    block = element("div", text[:MAX_CHARACTERS], class_="text", dir="auto")
    return block + _left_out(len(text) - MAX_CHARACTERS, "character")


def _left_out(number: int, noun: str) -> Markup:
    return _note(f"and {plural(number, f'more {noun}')}") if number > 0 else Markup("")


def _note(text: str) -> Markup:
    return element("p", text, class_="note")
