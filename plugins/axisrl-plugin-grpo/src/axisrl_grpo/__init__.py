"""Group-relative advantages and policy losses around the probability ratio. The components are
named in :mod:`axisrl_grpo.plugin`.
"""
