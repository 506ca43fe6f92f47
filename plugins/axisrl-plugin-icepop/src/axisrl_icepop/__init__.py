"""Corrections of the gap between rollout and trainer. The components are named in
:mod:`axisrl_icepop.plugin`.
"""
