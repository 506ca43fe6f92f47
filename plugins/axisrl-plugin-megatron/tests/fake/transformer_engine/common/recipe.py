"""Recipes of FP8, of which Megatron names one as a base class."""


class DelayedScaling:
    pass
