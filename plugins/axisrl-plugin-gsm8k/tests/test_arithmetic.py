"""gsm8k/arithmetic: same seed same tasks, and nothing held out is ever trained on."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from axisrl.errors import ConfigError
from axisrl_gsm8k.answers import parse_number
from axisrl_gsm8k.arithmetic import Arithmetic, is_held_out
from axisrl_gsm8k.config import ArithmeticConfig

SUMS = {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 2}


def tasks_of(context, **options):
    config = ArithmeticConfig(**{"parameters": SUMS, "size": 40, **options})
    return list(Arithmetic(config, context))


def questions(tasks):
    return {task.data["question"] for task in tasks}


def test_answers_are_in_gsm8ks_format_and_right(context):
    for task in tasks_of(context, wording="expression"):
        left, operator, right = task.data["question"].split()
        value = int(left) + int(right) if operator == "+" else int(left) - int(right)
        assert task.data["answer"] == f"#### {value}"


def test_the_same_seed_gives_the_same_tasks_and_a_smaller_set_is_a_prefix(context):
    whole = tasks_of(context, size=40)
    assert tasks_of(context, size=40) == whole
    assert tasks_of(context, size=15) == whole[:15]


def test_neighbouring_seeds_are_not_shifted_copies_of_each_other(context):
    hard = {**SUMS, "min_digits": 6, "max_digits": 6}
    first = questions(tasks_of(context, seed=0, parameters=hard))
    assert not first & questions(tasks_of(context, seed=1, parameters=hard))


def test_questions_and_ids_are_distinct(context):
    tasks = tasks_of(context, size=200)
    assert len(questions(tasks)) == len({task.id for task in tasks}) == 200


@pytest.mark.parametrize("seeds", [(0, 0), (0, 1), (7, 3)])
@pytest.mark.parametrize("sizes", [(60, 20), (20, 60)])
def test_train_and_held_out_never_overlap_whatever_the_seeds_and_sizes(context, seeds, sizes):
    train = tasks_of(context, split="train", seed=seeds[0], size=sizes[0])
    held_out = tasks_of(context, split="held_out", seed=seeds[1], size=sizes[1])
    assert not questions(train) & questions(held_out)


def test_an_exhausted_space_still_does_not_overlap(context):
    digits = {**SUMS, "max_digits": 1}
    with pytest.raises(ConfigError) as problem:
        tasks_of(context, parameters=digits, size=500)
    most = int(problem.value.fix.split()[3])
    train = tasks_of(context, parameters=digits, size=most)
    held_out = tasks_of(context, parameters=digits, size=200 - most, split="held_out")
    assert len(questions(train) | questions(held_out)) == 200


@given(st.permutations(["12", "+", "7", "-", "30"]))
def test_a_reordered_question_is_on_the_same_side(words):
    assert is_held_out(" ".join(words)) == is_held_out("12 + 7 - 30")


def test_about_a_fifth_is_held_out():
    share = sum(is_held_out(f"{a} + {b}") for a in range(60) for b in range(a, 60)) / 1830
    assert 0.15 < share < 0.25


@pytest.mark.parametrize("generator", ["gsm_symbolic", "basic_arithmetic", "products"])
def test_other_generators_give_numeric_answers(context, generator):
    for task in tasks_of(context, generator=generator, parameters={}, size=10):
        assert parse_number(task.data["answer"].removeprefix("#### ")) is not None


def test_an_unknown_generator_suggests_the_nearest(context):
    with pytest.raises(ConfigError, match=r"'chain_sums'(.|\n)*did you mean chain_sum"):
        tasks_of(context, generator="chain_sums")


def test_an_unknown_parameter_lists_the_known_ones(context):
    with pytest.raises(ConfigError, match=r"no parameter 'digits'(.|\n)*max_digits"):
        tasks_of(context, parameters={"digits": 2})


def test_parameters_the_generator_refuses_are_a_config_error(context):
    with pytest.raises(ConfigError, match="max_terms must be >= min_terms"):
        tasks_of(context, parameters={"min_terms": 3, "max_terms": 2})


def test_a_generator_whose_answers_are_no_numbers_is_refused(context):
    with pytest.raises(ConfigError, match="answers that are not numbers"):
        tasks_of(context, generator="spell_backward", parameters={}, size=5)


def test_a_bare_expression_is_refused_where_there_is_none(context):
    with pytest.raises(ConfigError, match="gsm_symbolic has no bare expression"):
        tasks_of(context, generator="gsm_symbolic", parameters={}, wording="expression")


@pytest.mark.parametrize("options", [{"size": 0}, {"parameters": {"seed": 3}}])
def test_options_that_would_do_nothing_or_cannot_work_are_refused(options):
    with pytest.raises(ValueError, match=r"size|seed"):
        ArithmeticConfig(**options)
