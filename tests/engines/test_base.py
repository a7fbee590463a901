import hashlib
from types import MappingProxyType

import orjson
from hypothesis import given
from hypothesis import strategies as st

from curate.engines.base import EngineIdentity, Request
from curate.engines.layout import Chat, Trunk

IDENTITY = EngineIdentity("engine", "model", detail=(("a", "b"),))
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)


def key_of_whole(request: Request, identity: EngineIdentity) -> str:
    """The key as the hash of the request written out, so that replies kept by it are found again."""
    parts = [request.max_tokens, request.prefill, request.temperature, request.top_p]
    parts += [request.schema, request.labels, request.sample, request.tools]
    text = orjson.dumps([identity.key, request.messages, *parts], option=orjson.OPT_SORT_KEYS)
    return hashlib.blake2b(text, digest_size=16).hexdigest()


@given(TEXTS, st.lists(TEXTS, min_size=1, max_size=4), TEXTS)
def test_keys_of_siblings_are_those_of_each_request_written_out(text, questions, prefill):
    trunk = Trunk(text)
    for question in questions:
        request = Request(
            trunk, question, max_tokens=3, prefill=prefill, labels=("1",), schema={"b": 1, "a": 2}
        )
        for identity in (IDENTITY, EngineIdentity("engine", "another")):
            assert request.key(identity) == key_of_whole(request, identity)


def test_a_key_depends_neither_on_the_order_of_a_messages_fields_nor_on_its_type():
    one = Request(Trunk("a"), "?", max_tokens=1)
    other = Request(Chat(({"content": "a?", "role": "user"},)), max_tokens=1)
    of_another_type = Request(Chat((MappingProxyType(one.messages[0]),)), max_tokens=1)
    assert one.key(IDENTITY) == other.key(IDENTITY) == of_another_type.key(IDENTITY)
    assert one.key(IDENTITY) == key_of_whole(one, IDENTITY)


def test_draws_differ_by_prompt_and_by_sample_and_repeat():
    asked = [
        Request(Trunk(text), "?", max_tokens=1, temperature=1.0, sample=sample)
        for text in ("one dialogue", "another")
        for sample in range(3)
    ]
    seeds = [request.seed for request in asked]
    assert len(set(seeds)) == len(asked)
    assert all(0 <= seed < 2**31 for seed in seeds)
    chat = Chat(({"content": "one dialogue?", "role": "user"},))
    assert Request(chat, max_tokens=1, temperature=1.0).seed == seeds[0]
