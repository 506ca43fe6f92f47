"""Group-relative advantages and the GRPO loss. The components are named in
:mod:`axisrl_grpo.plugin`.
"""
