"""Generalised advantage estimation, the PPO policy loss and the value loss. The components are
named in :mod:`axisrl_ppo.plugin`.
"""
