"""``Engine``: the same calls as SGLang's, on a CPU, one request after the other in one process."""

import asyncio
import base64
import contextlib
import importlib
import json
import multiprocessing
import os
import pickle
import stat
import threading
import time
from multiprocessing import connection
from pathlib import Path
from types import SimpleNamespace

import torch
from safetensors.torch import load_file
from sglang.srt.managers.io_struct import FlushCacheReqOutput, LoRAUpdateOutput
from sglang.srt.model import FusedModel, experts
from sglang.srt.server_args import ServerArgs


class Scheduler:
    """The process in which SGLang runs the model, as far as it answers; with it answer those of the
    other machines."""

    def __init__(self, server_args):
        fork = multiprocessing.get_context("fork")
        self._here, there = fork.Pipe()
        self._all = [self._here, *others(server_args)]
        self._turn = threading.Lock()
        self.process = fork.Process(target=echo, args=(there,))
        self.process.start()
        there.close()

    async def answer(self):
        def ask():
            with self._turn:
                try:
                    for pipe in self._all:
                        pipe.send(None)
                        pipe.recv()
                except (EOFError, OSError):
                    threading.Event().wait()  # SGLang does not notice here

        await asyncio.get_running_loop().run_in_executor(None, ask)

    def stop(self):
        self._here.close()
        self.process.join()


class OtherScheduler:
    """The one of a machine that is not the first: nobody but that asks it."""

    def __init__(self, server_args):
        pipe = to_the_first(server_args)
        fork = multiprocessing.get_context("fork")
        self.process = fork.Process(target=echo, args=(pipe,), daemon=True)
        self.process.start()
        pipe.close()


def echo(pipe):
    for number in map(int, os.listdir("/proc/self/fd")):
        with contextlib.suppress(OSError):
            if number != pipe.fileno() and stat.S_ISSOCK(os.fstat(number).st_mode):
                os.close(number)  # whoever is at the other end must see the end of the first holder
    with contextlib.suppress(EOFError, ConnectionError):
        while True:
            pipe.send(pipe.recv())


def others(server_args):
    """Connections to the schedulers of the other machines, once all are there."""
    if server_args.nnodes == 1:
        return []
    with connection.Listener(meeting(server_args), backlog=server_args.nnodes) as listener:
        return [listener.accept() for _ in range(server_args.nnodes - 1)]


def to_the_first(server_args):
    while True:
        try:
            return connection.Client(meeting(server_args))
        except ConnectionRefusedError:
            time.sleep(0.02)


def meeting(server_args):
    host, _, port = server_args.dist_init_addr.rpartition(":")
    return host, int(port)


class TokenizerManager:
    """What stands between ``Engine`` and the scheduler."""

    def __init__(self, server_args):
        self.server_args = server_args
        config = json.loads((Path(server_args.model_path) / "config.json").read_text())
        self.context_len = server_args.context_length or config["max_position_embeddings"]
        self.model_config = SimpleNamespace(vocab_size=config["vocab_size"])
        self._config = config
        self._eos = config["eos_token_id"]
        dtype = getattr(torch, server_args.dtype)
        self._model = FusedModel(
            server_args.model_path, dtype, server_args.json_model_override_args
        )
        self.rid_to_state = {}
        self._running = {}
        self._seen = []
        self.scheduler = Scheduler(server_args)
        self._idle = True
        self._released = set()
        self._adapters = {}

    async def generate_request(self, obj, request=None):
        if len(obj.input_ids) > self.context_len - 6:
            raise ValueError(f"Input length ({len(obj.input_ids)} tokens) exceeds the maximum")
        assert not self._released, "released memory is used"
        speculates = self.server_args.speculative_algorithm is not None
        assert not (speculates and obj.return_sampling_mask), "it aborts such requests"
        state = self.rid_to_state[obj.rid] = SimpleNamespace(dispatched=False, abort_sent=False)
        await self.scheduler.answer()
        state.dispatched = True
        self._running[obj.rid] = False
        self._idle = False
        ids, logprobs, masked = [], [], []
        params = obj.sampling_params
        reason = None
        prompt = list(obj.input_ids)
        adapter = self._adapters[obj.lora_path] if obj.lora_path else None
        mine = [seen for name, seen in self._seen if name == obj.lora_path]
        cached = max((shared(prompt, seen) for seen in mine), default=0)
        try:
            while reason is None:
                await asyncio.sleep(0)
                if self._running[obj.rid]:
                    reason = {"type": "abort", "message": "Aborted"}
                else:
                    # Speculation has a pass over the prompt, then two tokens a pass.
                    for _ in range(1 + bool(speculates and ids)):
                        token, logprob, under_mask = self._draw(prompt + ids, params, adapter)
                        ids.append(token)
                        logprobs.append((logprob, token, None))
                        masked.append(under_mask)
                        if reason := self._reason(ids, params):
                            break
                if reason is not None or obj.stream:
                    meta = {
                        "id": obj.rid,
                        "finish_reason": reason,
                        "prompt_tokens": len(prompt),
                        "completion_tokens": len(ids),
                        "cached_tokens": min(cached, len(prompt) - 1),
                        "weight_version": self.server_args.weight_version,
                        "output_token_logprobs": logprobs,
                    }
                    if obj.return_sampling_mask:
                        meta["output_token_sampling_logprobs"] = masked
                    if reason is not None and obj.return_routed_experts and ids:
                        assert self.server_args.enable_return_routed_experts
                        assert obj.routed_experts_start_len <= len(prompt)
                        told = experts(prompt + ids, self._config)
                        told = told[obj.routed_experts_start_len : -1].numpy().tobytes()
                        meta["routed_experts"] = base64.b64encode(told).decode()
                    if speculates and len(ids) > 1:
                        meta["spec_verify_ct"] = len(ids) // 2
                    yield {"output_ids": ids, "meta_info": meta}
            self._seen.append((obj.lora_path, prompt + ids))
        finally:
            del self._running[obj.rid], self.rid_to_state[obj.rid]

    async def get_internal_state(self):
        await self.scheduler.answer()
        return [{}]

    def abort_request(self, rid="", abort_all=False):
        """As of 0.5.20: once for a request, and in vain before it was sent to the scheduler."""
        state = None if abort_all else self.rid_to_state.get(rid)
        if state is not None:
            if state.abort_sent:
                return
            state.abort_sent = True
        for running in self._running:
            if abort_all or (rid and running.startswith(rid)):
                self._running[running] = True

    async def flush_cache(self, timeout_s=None):
        while self._running or not self._idle:
            if not timeout_s:
                return FlushCacheReqOutput(success=False, message="not idle")
            await asyncio.sleep(0)
            self._idle = True
        self._seen.clear()
        return FlushCacheReqOutput(success=True)

    async def update_weights_from_tensor(self, obj, request=None):
        assert len(obj.serialized_named_tensors) == self.server_args.tp_size
        assert obj.load_format in self.server_args.custom_weight_loader
        assert obj.disable_draft_model, "a draft model has weights of its own"
        assert self._idle and not self._running, "SGLang dies when it cannot flush"
        module, _, name = obj.load_format.rpartition(".")
        named = pickle.loads(obj.serialized_named_tensors[0])
        getattr(importlib.import_module(module), name)(self._model, named)
        if obj.flush_cache:
            self._seen.clear()
        self.server_args.weight_version = obj.weight_version
        return True, "Success"

    async def load_lora_adapter(self, obj, _=None):
        assert self.server_args.enable_lora and self._idle
        folder = Path(obj.lora_path)
        config = json.loads((folder / "adapter_config.json").read_text())
        if obj.lora_name in self._adapters:
            return LoRAUpdateOutput(success=False, error_message="it is already loaded")
        if config["r"] > self.server_args.max_lora_rank:
            return LoRAUpdateOutput(success=False, error_message="its rank is too large")
        tensors = load_file(folder / "adapter_model.safetensors")
        self._adapters[obj.lora_name] = (config["lora_alpha"] / config["r"], tensors)
        return LoRAUpdateOutput(success=True)

    async def unload_lora_adapter(self, obj, _=None):
        del self._adapters[obj.lora_name]
        return LoRAUpdateOutput(success=True)

    async def release_memory_occupation(self, obj, request=None):
        assert self.server_args.enable_memory_saver and not self._running and not self._seen
        self._released |= set(obj.tags)
        if "weights" in obj.tags and not self.server_args.enable_weights_cpu_backup:
            with torch.no_grad():
                for value in self._model.parameters():
                    value.fill_(float("nan"))

    async def resume_memory_occupation(self, obj, request=None):
        self._released -= set(obj.tags)

    def _draw(self, ids, params, adapter):
        logits = self._model.logits(ids, adapter)
        if params["temperature"] == 0:
            token = int(logits.argmax())
            return token, float(torch.log_softmax(logits, -1)[token]), 0.0
        logprobs = torch.log_softmax(logits / params["temperature"], -1)
        kept = masked(logprobs, params)
        if self.server_args.enable_deterministic_inference:
            assert params.get("min_p", 0) == 0, "With sampling seed min_p gives wrong results"
            generator = torch.Generator().manual_seed(params["sampling_seed"] % 2**31 + len(ids))
        else:
            generator = None
        noise = torch.empty(len(kept)).exponential_(generator=generator).log().neg()
        token = int((kept + noise).argmax())
        return token, float(logprobs[token]), float(kept[token])

    def _reason(self, ids, params):
        ends = () if params.get("ignore_eos") else (self._eos, *params["stop_token_ids"])
        if ids[-1] in ends:
            return {"type": "stop", "matched": ids[-1]}
        if len(ids) >= params["max_new_tokens"]:
            return {"type": "length", "length": len(ids)}
        return None


class Engine:
    """Loads the model in the constructor."""

    def __init__(self, **kwargs):
        self.server_args = ServerArgs(**kwargs)
        if self.server_args.attention_backend == "broken":
            raise ValueError("attention_backend broken is not a backend")
        assert self.server_args.tp_size % self.server_args.nnodes == 0
        print("fake SGLang", os.getpid(), flush=True)
        self.loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self.loop)
        if self.server_args.node_rank:
            self.tokenizer_manager = None
            scheduler = OtherScheduler(self.server_args)
        else:
            self.tokenizer_manager = TokenizerManager(self.server_args)
            scheduler = self.tokenizer_manager.scheduler
        print("fake scheduler", scheduler.process.pid, flush=True)
        if self.server_args.node_rank and os.getenv("SGLANG_BLOCK_NONZERO_RANK_CHILDREN") != "0":
            scheduler.process.join()
        infos = [{"status": "ready", "max_total_num_tokens": 10_000}]
        self._scheduler_init_result = SimpleNamespace(scheduler_infos=infos)

    def freeze_gc(self):
        self.frozen = True

    def shutdown(self):
        if self.tokenizer_manager is not None:
            self.tokenizer_manager.scheduler.stop()
        print("fake SGLang is shut down", flush=True)


def shared(left, right):
    """Length of the common beginning."""
    pairs = zip(left, right, strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(left), len(right)))


def masked(logprobs, params):
    """Renormalised over what top-k, top-p and min-p leave."""
    order = logprobs.argsort(descending=True)
    probs = logprobs[order].exp()
    keep = torch.arange(len(order)) < params.get("top_k", len(order))
    keep &= probs.cumsum(0) - probs <= params.get("top_p", 1.0)
    keep &= probs >= probs[0] * params.get("min_p", 0.0)
    left = torch.full_like(logprobs, -torch.inf)
    left[order[keep]] = logprobs[order[keep]]
    return torch.log_softmax(left, -1)
