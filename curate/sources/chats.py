"""Readers of shapes where one row is one conversation: lists of messages, or lists of question and answer.

Each reader takes a raw row and returns a `UnitResult` with one draft, or raises `UnreadableError`.
"""

from __future__ import annotations

from typing import Any

from curate.sources.fields import (
    SCENARIO_KEYS,
    as_texts,
    calls_of_actions,
    read_fields,
    read_id,
    with_system,
)
from curate.sources.messages import decoded, read_messages
from curate.sources.unit_result import (
    Draft,
    SourceRow,
    UnitResult,
    UnreadableError,
    checked,
    present,
    scalar_id,
    text_of,
    type_name,
)
from curate.wording import plural

LIST_KEYS = ("messages", "conversations", "conversation", "dialogue", "dialog", "turns")
USER_KEYS = ("user", "query", "question", "human", "input", "prompt")
REPLY_KEYS = ("bot", "assistant", "response", "answer", "gpt", "model", "output", "completion")
TRAJECTORY_KEYS = ("traj", "trajectory")
SINGLE_USER_KEYS = ("instruction", "prompt", "question", "query")
SINGLE_REPLY_KEYS = ("output", "response", "completion", "answer")


def draft_of(
    row: SourceRow,
    raw: Any,
    used: set[str],
    extra: dict[str, Any] | None = None,
    references: list[tuple[str, ...]] | None = None,
) -> Draft:
    """Return the draft of a dialogue from raw messages and the row's other fields.

    Args:
        raw: raw messages, normalised here; the row's `system` text is put before them.
        used: keys of the row that have been read already.
        extra: metadata to add.
        references: correct answers for each assistant turn.

    Raises:
        UnreadableError: any of the message reasons, `empty`, `no_assistant`, `media`.
    """
    raw = decoded(raw)
    if not isinstance(raw, list):
        raise UnreadableError("bad_type", f"the messages are {type_name(raw)}, a list was expected")
    raw, system = with_system(row, raw)
    messages, aligned = read_messages(raw)
    # UltraChat-200k repeats the first user message as `prompt`.
    first = next((message.content for message in messages if message.role == "user"), None)
    repeated = {"prompt"} if first is not None and row.get("prompt") == first else set()
    fields = read_fields(row, used | system | repeated, {**aligned, **(extra or {})})
    if references and any(references):
        fields["references"] = tuple(references)
    return Draft(checked(messages), fields)


def read_message_list(row: SourceRow) -> UnitResult:
    """Read `messages`, `sharegpt`, `conversation` and `card`: a list of messages under one of `LIST_KEYS`.

    Raises:
        UnreadableError: any of the message reasons, `missing_field` where the row has no such list.
    """
    key = present(row, LIST_KEYS)
    if key is None:
        raise UnreadableError("missing_field", f"none of {', '.join(LIST_KEYS)}")
    raw = decoded(row[key])
    if key == "conversation" and _are_exchanges(raw):
        return _read_exchanges(row, raw, {key})
    return UnitResult(read_id(row)[0], (draft_of(row, raw, {key}),))


def _are_exchanges(raw: Any) -> bool:
    return (
        isinstance(raw, list)
        and bool(raw)
        and isinstance(raw[0], dict)
        and "role" not in raw[0]
        and present(raw[0], USER_KEYS) is not None
    )


def _read_exchanges(row: SourceRow, exchanges: Any, used: set[str]) -> UnitResult:
    """Read a list of questions and answers, objects or pairs; other keys of the objects are kept per turn."""
    if not isinstance(exchanges, list):
        raise UnreadableError(
            "bad_type", f"the turns are {type_name(exchanges)}, a list was expected"
        )
    raw: list[dict[str, Any]] = []
    references: list[tuple[str, ...]] = []
    per_turn: dict[str, list[Any]] = {}
    for index, exchange in enumerate(exchanges):
        question, reply, other_fields = _exchange(exchange, index)
        raw.extend(_exchange_messages(question, reply))
        truth = as_texts(other_fields.pop("ground_truth_assistant", None))
        if reply is not None:
            references.append(truth or ())
        for name, value in other_fields.items():
            per_turn.setdefault(name, [None] * len(exchanges))[index] = value
    extra = {"per_turn": per_turn} if per_turn else None
    return UnitResult(read_id(row)[0], (draft_of(row, raw, used, extra, references),))


def _exchange(exchange: Any, index: int) -> tuple[str | None, str | None, dict[str, Any]]:
    where = f"exchange {index + 1}"
    if isinstance(exchange, list | tuple):
        if len(exchange) != 2:
            raise UnreadableError(
                "bad_type", f"{where} has {plural(len(exchange), 'item')}, two were expected"
            )
        question, reply = exchange
        return _maybe(question, where), _maybe(reply, where), {}
    if not isinstance(exchange, dict):
        raise UnreadableError("bad_type", f"{where} is {type_name(exchange)}")
    user_key, reply_key = present(exchange, USER_KEYS), present(exchange, REPLY_KEYS)
    if user_key is None and reply_key is None:
        raise UnreadableError("missing_field", f"{where} has neither a question nor an answer")
    other_fields = {
        key: value
        for key, value in exchange.items()
        if key not in (user_key, reply_key) and value is not None
    }
    question = text_of(exchange[user_key], where) if user_key else None
    return question, text_of(exchange[reply_key], where) if reply_key else None, other_fields


def _maybe(value: Any, where: str) -> str | None:
    return None if value is None else text_of(value, where)


def _exchange_messages(question: Any, reply: Any) -> list[dict[str, Any]]:
    both = (("user", question), ("assistant", reply))
    return [{"role": role, "content": text} for role, text in both if text is not None]


def read_history(row: SourceRow) -> UnitResult:
    """Read `history`: [{user, bot}] (MT-Bench-101) or [[question, answer]] with `query` and `response`."""
    history = decoded(row.get("history"))
    if history is None and row.get("query") is None:
        raise UnreadableError("missing_field", "no 'history'")
    if row.get("query") is None:
        return _read_exchanges(row, history, {"history"})
    if not isinstance(history, list | None):
        raise UnreadableError("bad_type", f"'history' is {type_name(history)}, a list was expected")
    reply = present(row, ("response", "output"))
    last = [row["query"], row[reply] if reply else None]
    used = {"history", "query", *([reply] if reply else [])}
    return _read_exchanges(row, [*(history or []), last], used)


def read_gaussia(row: SourceRow) -> UnitResult:
    """Read Gaussia sessions, and flat rows of one reply: {role, assistant, ground_truth_assistant, label}.

    A flat row without a query is an assistant message before any user message (turn 0). A session's
    `context` is its scenario.
    """
    if row.get("conversation") is not None:
        if isinstance(row.get("context"), str) and present(row, SCENARIO_KEYS) is None:
            row = {("scenario" if key == "context" else key): row[key] for key in row}
        return _read_exchanges(row, decoded(row["conversation"]), {"conversation"})
    if row.get("assistant") is None:
        raise UnreadableError("missing_field", "neither 'conversation' nor 'assistant'")
    truth = as_texts(row.get("ground_truth_assistant"))
    used = {
        "role",
        "assistant",
        "query",
        *(["ground_truth_assistant"] if truth is not None else []),
    }
    question, reply = _maybe(row.get("query"), "query"), text_of(row["assistant"], "assistant")
    dialogue = draft_of(row, _exchange_messages(question, reply), used, references=[truth or ()])
    role = text_of(row.get("role"), "role")
    if role.strip():
        dialogue.fields["role_definition"] = role
    return UnitResult(read_id(row)[0], (dialogue,))


def read_ultrachat(row: SourceRow) -> UnitResult:
    """Read `data`: texts that alternate between user and assistant, or `messages` beside `prompt`."""
    if row.get("data") is None and row.get("messages") is not None:
        return read_message_list(row)
    texts = decoded(row.get("data"))
    if not isinstance(texts, list):
        raise UnreadableError("missing_field", "no list under 'data'")
    raw = [
        {"role": "assistant" if index % 2 else "user", "content": text_of(text, f"data[{index}]")}
        for index, text in enumerate(texts)
    ]
    return UnitResult(read_id(row)[0], (draft_of(row, raw, {"data"}),))


def read_alpaca(row: SourceRow) -> UnitResult:
    """Read one exchange: `instruction`, `input`, `output`, with earlier ones in `history`; or prompt and completion.

    `input` follows the instruction on a new line.
    """
    user_key, reply_key = present(row, SINGLE_USER_KEYS), present(row, SINGLE_REPLY_KEYS)
    if user_key is None or reply_key is None:
        missing = SINGLE_USER_KEYS if user_key is None else SINGLE_REPLY_KEYS
        raise UnreadableError("missing_field", f"none of {', '.join(missing)}")
    used = {user_key, reply_key}
    raw: list[Any] = []
    question = row[user_key]
    if user_key == "instruction":
        history = decoded(row.get("history")) or []
        if not isinstance(history, list):
            raise UnreadableError("bad_type", f"'history' is {type_name(history)}")
        for index, pair in enumerate(history):
            raw += _exchange_messages(*_exchange(pair, index)[:2])
        used |= {"input", "history"}
        context = text_of(row.get("input"), "input")
        question = f"{text_of(question, user_key)}\n{context}" if context else question
    raw += as_raw(question, "user", user_key) + as_raw(row[reply_key], "assistant", reply_key)
    return UnitResult(read_id(row)[0], (draft_of(row, raw, used),))


def as_raw(value: Any, role: str, where: str) -> list[Any]:
    """Return the raw messages of a field that contains one text, one message, or a list of messages (also as JSON text).

    Raises:
        UnreadableError: `missing_field` for null, `bad_type` for anything else.
    """
    if value is None:
        raise UnreadableError("missing_field", f"{where} is null")
    value = decoded(value) if isinstance(value, str) and value.startswith('[{"') else value
    if isinstance(value, list):
        return value
    if isinstance(value, dict):
        return [value]
    return [{"role": role, "content": text_of(value, where)}]


def read_trajectory(row: SourceRow) -> UnitResult:
    """Read `traj` with `reward` (tau-bench): the id is unique per trial, the group is the task.

    The task's actions are the expected tools; its instruction to the simulated user, and its outputs, which the
    assistant must tell the user, are the expected outcomes.
    """
    key = present(row, TRAJECTORY_KEYS)
    if key is None:
        raise UnreadableError("missing_field", f"none of {', '.join(TRAJECTORY_KEYS)}")
    dialogue = draft_of(row, row[key], {key})
    info = row.get("info")
    task = info.get("task") if isinstance(info, dict) else None
    if isinstance(task, dict):
        dialogue.fields["expected_tools"] = calls_of_actions(task.get("actions"))
        dialogue.fields["expected_outcomes"] = _outcomes(task)
    task_id, trial = scalar_id(row.get("task_id")), scalar_id(row.get("trial"))
    identifier = read_id(row)[0]
    if task_id is not None:
        dialogue.fields.setdefault("group", task_id)
        if identifier is None and trial is not None:
            identifier = f"task-{task_id}-trial-{trial}"
    return UnitResult(identifier, (dialogue,))


def _outcomes(task: dict[str, Any]) -> tuple[str, ...]:
    instruction = task.get("instruction")
    outputs = as_texts(task.get("outputs")) or ()
    goal = (f"What the user was told to do: {instruction}",) if isinstance(instruction, str) else ()
    return (*goal, *(f"The assistant tells the user: {output}" for output in outputs))
