"""mode: train_offline. Conversations are learnt without an engine; a replay learns what a saved run
learnt, token by token."""

import json

import pytest

CHATS = [("Two and two?", "4"), ("Ten times 2?", "20"), ("A dozen?", "12")]
RECIPE = """
mode: train_offline
model: {name: tiny, dtype: float32, device: cpu}
dataset: {use: core/tasks, path: CHATS}
advantage: core/reward
loss: core/sft
trainer: {use: local/trainer, lr: 0.01}
rollout: {group_size: 1, min_group_size: 1, max_context: 64}
train: {updates: 24, batch_size: 3, max_tokens_per_batch: 256}
checkpoint: {every: 4}
"""


@pytest.fixture
def chats(tmp_path):
    """Conversations that are tasks of gsm8k/math too."""
    path, lines = tmp_path / "chats.jsonl", []
    for asked, told in CHATS:
        said = [{"role": "user", "content": asked}, {"role": "assistant", "content": told}]
        lines.append(json.dumps({"messages": said, "question": asked, "answer": told}) + "\n")
    path.write_text("".join(lines))
    return path


@pytest.fixture
def make_taught(make_run, tmp_path, chats):
    """A run that learns ``CHATS``, with settings of its own."""
    recipe = tmp_path / "sft.yaml"
    recipe.write_text(RECIPE.replace("CHATS", str(chats)))
    return lambda name, *overrides: make_run(name, *overrides, recipe=(str(recipe),))


def greedy(folder, asked):
    """What the model in ``folder`` answers greedily, by transformers."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder)
    chat = [{"role": "user", "content": asked}]
    text = tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
    ids = tokenizer(text, add_special_tokens=False, return_tensors="pt")
    with torch.no_grad():
        said = model.generate(**ids, do_sample=False, max_new_tokens=12)
    return tokenizer.decode(said[0, ids["input_ids"].shape[1] :], skip_special_tokens=True)


def test_what_conversations_teach_is_said_and_a_killed_run_learns_the_same(make_taught, same_run):
    whole, killed = make_taught("whole"), make_taught("killed")
    whole.whole()
    assert not list((whole.dir / "rollouts").glob("eval-*"))
    losses = whole.series("loss/total")
    assert losses[-1] < 0.1 < 3 < losses[0]
    folder = whole.checkpoint / "trainer" / "model"
    assert [greedy(folder, asked) for asked, _ in CHATS] == [told for _, told in CHATS]
    killed.kill_after(10)
    killed.resume()
    same_run(killed, whole)


def test_conversations_are_evaluated_where_there_is_an_engine(make_taught, chats, same_run):
    settings = (
        "engine=local/engine",
        "env={use: gsm8k/math, system: '', template: '{question}', examples: []}",
        "verifiers={correct: {use: gsm8k/math, mode: flexible}}",
        f"eval={{dataset: {{use: core/tasks, path: {chats}}}, every: 6}}",
        "train.updates=18",
    )
    whole, killed = make_taught("evaluated", *settings), make_taught("killed", *settings)
    whole.whole()
    accuracy = whole.series("eval/accuracy")
    assert (len(accuracy), accuracy[0], accuracy[-1]) == (4, 0, 1)
    killed.kill_after(14)
    killed.resume()
    same_run(killed, whole)


def test_a_loss_that_reads_what_was_sampled_is_refused_for_conversations(make_taught):
    for loss in ("grpo/grpo", "ppo/ppo"):
        said = make_taught("refused", f"loss={loss}").refused()
        assert f"loss {loss} needs what was recorded at sampling" in said
        assert "fix: " in said
        assert "Traceback" not in said


SHORT = ("train.updates=4", "checkpoint.every=0", "eval=null")


def replay_of(make_run, name, run, *overrides):
    replayed = make_run(
        name, *SHORT, "mode=train_offline", f"offline.rollouts={run.dir}", *overrides
    )
    replayed.whole()
    return replayed


def test_a_replay_learns_from_every_token_what_the_saved_run_learnt(make_run):
    """The same start and the same rollouts end in the same weights, bit for bit."""
    import torch

    first = make_run("first", *SHORT)
    first.whole()
    second = replay_of(make_run, "second", first, "env=null", "engine=null", "dataset=null")
    third = replay_of(make_run, "third", second)
    for replayed in (second, third):
        assert replayed.traces() == first.traces()
        assert replayed.rollouts() == first.rollouts()
        for name in ("train/trained_tokens", "reward/mean", "loss/total", "loss/grad_norm"):
            assert replayed.series(name) == first.series(name)
        one, other = replayed.final_weights(), first.final_weights()
        assert [name for name in one if not torch.equal(one[name], other[name])] == []


def test_a_replay_may_go_round_learn_otherwise_and_be_killed(make_run, same_run):
    source = make_run("source", "train.updates=2", "checkpoint.every=0", "eval=null")
    source.whole()
    settings = (
        "train.updates=6",
        "checkpoint.every=1",
        "eval=null",
        "mode=train_offline",
        f"offline.rollouts={source.dir}",
        "loss={use: grpo/grpo, base: rollout}",
        "kl={coef: 0.01}",
    )
    whole, killed = make_run("whole", *settings), make_run("killed", *settings)
    whole.whole()
    rewards = whole.series("reward/mean")
    assert rewards == source.series("reward/mean") * 3
    assert whole.series("loss/ratio")[0] == pytest.approx(1, abs=1e-4)
    assert abs(whole.series("loss/ratio")[-1] - 1) > 1e-3  # the policy has left what sampled them
    killed.kill_after(3)
    killed.resume()
    same_run(killed, whole)


def test_a_folder_without_rollouts_is_one_clear_error(make_run, tmp_path):
    run = make_run("x", "mode=train_offline", f"offline.rollouts={tmp_path}")
    said = run.refused()
    assert f"offline.rollouts: {tmp_path} holds no rollouts" in said
    assert "Traceback" not in said
    assert not run.dir.exists()
