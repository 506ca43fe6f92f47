"""SGLang as the rollout engine of axisrl."""
