import random

import jsonschema
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curate.engines.base import Completion, Fault
from curate.engines.structured import BadReply, read_object, strict
from tests.servers import make_instance

SCHEMA = {
    "type": "object",
    "properties": {
        "score": {"type": "integer", "minimum": 1, "maximum": 5},
        "note": {"type": "string"},
    },
    "required": ["score", "note"],
    "additionalProperties": False,
}
GOOD = '{"score": 4, "note": "a {brace} in text"}'


def read(text: str, finish="stop"):
    return read_object(Completion(text=text, finish=finish), SCHEMA)


@pytest.mark.parametrize(
    "text",
    [
        GOOD,
        f"```json\n{GOOD}\n```",
        f"Here is my judgment:\n{GOOD}\nI hope that helps {{really}}.",
        f"  \n{GOOD}\n",
    ],
)
def test_one_object_is_found_whatever_stands_around_it(text):
    assert read(text) == {"score": 4, "note": "a {brace} in text"}


@pytest.mark.parametrize(
    ("text", "reason", "says"),
    [
        ("", "not_json", "no JSON object"),
        ("I cannot do that.", "not_json", "no JSON object"),
        ("[1, 2]", "not_json", "no JSON object"),
        ('{"score": 4, "note": ', "not_json", "broken"),
        ('{"score": 4, "score": 5, "note": ""}', "not_json", "'score' stands twice"),
        (GOOD + GOOD, "not_json", "more than one"),
        ('{"score": NaN, "note": ""}', "not_json", "NaN"),
        ('{"score": 4, "note": "\\ud800"}', "not_json", "broken"),
        ('{"a":' * 20_000, "not_json", "JSON"),
        ('{"score": 9, "note": ""}', "schema", "score"),
        ('{"score": "4", "note": ""}', "schema", "score"),
        ('{"score": 4}', "schema", "note"),
        ('{"score": 4, "note": "", "more": 1}', "schema", "more"),
    ],
)
def test_anything_else_is_a_bad_reply_with_its_reason(text, reason, says):
    bad = read(text)
    assert isinstance(bad, BadReply)
    assert bad.reason == reason
    assert says in bad.detail
    assert len(bad.detail) <= 300


def test_a_cut_reply_is_cut_even_when_it_parses():
    assert read(GOOD, finish="length").reason == "cut"


def test_an_inner_object_never_stands_for_a_broken_outer_one():
    assert isinstance(read('{"turns": {"score": 4, "note": "x"} oops'), BadReply)


def test_a_fault_is_not_a_reply():
    with pytest.raises(ValueError, match="timeout"):
        read_object(Completion(finish="error", fault=Fault("timeout")), SCHEMA)


@given(st.text(max_size=60))
def test_reading_never_raises(text):
    assert isinstance(read(text), (dict, BadReply))


def test_strict_closes_objects_all_the_way_down_and_keeps_maps_open():
    loose = {
        "type": "object",
        "properties": {
            "title": {"type": "string", "default": "x"},
            "turns": {"type": "array", "items": {"type": "object", "properties": {"a": {}}}},
            "either": {"anyOf": [{"type": "object", "properties": {"b": {}}}, {"type": "null"}]},
            "map": {"type": "object", "additionalProperties": {"type": "integer"}},
            "ref": {"$ref": "#/$defs/x"},
        },
        "$defs": {"x": {"type": "object", "properties": {"c": {}}, "required": []}},
    }
    before = orjson.dumps(loose)
    closed = strict(loose)
    assert orjson.dumps(loose) == before
    assert closed["required"] == ["title", "turns", "either", "map", "ref"]
    assert closed["properties"]["title"] == {"type": "string"}
    assert closed["properties"]["turns"]["items"]["additionalProperties"] is False
    assert closed["properties"]["either"]["anyOf"][0]["required"] == ["b"]
    assert closed["properties"]["map"]["additionalProperties"] == {"type": "integer"}
    assert closed["$defs"]["x"]["required"] == ["c"]
    assert strict(closed) == closed


@given(st.integers())
def test_the_test_servers_instances_are_valid(seed):
    schema = {
        "type": "object",
        "properties": {
            "turn_1": SCHEMA,
            "mark": {"anyOf": [{"type": "integer", "minimum": 1, "maximum": 5}, {"const": "n/a"}]},
            "weakest": {"enum": [1, 2, None]},
            "list": {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 2},
            "maybe": {"type": ["string", "null"]},
            "ref": {"$ref": "#/$defs/pick"},
        },
        "required": ["turn_1", "mark", "weakest", "list", "maybe", "ref"],
        "additionalProperties": False,
        "$defs": {"pick": {"enum": ["x", "y"]}},
    }
    jsonschema.validate(make_instance(schema, random.Random(seed)), schema)
