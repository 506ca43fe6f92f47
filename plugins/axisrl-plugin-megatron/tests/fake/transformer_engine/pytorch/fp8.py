"""FP8, which is off."""

from contextlib import contextmanager


class FP8GlobalStateManager:
    @staticmethod
    def is_fp8_enabled():
        return False


@contextmanager
def fp8_autocast(enabled=True, calibrating=False, fp8_recipe=None, fp8_group=None, _graph=False):
    raise NotImplementedError("no FP8 without Transformer Engine")
