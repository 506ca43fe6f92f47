"""Megatron-core as a trainer backend of axisrl."""
