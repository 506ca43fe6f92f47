"""axisrl: agentic RL post-training for language models.

The public names live in the submodules (``axisrl.types``, ``axisrl.trace``, ``axisrl.protocols``,
``axisrl.plugins``, ``axisrl.testing``); this module imports none of them, so that every command
starts fast.
"""

__version__ = "0.1.0"
