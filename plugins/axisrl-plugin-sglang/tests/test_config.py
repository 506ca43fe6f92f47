"""Tests of axisrl_sglang.config."""

import pytest

from axisrl_sglang.config import OWNED, EngineConfig


@pytest.mark.parametrize("name", sorted(OWNED))
def test_what_the_engine_sets_itself_cannot_be_set_beside_it(name):
    with pytest.raises(ValueError, match=f"sglang.{name} cannot be set: "):
        EngineConfig(sglang={name: 1})


@pytest.mark.parametrize(
    "options",
    [{"max_context": 1}, {"start_timeout_s": 0}, {"stop_timeout_s": -1}, {"answer_timeout_s": 0}],
)
def test_sizes_that_cannot_work_are_refused(options):
    (name,) = options
    with pytest.raises(ValueError, match=name):
        EngineConfig(**options)


def test_speculation_is_refused_with_seeds_which_sglang_would_not_keep():
    ngram = {"speculative_algorithm": "NGRAM"}
    with pytest.raises(ValueError, match="set seeded to false"):
        EngineConfig(sglang=ngram)
    assert EngineConfig(sglang=ngram, seeded=False).sglang == ngram


@pytest.mark.parametrize("kind", ["single", "acc"])
def test_thresholds_that_accept_what_the_model_would_not_have_drawn_are_refused(kind):
    name = f"speculative_accept_threshold_{kind}"
    with pytest.raises(ValueError, match=f"sglang.{name} 0.9 must be 1"):
        EngineConfig(sglang={name: 0.9})
    EngineConfig(sglang={name: 1.0})


def test_any_other_argument_is_passed_on():
    assert EngineConfig(sglang={"tp_size": 2}).sglang == {"tp_size": 2}
