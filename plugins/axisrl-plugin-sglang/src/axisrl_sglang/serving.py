"""Calls into SGLang: the only module that imports it, when it starts.

It uses ``Engine`` for starting and ending, and its ``tokenizer_manager`` for everything between,
as SGLang's own server does: ``Engine``'s methods block the loop they run in. What it uses is listed
with its signatures in ``tests/fake``.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import uuid
from collections.abc import AsyncIterator, Mapping
from itertools import count
from typing import Any

from axisrl.sharedfolder import SharedFolder
from axisrl_sglang.adapters import write_folder
from axisrl_sglang.messages import RESERVED, About, Adapter, Ask, Output, Report, Weights
from axisrl_sglang.payload import LOADER, payload
from axisrl_sglang.routing import unpacked

_AGAIN_S = 0.02
_IDLE_S = 30.0


class Serving:
    """One SGLang engine, or its part on a machine where it does not serve."""

    def start(self, arguments: Mapping[str, Any]) -> About:
        """Load the model. Blocks; :attr:`loop` is there afterwards."""
        from sglang import __version__
        from sglang.srt.entrypoints.engine import Engine
        from sglang.srt.managers import io_struct

        self._io: Any = io_struct
        self._reports = SharedFolder("sglang", uuid.uuid4().hex)
        engine: Any = Engine(**arguments, custom_weight_loader=[LOADER])
        self._engine, self._manager = engine, engine.tokenizer_manager
        self._ranks = int(arguments.get("tp_size", 1))
        self.loop: asyncio.AbstractEventLoop = engine.loop
        self._adapter: str | None = None
        self._numbers = count()
        self._over: dict[str, asyncio.Future[None]] = {}
        (first, *_) = engine._scheduler_init_result.scheduler_infos
        capacity = int(first["max_total_num_tokens"])
        if self._manager is None:
            return About(__version__, 0, 0, capacity, frozenset())
        engine.freeze_gc()  # a full collection would stop every request for a fifth of a second
        speculates = arguments.get("speculative_algorithm") is not None
        masks = _has(io_struct.GenerateReqInput, "return_sampling_mask") and not speculates
        return About(
            version=__version__,
            context=int(self._manager.context_len) - RESERVED,
            vocabulary=int(self._manager.model_config.vocab_size),
            capacity=capacity,
            features=frozenset({"sampling_mask"} if masks else ()),
        )

    def stop(self) -> None:
        """End SGLang's processes; returns when they have given their memory back."""
        self._engine.shutdown()
        self._reports.close()

    async def alive(self) -> None:
        """Returns once SGLang's schedulers, which run the model, have answered; at once where it
        does not serve: there they answer those of the first machine, which is asked itself."""
        if self._manager is not None:
            await self._manager.get_internal_state()

    async def generate(self, ask: Ask) -> Output:
        """Sample until the request is over."""
        return [_output(ask, out) async for out in self._outputs(ask, stream=False)][-1]

    async def stream(self, ask: Ask) -> AsyncIterator[list[int] | Output]:
        """The tokens as they are sampled, and the whole in the end."""
        told = 0
        async for out in self._outputs(ask, stream=True):
            if out["meta_info"]["finish_reason"] is None:
                new, told = list(out["output_ids"][told:]), len(out["output_ids"])
                yield new
            else:
                yield _output(ask, out)

    async def abort(self, rid: str) -> None:
        """Returns once the request is over.

        SGLang forgets an abort that comes before the request was sent to its scheduler. Releases
        that tell whether it was do not abort twice: they are asked once it was. Others are asked
        again and again.
        """
        while (over := self._over.get(rid)) is not None:
            if getattr(self._manager.rid_to_state.get(rid), "dispatched", True):
                self._manager.abort_request(rid=rid)
            await asyncio.wait([over], timeout=_AGAIN_S)

    async def update(self, weights: Weights) -> list[Report]:
        """Load new weights on every rank, and drop every cached prefix.

        SGLang ends itself when it cannot flush after an update, so it must be idle before.
        """
        await self._idle()
        path = self._reports.path / f"{weights.version}.json"
        request = self._io.UpdateWeightsFromTensorReqInput(
            serialized_named_tensors=[payload(weights, path)] * self._ranks,
            load_format=LOADER,
            flush_cache=True,
            weight_version=str(weights.version),
            **self._of_the_target(),
        )
        success, message = await self._manager.update_weights_from_tensor(request, None)
        if not success:
            raise RuntimeError(f"SGLang refused the weights: {message}")
        reports = json.loads(path.read_text(encoding="utf-8"))
        path.unlink()
        return [Report(**report) for report in reports]

    async def adapt(self, adapter: Adapter) -> list[Report]:
        """Serve another adapter from here on; the one before is unloaded, as nobody uses it."""
        await self._idle()
        name = f"v{adapter.version}-{next(self._numbers)}"
        folder = self._reports.path / name
        try:
            checksum = write_folder(adapter, folder)
            if checksum != adapter.checksum:
                return [Report(checksum, "what arrived is not what was sent")]
            load = self._io.LoadLoRAAdapterReqInput(lora_name=name, lora_path=str(folder))
            result = await self._manager.load_lora_adapter(load, None)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        if not result.success:
            return [Report(checksum, f"SGLang refused the adapter: {result.error_message}")]
        before, self._adapter = self._adapter, name
        if before is not None:
            unload = self._io.UnloadLoRAAdapterReqInput(lora_name=before)
            gone = await self._manager.unload_lora_adapter(unload, None)
            if not gone.success:
                raise RuntimeError(f"SGLang kept adapter {before}: {gone.error_message}")
        return [Report(checksum)]

    async def release(self, tags: list[str]) -> None:
        """Give memory back: ``kv_cache``, ``weights``, ``cuda_graph``."""
        await self._idle()
        request = self._io.ReleaseMemoryOccupationReqInput(tags=tags)
        await self._manager.release_memory_occupation(request, None)

    async def regain(self, tags: list[str]) -> None:
        """Take it again."""
        request = self._io.ResumeMemoryOccupationReqInput(tags=tags)
        await self._manager.resume_memory_occupation(request, None)

    def _of_the_target(self) -> dict[str, Any]:
        """How an update is said to be none of a draft model's, which has weights of its own."""
        says = {"selector": "target", "disable_draft_model": True}
        kind = self._io.UpdateWeightsFromTensorReqInput
        return {name: value for name, value in says.items() if _has(kind, name)}

    async def _idle(self) -> None:
        """Wait until SGLang is idle, which it is some steps after its last request, and flush."""
        flushed = await self._manager.flush_cache(timeout_s=_IDLE_S)
        if not flushed.success:
            raise RuntimeError(f"SGLang is not idle after {_IDLE_S:g} s: {flushed.message}")

    async def _outputs(self, ask: Ask, *, stream: bool) -> AsyncIterator[dict[str, Any]]:
        options: dict[str, Any] = {"return_sampling_mask": True} if ask.masked else {}
        if ask.routing_from is not None:
            options["return_routed_experts"] = True
            options["routed_experts_start_len"] = ask.routing_from
        if self._adapter is not None:
            options["lora_path"] = self._adapter
        request = self._io.GenerateReqInput(
            rid=ask.rid,
            input_ids=ask.input_ids,
            sampling_params=dict(ask.sampling),
            return_logprob=True,
            stream=stream,
            **options,
        )
        over = self._over[ask.rid] = asyncio.get_running_loop().create_future()
        try:
            async for out in self._manager.generate_request(request, None):
                yield out
        finally:
            del self._over[ask.rid]
            over.set_result(None)


def _has(kind: Any, field: str) -> bool:
    """Whether a data class of SGLang declares a field."""
    return field in getattr(kind, "__annotations__", {})


def _output(ask: Ask, out: Mapping[str, Any]) -> Output:
    about = out["meta_info"]
    reason = about["finish_reason"]
    if reason["type"] == "abort" and reason.get("status_code"):
        raise RuntimeError(reason.get("message") or "SGLang ended the request")
    if ask.masked:
        logprobs = list(about.get("output_token_sampling_logprobs") or ())
    else:
        logprobs = [entry[0] for entry in about.get("output_token_logprobs") or ()]
    ids = list(out["output_ids"])
    if reason["type"] == "abort":
        # What was sampled last may be cut off from its log-probability.
        ids = ids[: len(logprobs)]
        logprobs = logprobs[: len(ids)]
    told, experts = about.get("routed_experts"), ask.experts
    routing = unpacked(told, experts) if told and experts else None
    checks = int(about.get("spec_verify_ct") or 0)
    passes = checks + 1 if checks else 0  # the first token is the prompt's pass
    cached = int(about.get("cached_tokens") or 0)
    return Output(ids, logprobs, reason["type"], cached, routing, passes)
