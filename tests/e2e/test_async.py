"""Generation beside learning, with the real engine and trainer: bounded staleness, and nothing lost
or trained twice when the run is killed."""

import itertools

import pytest

SHORT = ("train.updates=8", "train.batch_size=16", "checkpoint.every=1", "eval=null")


def trained_groups(run):
    """Number of each group in the order it was trained, once a group and step."""
    found = []
    for _, rows in sorted(run.rollouts().items()):
        numbers = [row["summary"]["group"] for row in rows if row["advantage"] is not None]
        found += [number for number, _ in itertools.groupby(sorted(numbers))]
    return found


@pytest.mark.parametrize("partial", ["off", "resume", "restart_turn"])
def test_no_token_is_older_than_the_schedule_allows(make_run, partial):
    run = make_run(
        partial, *SHORT, f"schedule={{kind: async, max_staleness: 2, partial: {partial}}}"
    )
    run.whole()
    assert run.steps() == [1, 2, 3, 4, 5, 6, 7, 8]
    assert max(run.series("rollout/staleness_max")) <= 2
    assert max(run.series("rollout/staleness_max")) > 0
    assert sum(run.series("train/over_age_tokens")) == 0


def test_tokens_sampled_before_an_update_keep_what_they_were_sampled_with(make_run):
    run = make_run("kept", *SHORT, "schedule={kind: async, max_staleness: 2, partial: resume}")
    run.whole()
    ages = {(m["summary"]["versions"][0], m["step"]) for r in run.rollouts().values() for m in r}
    assert any(oldest < step - 1 for oldest, step in ages)
    assert max(run.series("loss/mismatch")) > 0


def test_a_killed_run_loses_no_group_and_trains_none_twice(make_run):
    schedule = "schedule={kind: async, max_staleness: 2, partial: resume}"
    run = make_run("killed", *SHORT, schedule)
    run.kill_after(3)
    run.resume_until(6)
    run.resume()
    trained = trained_groups(run)
    assert len(trained) == len(set(trained)) == 8 * 2
    still_open = {number for number, _ in run.state()["source"]["open"]}
    started = run.state()["source"]["cursor"]
    assert set(trained) | still_open == set(range(started))
    assert not set(trained) & still_open


def test_an_asynchronous_run_learns(make_run):
    from pathlib import Path

    curves = Path(__file__).parents[2] / "docs" / "learning-curves"
    run = make_run(
        "learns",
        "schedule={kind: async, max_staleness: 1, partial: resume}",
        recipe=(str(curves / "cispo.yaml"),),
    )
    run.until(lambda: run.series("reward/mean")[-1:] > [0.8])
    assert run.series("reward/mean")[0] < 0.1
