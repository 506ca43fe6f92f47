"""TRL's side of ``update_vs_trl.py``: a ``GRPOTrainer`` that waits before every update.

Started by that script. It measures each update's phases and writes one JSON object a line:
``rollout_s`` (prompts to rewards and advantages), ``generate_s`` (the part of it that is
generation), ``train_s`` (the rest of the update: forward, backward, optimizer), and token counts.

It runs TRL as published, and measures by overriding the trainer's methods in a subclass; nothing of
TRL is changed.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from axisrl_gsm8k.answers import final_answer, parse_number
from baton import pause
from setting import PromptTask


class TimedTrainer(GRPOTrainer):
    """TRL's trainer with a clock around what it does in an update."""

    times: dict[str, float]
    """Seconds and tokens of the update under way."""

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        begun = time.perf_counter()
        output = super()._generate_and_score_completions(inputs)
        self._add("rollout_s", time.perf_counter() - begun)
        prompts, answers = output["prompt_mask"], output["completion_mask"]
        # Padding is computed like any other position.
        self._add("forwarded", prompts.numel() + answers.numel())
        self._add("sampled", int(answers.sum()))
        self._add("tokens", int(prompts.sum()) + int(answers.sum()))
        return output

    def _generate_single_turn(self, *args: Any, **options: Any) -> Any:
        begun = time.perf_counter()
        output = super()._generate_single_turn(*args, **options)
        self._add("generate_s", time.perf_counter() - begun)
        return output

    def _add(self, name: str, value: float) -> None:
        self.times[name] = self.times.get(name, 0) + value


class Turns(TrainerCallback):
    """Waits at the border of two updates, and writes what the last one took."""

    def __init__(self, output: Path) -> None:
        self._output = output
        self.trainer: TimedTrainer
        self._begun = 0.0

    def on_train_begin(self, *args: Any, **options: Any) -> None:
        """Everything is loaded."""
        pause()

    def on_step_begin(self, *args: Any, **options: Any) -> None:
        """An update starts."""
        self.trainer.times = {}
        self._begun = time.perf_counter()

    def on_step_end(self, *args: Any, **options: Any) -> None:
        """An update is over: its optimizer has stepped."""
        times = self.trainer.times
        times["train_s"] = time.perf_counter() - self._begun - times["rollout_s"]
        with self._output.open("a") as file:
            file.write(json.dumps(times) + "\n")
        pause()


def reward(completions: list[str], answer: list[str], **columns: Any) -> list[float]:
    """The recipe's reward: 0.9 for the right number, 0.1 for stating one."""
    return [_reward(text, gold) for text, gold in zip(completions, answer, strict=True)]


def _reward(text: str, gold: str) -> float:
    stated = final_answer(text)
    found = None if stated is None else parse_number(stated)
    if found is None:
        return 0.0
    return 0.1 + 0.9 * (found == parse_number(final_answer(gold) or gold))


def settings(job: dict[str, Any], folder: str) -> GRPOConfig:
    """The trainer's options: what axisrl's recipe does, and for the rest what is fastest here."""
    cpu = job["device"] == "cpu"
    return GRPOConfig(
        output_dir=folder,
        max_steps=job["updates"],
        per_device_train_batch_size=job["rows"],
        gradient_accumulation_steps=job["batch_size"] // job["rows"],
        num_generations=job["group_size"],
        max_completion_length=job["max_tokens"],
        temperature=job["temperature"],
        top_p=1.0,
        top_k=0,
        beta=0.0,
        epsilon=0.2,
        loss_type="dapo",
        learning_rate=job["lr"],
        lr_scheduler_type="constant",
        weight_decay=0.0,
        max_grad_norm=1.0,
        optim="adamw_torch_fused",
        use_cpu=cpu,
        bf16=job["dtype"] == "bfloat16",
        gradient_checkpointing=False,
        shuffle_dataset=False,
        save_strategy="no",
        logging_strategy="no",
        report_to="none",
        disable_tqdm=True,
        seed=0,
    )


def main() -> None:
    """Train as the job file says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("job", type=Path, help="JSON written by update_vs_trl.py")
    job = json.loads(parser.parse_args().job.read_text())
    torch.set_num_threads(job["threads"])
    tasks = [PromptTask(**task) for task in job["tasks"]]
    turns = Turns(Path(job["output"]))
    model = AutoModelForCausalLM.from_pretrained(job["model"], dtype=job["dtype"])
    with tempfile.TemporaryDirectory() as folder:
        trainer = TimedTrainer(
            model=model,
            reward_funcs=reward,
            args=settings(job, folder),
            train_dataset=Dataset.from_list(
                [{"prompt": task.prompt, "answer": task.answer} for task in tasks]
            ),
            callbacks=[turns],
        )
        turns.trainer = trainer
        trainer.train()


if __name__ == "__main__":
    main()
