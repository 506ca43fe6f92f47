"""Rollout workers that die: the rest of the run goes on, on Ray as a user starts it."""

DEADLY = '''
import os

from axisrl.config.base import NoConfig
from axisrl.plugins import VerifierComponent, hookimpl
from axisrl.types import Verdict


@hookimpl
def axisrl_verifiers():
    return [VerifierComponent(name="judge", target=f"{__name__}:Judge")]


class Judge:
    """Takes its whole process down over one task."""

    def __init__(self, config, context):
        pass

    async def verify(self, task, rollout):
        if rollout.id.startswith("train-000002"):
            os._exit(9)
        return Verdict(score=1.0, passed=True)
'''


def test_a_task_that_takes_workers_down_is_quarantined_and_the_run_completes(make_run, tmp_path):
    plugin = tmp_path / "deadly.py"
    plugin.write_text(DEADLY)
    run = make_run(
        "killed",
        "--plugin",
        str(plugin),
        "verifiers={v: deadly/judge}",
        "rewards={main: core/sum}",
        "placement=ray",
        "train.updates=2",
        "eval=null",
    )
    output = run.whole()
    assert "is quarantined: its rollout took down 3 workers" in output
    assert run.steps() == [1, 2]
    lost = [
        row["summary"]
        for rows in run.rollouts().values()
        for row in rows
        if row["summary"]["outcome"] == "harness_error"
    ]
    assert {one["group"] for one in lost} == {2}
    assert len(lost) == 8
    assert run.series("rollout/dropped_too_few_usable") == [1]
