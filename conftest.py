"""For every test of the repository."""

from hypothesis import settings

# How long an example takes says how busy the machine is, not whether the code is right.
settings.register_profile("axisrl", deadline=None)
settings.load_profile("axisrl")
