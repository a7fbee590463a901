import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curate.engines.base import Completion
from curate.engines.label_mass import logsumexp, read_label_mass


@given(st.lists(st.floats(-30, 0), min_size=1, max_size=20))
def test_logsumexp_equals_the_naive_sum_where_that_one_works(values):
    assert logsumexp(values) == pytest.approx(math.log(sum(map(math.exp, values))), abs=1e-9)


def test_logsumexp_survives_what_underflows_naively():
    assert sum(math.exp(value) for value in (-1000.0, -1000.0)) == 0.0
    assert logsumexp([-1000.0, -1000.0]) == pytest.approx(-1000 + math.log(2))
    assert logsumexp([]) == -math.inf


def test_labels_with_vanishing_mass_still_compare():
    read = read_label_mass(Completion(first_token=(("4", -900.0), ("5", -901.0))), ["4", "5"])
    assert read.coverage == 0.0
    assert read.best == "4"
    assert read.probabilities["4"] == pytest.approx(1 / (1 + math.exp(-1)))


def test_spellings_of_a_label_are_added_up():
    half, quarter, eighth = math.log(0.5), math.log(0.25), math.log(0.125)
    completion = Completion(first_token=((" yes", half), ("Yes", quarter), ("No", eighth)))
    read = read_label_mass(completion, ["yes", "no"], ignore_case=True)
    assert read.probabilities == pytest.approx({"yes": 0.75 / 0.875, "no": 0.125 / 0.875})
    assert read.coverage == pytest.approx(0.875)


def test_case_tells_letters_apart_unless_told_otherwise():
    completion = Completion(first_token=(("a", -0.1), ("A", -3.0)))
    assert read_label_mass(completion, ["A"]).logprobs == {"A": pytest.approx(-3.0)}


def test_a_label_that_was_not_seen_is_absent_and_never_zero():
    read = read_label_mass(Completion(first_token=(("The", -0.1),)), ["1", "2"])
    assert read.logprobs == {}
    assert read.probabilities == {}
    assert read.best is None
    assert read.coverage == 0.0


def test_minus_infinity_is_not_seen():
    assert read_label_mass(Completion(first_token=(("1", -math.inf),)), ["1"]).best is None


def test_ties_go_to_the_label_asked_for_first():
    completion = Completion(first_token=(("2", -1.0), ("1", -1.0)))
    assert read_label_mass(completion, ["1", "2"]).best == "1"


@given(st.dictionaries(st.sampled_from([*"12345", " 3", "x"]), st.floats(-50, 0), max_size=7))
def test_probabilities_are_a_distribution_and_coverage_a_share(tokens):
    read = read_label_mass(Completion(first_token=tuple(tokens.items())), [*"12345"])
    assert 0.0 <= read.coverage <= 1.0
    assert not read.probabilities or sum(read.probabilities.values()) == pytest.approx(1.0)
