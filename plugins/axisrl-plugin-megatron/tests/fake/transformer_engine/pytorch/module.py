"""Linear layers and norms. A bias that a layer does not have is an empty tensor, as there."""

import torch
from torch.nn import functional


class Base(torch.nn.Module):
    def set_group(self, tp_group, tp_size, parallel_mode, sequence_parallel):
        self.tp_group = tp_group
        self.tp_size = tp_size if tp_group is None else torch.distributed.get_world_size(tp_group)
        self.parallel_mode = parallel_mode
        self.sequence_parallel = self.tp_size > 1 and sequence_parallel

    def add(self, name, shape, dtype, device, init_method=None):
        value = torch.empty(shape, dtype=dtype, device=device)
        (init_method or torch.nn.init.zeros_)(value)
        setattr(self, name, torch.nn.Parameter(value))

    def add_bias(self, bias, dtype, device):
        if bias:
            self.add("bias", self.out_features, dtype, device)
            self.bias.sequence_parallel = self.parallel_mode == "row" and self.sequence_parallel
        else:
            self.bias = torch.empty(0, dtype=dtype, device=device)

    def check(self, inp):
        for name, parameter in self.named_parameters():
            if parameter.dtype != inp.dtype:
                raise TypeError(
                    "Data types for parameters must match when outside of autocasted region. "
                    f"Found input dtype: {inp.dtype} and {name!r} dtype: {parameter.dtype}"
                )

    def product(self, inp):
        from megatron.core import tensor_parallel as parallel

        alone = self.tp_size == 1
        if self.parallel_mode == "column" and not alone:
            if self.sequence_parallel:
                inp = parallel.gather_from_sequence_parallel_region(inp, group=self.tp_group)
            else:
                inp = parallel.copy_to_tensor_model_parallel_region(inp, group=self.tp_group)
        bias = self.bias if len(self.bias) and not self.return_bias else None
        added = self.parallel_mode == "row" and not alone  # after the sum over the ranks
        out = functional.linear(inp, self.weight, None if added else bias)
        if self.parallel_mode == "row" and not alone:
            if self.sequence_parallel:
                out = parallel.reduce_scatter_to_sequence_parallel_region(out, group=self.tp_group)
            else:
                out = parallel.reduce_from_tensor_model_parallel_region(out, group=self.tp_group)
        out = out if bias is None or not added else out + bias
        return (out, self.bias) if self.return_bias else out


class Linear(Base):
    def __init__(
        self,
        in_features,
        out_features,
        sequence_parallel=False,
        fuse_wgrad_accumulation=False,
        tp_group=None,
        tp_size=1,
        get_rng_state_tracker=None,
        rng_tracker_name=None,
        init_method=None,
        bias=True,
        return_bias=False,
        params_dtype=None,
        parallel_mode=None,
        device="cuda",
    ):
        super().__init__()
        self.set_group(tp_group, tp_size, parallel_mode, sequence_parallel)
        self.in_features = in_features // (self.tp_size if parallel_mode == "row" else 1)
        self.out_features = out_features // (self.tp_size if parallel_mode == "column" else 1)
        self.return_bias = return_bias
        shape = (self.out_features, self.in_features)
        self.add("weight", shape, params_dtype, device, init_method)
        self.add_bias(bias, params_dtype, device)

    def forward(self, inp, is_first_microbatch=None, fp8_output=False, fp8_grad=False):
        self.check(inp)
        return self.product(inp)


class LayerNormLinear(Base):
    def __init__(
        self,
        in_features,
        out_features,
        eps=1e-5,
        sequence_parallel=False,
        fuse_wgrad_accumulation=False,
        tp_group=None,
        tp_size=1,
        get_rng_state_tracker=None,
        init_method=None,
        bias=True,
        normalization="LayerNorm",
        return_bias=False,
        params_dtype=None,
        parallel_mode=None,
        return_layernorm_output=False,
        zero_centered_gamma=False,
        device="cuda",
    ):
        super().__init__()
        assert normalization == "RMSNorm" and not zero_centered_gamma
        self.set_group(tp_group, tp_size, parallel_mode, sequence_parallel)
        self.in_features, self.out_features = in_features, out_features // self.tp_size
        self.eps, self.return_bias = eps, return_bias
        self.add("layer_norm_weight", in_features, params_dtype, device)
        self.layer_norm_weight.sequence_parallel = self.sequence_parallel
        self.add("weight", (self.out_features, in_features), params_dtype, device, init_method)
        self.add_bias(bias, params_dtype, device)

    def forward(self, inp, is_first_microbatch=None, fp8_output=False, fp8_grad=False):
        self.check(inp)
        return self.product(normed(inp, self.layer_norm_weight, self.eps))


class GroupedLinear(Base):
    def __init__(
        self,
        num_gemms,
        in_features,
        out_features,
        sequence_parallel=False,
        fuse_wgrad_accumulation=False,
        tp_group=None,
        tp_size=1,
        get_rng_state_tracker=None,
        rng_tracker_name=None,
        init_method=None,
        bias=True,
        return_bias=False,
        params_dtype=None,
        parallel_mode=None,
        device="cuda",
        ub_name=None,
    ):
        super().__init__()
        self.set_group(tp_group, tp_size, parallel_mode, sequence_parallel)
        assert self.tp_size == 1 and not bias  # as Megatron makes experts
        self.num_gemms = num_gemms
        for number in range(num_gemms):
            shape = (out_features, in_features)
            self.add(f"weight{number}", shape, params_dtype, device, init_method)

    def forward(self, inp, m_splits, is_first_microbatch=None):
        self.check(inp)
        parts = inp.split(m_splits)
        weights = [getattr(self, f"weight{number}") for number in range(self.num_gemms)]
        pairs = zip(parts, weights, strict=True)
        return torch.cat([functional.linear(part, weight) for part, weight in pairs])


class RMSNorm(torch.nn.Module):
    def __init__(
        self,
        normalized_shape=None,
        eps=1e-5,
        sequence_parallel=None,
        params_dtype=None,
        zero_centered_gamma=False,
        hidden_size=None,
        **kwargs,
    ):
        super().__init__()
        assert (normalized_shape is None) != (hidden_size is None) and not zero_centered_gamma
        shape = normalized_shape or hidden_size
        self.weight = torch.nn.Parameter(torch.ones(shape, dtype=params_dtype, **kwargs))
        self.weight.sequence_parallel = sequence_parallel
        self.eps = eps

    def forward(self, inp):
        return normed(inp.to(self.weight.dtype), self.weight, self.eps)


class DotProductAttention(torch.nn.Module):
    """A base class of Megatron's; not used."""


def normed(inp, weight, eps):
    return functional.rms_norm(inp.float(), weight.shape, weight.float(), eps).to(inp.dtype)
