"""Names that Megatron imports: a base class, and what it does around FP8."""


class CudaRNGStatesTracker:
    pass


class activation_recompute_forward:  # noqa: N801 - its name
    pass
