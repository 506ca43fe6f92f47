import dataclasses

import pytest

from axisrl.builtin.config import SumRewardConfig
from axisrl.builtin.sum_reward import SumReward
from axisrl.errors import ConfigError
from axisrl.protocols.verifier import Rollout
from axisrl.trace import Trace
from axisrl.types import BuildContext, Outcome, Task, Verdict


def reward(services=None, **options):
    context = BuildContext(run_dir=".", services=services or {})
    return SumReward(SumRewardConfig(**options), context)


def rollout(*turn_parts, **env_parts):
    return Rollout(
        id="r",
        task=Task(id="t", data={}),
        member=0,
        outcome=Outcome.COMPLETED,
        messages=(),
        trace=Trace(),
        turns=len(turn_parts) or 1,
        turn_parts=turn_parts or (env_parts,),
    )


def test_unnamed_verifiers_and_env_parts_count_once():
    result = reward()(rollout(format=0.25), {"math": Verdict(score=1.0)})
    assert result.total == 1.25
    assert result.parts == {"math": 1.0, "env.format": 0.25}


def test_weights_scale_scores_and_parts_and_parts_add_up_to_the_total():
    scored = reward(weights={"math": 2.0}, env_weights={"format": -0.5})(
        rollout(format=0.5), {"math": Verdict(score=0.75), "style": Verdict(score=0.1)}
    )
    assert scored.parts == {"math": 1.5, "style": 0.1, "env.format": -0.25}
    assert scored.total == pytest.approx(sum(scored.parts.values()))


def test_reward_zero_is_a_reward():
    result = reward()(rollout(), {"math": Verdict(score=0.0)})
    assert result.total == 0.0 and result.parts == {"math": 0.0}


def test_a_verdict_without_a_score_is_an_error_and_not_zero():
    with pytest.raises(ValueError, match="math gave no score: timed out"):
        reward()(rollout(), {"math": Verdict(score=None, error="timed out")})


def test_a_verifier_and_an_env_part_of_one_name_do_not_overwrite_each_other():
    result = reward()(rollout(math=0.5), {"math": Verdict(score=1.0)})
    assert result.total == 1.5


def test_a_weight_for_an_unknown_verifier_is_an_error_at_construction_when_names_are_known():
    with pytest.raises(ConfigError, match="'mth', the run has code, math") as caught:
        reward({"verifiers": ("math", "code")}, weights={"mth": 1.0})
    assert caught.value.fix == "write `math`"


def test_a_weight_for_an_unknown_verifier_is_an_error_at_the_first_call_otherwise():
    built = reward(weights={"code": 1.0})
    with pytest.raises(ConfigError, match="'code', the run has math"):
        built(rollout(), {"math": Verdict(score=1.0)})


def test_an_env_part_that_the_given_env_weights_do_not_name_is_an_error():
    built = reward(env_weights={"fromat": 1.0})
    with pytest.raises(ConfigError, match="no weight for the env's reward part 'format'"):
        built(rollout(format=1.0), {})


def test_a_part_of_weight_zero_is_left_out_of_the_total():
    assert reward(env_weights={"length": 0.0})(rollout(length=9.0), {}).total == 0.0


def test_inputs_are_not_changed():
    verdicts, parts = {"math": Verdict(score=1.0)}, {"format": 1.0}
    reward(weights={"math": 3.0})(rollout(**parts), verdicts)
    assert verdicts == {"math": Verdict(score=1.0)} and parts == {"format": 1.0}


def test_env_parts_of_all_turns_are_summed():
    result = reward()(rollout({"hit": 1.0}, {"hit": 0.5, "miss": -1.0}), {})
    assert result.parts == {"env.hit": 1.5, "env.miss": -1.0}
    assert result.per_turn is None


def test_turn_level_credits_env_parts_where_they_were_given_and_verifiers_at_the_end():
    built = reward(turn_level=True, env_weights={"hit": 2.0, "miss": 1.0})
    played = rollout({"hit": 1.0}, {}, {"hit": 0.5, "miss": -1.0})
    result = built(played, {"math": Verdict(score=1.0)})
    assert result.per_turn == (2.0, 0.0, 0.0)
    assert result.total == 3.0  # 1 is left for the end: the verifier's
    assert result.parts == {"math": 1.0, "env.hit": 3.0, "env.miss": -1.0}


def test_turn_level_without_env_parts_is_all_zeros():
    played = dataclasses.replace(rollout(), turns=3, turn_parts=())
    assert reward(turn_level=True)(played, {}).per_turn == (0.0, 0.0, 0.0)
