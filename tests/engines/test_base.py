import hashlib
from types import MappingProxyType

import orjson
from hypothesis import given
from hypothesis import strategies as st

from curate.engines.base import EngineIdentity, Request, hash_texts, request_keys

texts = st.builds(
    lambda start, end: start + end,
    st.sampled_from([b"", b"a" * 255, b"ab" * 700]),
    st.binary(max_size=300),
)


@given(st.lists(texts, max_size=6))
def test_a_shared_start_is_hashed_once_and_changes_no_hash(given_texts):
    plain = [hashlib.blake2b(text, digest_size=16).hexdigest() for text in given_texts]
    assert hash_texts(given_texts) == plain


def test_keys_of_siblings_are_those_of_each_request():
    identity = EngineIdentity("engine", "model")
    requests = [
        Request(messages=({"role": "user", "content": "trunk " * 500 + end},), max_tokens=1)
        for end in ("one?", "two?", "two?", "three?")
    ]
    keys = request_keys(requests, identity)
    assert keys == [request.key(identity) for request in requests]
    assert len(set(keys)) == 3
    assert request_keys([], identity) == []


def test_a_key_depends_neither_on_the_order_of_a_messages_fields_nor_on_its_type():
    identity = EngineIdentity("engine", "model")
    one = Request(messages=({"role": "user", "content": "a"},), max_tokens=1)
    other = Request(messages=({"content": "a", "role": "user"},), max_tokens=1)
    of_another_type = Request(messages=(MappingProxyType(one.messages[0]),), max_tokens=1)
    assert one.key(identity) == other.key(identity) == of_another_type.key(identity)
    assert orjson.loads(one.canonical(identity))[0] == identity.key
