import pytest
from hypothesis import given
from hypothesis import strategies as st

from curate.engines.base import Completion, Request, Usage
from curate.engines.wire import KEPT_TOKENS, chat_body, read_chat, read_error

REQUEST = Request(messages=({"role": "user", "content": "q"},), max_tokens=5, labels=("yes", "no"))


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
    completion = read_chat(make_reply(), REQUEST)
    assert completion == Completion(text="text", usage=Usage(10, 8, 3))


def test_an_echoed_prefill_is_taken_off():
    reply = make_reply(content="Answer: yes")
    assert read_chat(reply, REQUEST, echoed="Answer: ").text == "yes"
    assert read_chat(make_reply(content="yes"), REQUEST, echoed="Answer: ").text == "yes"


def test_tool_calls_and_null_content_are_read():
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    completion = read_chat(make_reply(content=None, tool_calls=[call]), REQUEST)
    assert completion.finish == "tool_calls"
    assert completion.text == ""
    assert completion.tool_calls == (call,)


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
def test_what_is_no_chat_completion_is_the_servers_fault(reply):
    assert read_chat(reply, REQUEST).fault.kind == "server"


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
    assert read_chat(make_reply(refusal="I won't."), REQUEST).fault.kind == "refused"
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
    plain = Request(messages=({"role": "user", "content": "q"},), max_tokens=5)
    assert chat_body(plain) == {
        "messages": [{"role": "user", "content": "q"}],
        "max_tokens": 5,
        "temperature": 0.0,
    }
