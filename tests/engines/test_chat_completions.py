import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curate.engines.base import Completion, Request, Usage
from curate.engines.chat_completions import KEPT_TOKENS, chat_body, read_chat, read_error
from curate.engines.layout import Trunk

REQUEST = Request(Trunk("q"), max_tokens=5, labels=("yes", "no"))
PLAIN = Request(REQUEST.trunk, max_tokens=5)
CALL = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}


def make_reply(**message):
    return {
        "choices": [{"message": {"content": "text", **message}, "finish_reason": "stop"}],
        "usage": {
            "prompt_tokens": 10,
            "completion_tokens": 3,
            "prompt_tokens_details": {"cached_tokens": 8},
        },
    }


def test_a_reply_is_read_with_its_counts():
    completion = read_chat(make_reply(), PLAIN)
    assert completion == Completion(text="text", usage=Usage(10, 8, 3))


def test_an_echoed_prefill_is_taken_off():
    reply = make_reply(content="Answer: yes")
    assert read_chat(reply, PLAIN, echoed="Answer: ").text == "yes"
    assert read_chat(make_reply(content="yes"), PLAIN, echoed="Answer: ").text == "yes"


def test_tool_calls_and_null_content_are_read():
    call = {**CALL, "index": 0}
    completion = read_chat(make_reply(content=None, tool_calls=[call]), PLAIN)
    assert completion.finish == "tool_calls"
    assert completion.text == ""
    assert completion.tool_calls == (call,)


def with_tops(*tops, **sampled):
    reply = make_reply()
    listed = [{"token": token, "logprob": value} for token, value in tops]
    first = {"token": "yes", "logprob": -0.5, "top_logprobs": listed, **sampled}
    reply["choices"][0]["logprobs"] = {"content": [first]}
    return reply


@pytest.mark.parametrize(
    "logprob",
    ["nan", "-0.5", None, True, math.nan, math.inf, -math.inf, 0.5, 710.0, 1e308, [], {}],
)
def test_a_log_probability_that_is_none_is_not_believed(logprob):
    for reply in (
        with_tops(("yes", logprob), ("no", -1.0)),
        with_tops(("no", -1.0), logprob=logprob),
    ):
        fault = read_chat(reply, REQUEST).fault
        assert fault.kind == "malformed_reply"
        assert fault.is_transient


def test_the_least_likely_and_the_certain_are_log_probabilities():
    # What llama.cpp writes for a probability of 0, and what rounding makes of one of 1.
    reply = with_tops(("yes", 1e-6), ("no", -3.4028234663852886e38))
    assert read_chat(reply, REQUEST).first_token == (("yes", 1e-6), ("no", -3.4028234663852886e38))


@pytest.mark.parametrize(
    "logprobs", [..., None, {}, {"content": None}, {"content": []}, {"content": [None]}, [], "x"]
)
def test_log_probabilities_that_were_asked_for_and_are_missing_are_a_fault(logprobs):
    reply = make_reply()
    if logprobs is not ...:
        reply["choices"][0]["logprobs"] = logprobs
    assert read_chat(reply, REQUEST).fault.kind == "malformed_reply"
    assert read_chat(reply, PLAIN).fault is None


@pytest.mark.parametrize("tops", [None, []])
def test_a_first_token_without_its_alternatives_is_a_fault(tops):
    assert read_chat(with_tops(top_logprobs=tops), REQUEST).fault.kind == "malformed_reply"


def test_null_content_is_a_fault_where_text_was_asked_for():
    assert read_chat(make_reply(content=None), PLAIN).fault.kind == "malformed_reply"
    missing = make_reply()
    del missing["choices"][0]["message"]["content"]
    assert read_chat(missing, PLAIN).fault.kind == "malformed_reply"
    assert read_chat(make_reply(content=""), PLAIN).fault is None


def test_null_content_is_a_reply_of_a_model_that_thought_until_it_was_cut():
    cut = make_reply(content=None)
    cut["choices"][0]["finish_reason"] = "length"
    assert read_chat(cut, PLAIN).finish == "length"
    assert read_chat(make_reply(content=None, reasoning_content="Hm."), PLAIN).fault is None
    label = with_tops(("yes", -0.5))
    label["choices"][0]["message"]["content"] = None
    assert read_chat(label, REQUEST).first_token == (("yes", -0.5),)


@pytest.mark.parametrize(
    "calls",
    [[None], "f()", [[]], [{}], [{"function": None}], [{"function": {"name": None}}], [CALL, None]],
)
def test_tool_calls_that_are_none_are_a_fault(calls):
    assert read_chat(make_reply(tool_calls=calls), PLAIN).fault.kind == "malformed_reply"


@pytest.mark.parametrize("count", [1e20, -1, 10**12, "many", 1.5, []])
def test_token_counts_that_cannot_be_are_a_fault(count):
    for usage in (
        {"prompt_tokens": count},
        {"completion_tokens": count},
        {"prompt_tokens_details": {"cached_tokens": count}},
    ):
        reply = {**make_reply(), "usage": usage}
        assert read_chat(reply, PLAIN).fault.kind == "malformed_reply"


def test_counts_that_a_server_leaves_out_are_0():
    for usage in (None, {}, {"prompt_tokens": None, "prompt_tokens_details": None}):
        assert read_chat({**make_reply(), "usage": usage}, PLAIN).usage == Usage()


def test_first_tokens_keep_the_likely_ones_and_every_spelling_of_a_label():
    tops = [{"token": f"t{index}", "logprob": -1.0 - index} for index in range(50)]
    tops += [{"token": " Yes", "logprob": -90.0}, {"token": "other", "logprob": -91.0}]
    reply = make_reply()
    reply["choices"][0]["logprobs"] = {"content": [{**tops[0], "top_logprobs": tops}]}
    first = read_chat(reply, REQUEST).first_token
    assert len(first) == KEPT_TOKENS + 1
    assert first[0] == ("t0", -1.0)
    assert first[-1] == (" Yes", -90.0)


def test_tokens_that_read_the_same_are_all_kept():
    tops = [{"token": " ", "logprob": -0.2}, {"token": "yes", "logprob": -2.0}]
    tops += [{"token": " ", "logprob": -9.0}, {"token": "yes", "logprob": -8.0}]
    reply = make_reply()
    reply["choices"][0]["logprobs"] = {"content": [{**tops[0], "top_logprobs": tops}]}
    first = read_chat(reply, REQUEST).first_token
    assert first == ((" ", -0.2), ("yes", -2.0), ("yes", -8.0), (" ", -9.0))


def test_the_sampled_token_counts_with_its_own_figure_only_when_the_list_lacks_it():
    tops = [{"token": "a", "logprob": -0.5}]
    reply = make_reply()
    sampled = {"token": "a", "logprob": -7.0, "top_logprobs": tops}
    reply["choices"][0]["logprobs"] = {"content": [sampled]}
    assert read_chat(reply, REQUEST).first_token == (("a", -0.5),)
    sampled["token"] = "no"
    assert read_chat(reply, REQUEST).first_token == (("a", -0.5), ("no", -7.0))


@pytest.mark.parametrize(
    "reply",
    [
        None,
        [],
        {},
        {"choices": []},
        {"choices": [{}]},
        {"choices": [{"message": None}]},
        {"choices": [{"message": {"content": ["parts"]}}]},
        {"choices": [{"message": {"content": "x"}, "logprobs": {"content": [{}]}}]},
    ],
)
def test_what_is_no_chat_completion_is_a_malformed_reply(reply):
    assert read_chat(reply, REQUEST).fault.kind == "malformed_reply"


@given(
    st.recursive(
        st.none() | st.integers() | st.text(max_size=4),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["choices", "message", "content", "logprobs", "usage"]), inner
            )
        ),
    )
)
def test_no_body_makes_reading_raise(reply):
    assert isinstance(read_chat(reply, REQUEST), Completion)


def test_refusals_and_aborts_are_told_apart():
    assert read_chat(make_reply(refusal="I won't.", content=None), REQUEST).fault.kind == "refused"
    for reason, kind in (("content_filter", "refused"), ("abort", "server")):
        reply = make_reply()
        reply["choices"][0]["finish_reason"] = reason
        assert read_chat(reply, REQUEST).fault.kind == kind


OVERFLOWS = [
    (400, "This model's maximum context length is 8192 tokens. However, your messages resulted in"),
    (400, "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens"),
    (400, "The decoder prompt (length 5000) is longer than the maximum model length of 4096."),
    (
        400,
        "You passed 5000 input tokens and requested 9 output tokens. However, the model's "
        "context length is only 4096 tokens",
    ),
    (400, "The input (5000 tokens) is longer than the model's context length (4096 tokens)."),
    (400, "request (1236 tokens) exceeds the available context size (512 tokens)"),
    (422, "Input validation error: `inputs` must have less than 4096 tokens. Given: 5000"),
    (
        422,
        "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5 `inputs`",
    ),
    (400, "prompt is too long: 210000 tokens > 200000 maximum"),
    (500, "the request exceeds the available context size, try increasing it"),
]


@pytest.mark.parametrize(("status", "message"), OVERFLOWS)
def test_an_over_long_prompt_is_known_in_every_servers_words(status, message):
    assert read_error(status, message).fault.kind == "context_overflow"


@pytest.mark.parametrize(
    ("status", "message", "kind"),
    [
        (400, "Unknown field: grammar", "bad_request"),
        (400, "content_filter triggered", "refused"),
        (401, "bad key", "auth"),
        (402, "Insufficient Balance", "auth"),
        (403, "forbidden", "auth"),
        (403, "Your model requires moderation and your input was flagged", "refused"),
        (404, "no such model", "bad_request"),
        (408, "", "timeout"),
        (504, "upstream", "timeout"),
        (429, "slow down", "rate_limited"),
        (500, "oops", "server"),
        (503, "Loading model", "server"),
        (301, "moved", "bad_request"),
    ],
)
def test_statuses_are_mapped(status, message, kind):
    fault = read_error(status, message).fault
    assert fault.kind == kind
    assert str(status) in fault.detail


def test_an_empty_account_is_not_waited_for():
    assert read_error(429, "quota", code="insufficient_quota").fault.kind == "auth"


def test_details_are_bounded():
    assert len(read_error(400, "x" * 10_000).fault.detail) <= 500


def test_a_body_has_only_what_the_request_says():
    plain = Request(Trunk("q"), max_tokens=5)
    assert chat_body(plain) == {
        "messages": [{"role": "user", "content": "q"}],
        "max_tokens": 5,
        "temperature": 0.0,
    }
