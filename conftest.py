"""For every test of the repository."""

import os

from hypothesis import settings

# Two test processes that start the first Ray of a machine at once would each make it a token, and
# the second would lock the first out of its own cluster.
os.environ.setdefault("RAY_AUTH_MODE", "disabled")

# How long an example takes says how busy the machine is, not whether the code is right.
settings.register_profile("axisrl", deadline=None)
settings.load_profile("axisrl")
