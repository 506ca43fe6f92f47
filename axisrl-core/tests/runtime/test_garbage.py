"""Tests of axisrl.runtime.garbage."""

import gc

from axisrl.runtime.garbage import settled
from axisrl.runtime.rollout import RolloutActor


class Knot:
    """Keeps itself alive until a collection finds it."""

    def __init__(self):
        self.itself = self


def test_what_was_there_is_not_collected_within_and_is_afterwards():
    kept = Knot()
    with settled():
        assert gc.get_freeze_count() > 0
        assert not any(found is kept for found in gc.get_objects())
        made = Knot()
        assert any(found is made for found in gc.get_objects())
    assert gc.get_freeze_count() == 0
    assert any(found is kept for found in gc.get_objects())


def test_while_a_run_goes_on_what_it_was_started_with_is_left_out_of_collections(
    stage, monkeypatch
):
    played = []
    play = RolloutActor.play

    async def watched(actor, request):
        played.append(gc.get_freeze_count())
        return await play(actor, request)

    monkeypatch.setattr(RolloutActor, "play", watched)
    stage()
    assert min(played) > 10_000
    assert gc.get_freeze_count() == 0
