"""How dialogues, judgments and runs show themselves in a notebook: static HTML in the style of the report's page.

There is no script in it, and nothing that comes from data is markup. What is too long to be looked at in a cell is cut,
and it says so; `curate report` shows all of it.
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

MAX_TURNS: Final = 30
MAX_CHARACTERS: Final = 3_000
_CLASSES: Final = 12

Record = Mapping[str, Any]


def element(tag: str, *children: str, **attributes: str) -> Markup:
    """An element; children are text, unless they are elements. `class_` stands for `class`."""
    inside = Markup("").join(_text(child) for child in children)
    names = {name.rstrip("_").replace("_", "-"): value for name, value in attributes.items()}
    given = Markup("").join(Markup(' {}="{}"').format(*item) for item in names.items())
    return Markup("<{}{}>{}</{}>").format(Markup(tag), given, inside, Markup(tag))


def _text(child: str) -> Markup:
    return child if isinstance(child, Markup) else escape(visible(child))


def cell(*children: str) -> str:
    """What a notebook's cell shows: the children, with the style that they need."""
    return str(element("div", element("style", Markup(_style())), *children, class_="curate"))


@cache
def _style() -> str:
    # The page's style holds for what is inside, its variables too.
    style = (files("curate.report") / "built" / "report.css").read_text().replace(":root", "&")
    own = "background: var(--ground); color: var(--ink); padding: .6em 1em; overflow-wrap: anywhere"
    # A browser that saves or prints a notebook is to have the turns, too, that nobody has scrolled to.
    return f".curate {{ {style} & {{ {own} }} .turn {{ content-visibility: visible }} }}"


@contextmanager
def progress_bars() -> Iterator[Callable[[str, int, int], None]]:
    """Give what shows how far each stage is, by tqdm, in the cell that is run; outside of a notebook nothing is shown."""
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
    """A key of a record in words."""
    return name.replace("_", " ")


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Markup:
    """A table whose rows each begin with their head."""
    head = element("tr", *(element("th", name, scope="col") for name in heads))
    body = (
        element(
            "tr", element("th", row[0], scope="row"), *(element("td", part) for part in row[1:])
        )
        for row in rows
    )
    return element("table", element("thead", head), element("tbody", *body), class_="plain")


def bars(rows: Iterable[tuple[str, int]], whole: int, kind: Callable[[str], str]) -> Markup:
    """A bar a row, as long as its share of the whole; `kind` gives the class of its colour."""
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
    """How values are distributed: a column a class, whole numbers one each where they are few."""
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
    """A word in a coloured frame: `good`, `bad`, or `verdict-…`."""
    return element("span", name, class_=f"badge {kind}".rstrip())


def judgment_parts(record: Record) -> list[Markup]:
    """A judgment: verdict, levels of the conversation, and a row a turn."""
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
    left_out = (
        f"turn {turn['turn']}: {spoken(turn['reason'])}" for turn in record["unscored_turns"]
    )
    return [
        *_whole(record),
        table(("turn", *names, "issues", ""), turns[:MAX_TURNS]),
        *_left_out(len(turns) - MAX_TURNS, "turn"),
        *(element("p", f"unscored: {said}", class_="note") for said in left_out),
    ]


def _whole(record: Record) -> list[Markup]:
    """What a judgment says of the dialogue as a whole."""
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
    dialogue: Record,
    turns: Sequence[tuple[int, int, int]],
    judgment: Record | None = None,
    adherence: Record | None = None,
) -> list[Markup]:
    """A dialogue turn by turn, with the scores of each turn where there are some.

    Args:
        dialogue: as its record is stored.
        turns: number, first message and the one after the last of each.
        judgment, adherence: as they are stored; those that are unscored have a `reason` in place of scores.
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
                element("details", element("summary", spoken(name)), _said(dialogue[name]))
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
    return [*parts, *_left_out(len(turns) - MAX_TURNS, "turn")]


def _by_turn(record: Record | None) -> dict[int, Record]:
    return {turn["turn"]: turn for turn in (record or {}).get("per_turn", ())}


def _unscored(stage: str, record: Record) -> Markup:
    return element("p", f"{stage}: unscored, {spoken(record['reason'])}", class_="note")


def _turn_scores(turn: Record | None, role: Record | None) -> list[Markup]:
    scores = (turn or {}).get("scores", {}).items()
    shown = [
        element("span", f"{spoken(name)} ", _level(score), class_="score") for name, score in scores
    ]
    if role is not None and role.get("score") is not None:
        level = min(5, int(role["score"] * 5) + 1)
        figure = element("span", f"{role['score']:.2f}", class_=f"level level-{level}")
        shown.append(element("span", "role ", figure, class_="score"))
    return shown


def _message(message: Record) -> Markup:
    calls = (
        element(
            "details",
            element("summary", "calls ", element("code", call["name"])),
            _said(str(call["arguments"])),
            class_="call",
        )
        for call in message.get("tool_calls") or ()
    )
    who = element("div", message["role"], class_="who")
    return element(
        "div", who, _said(message.get("content") or ""), *calls, class_=f"message {message['role']}"
    )


def _said(text: str) -> Markup:
    cut = len(text) - MAX_CHARACTERS
    said = element("div", text[:MAX_CHARACTERS], class_="text", dir="auto")
    return said if cut <= 0 else said + element("p", f"and {cut:,} more characters", class_="note")


def _left_out(number: int, what: str) -> list[Markup]:
    if number <= 0:
        return []
    return [element("p", f"and {number:,} more {what}{'s' if number > 1 else ''}", class_="note")]
