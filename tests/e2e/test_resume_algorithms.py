"""kill -9 and --resume with everything a run may carry besides its policy: a value model, a
reference that moves, entropy control, a sampler that learns, adapters."""

import pytest

EVERY_STEP = ("train.updates=6", "checkpoint.every=1", "eval=null")
PPO = (
    "advantage={use: ppo/gae, gamma: 0.99, lam: 0.9}",
    "loss=ppo/ppo",
    "value={loss: ppo/value, trainer: {use: local/trainer, lr: 0.005}, warmup_updates: 1}",
)
MOVING_REFERENCE = ("kl={coef: 0.05, reset_every: 2}",)
ENTROPY_CONTROL = ("entropy={coef: 0.01, target: 4.3, step: 0.004}",)
LORA = "trainer={use: local/trainer, lr: 0.02, lora: {rank: 4, dropout: %s, update: %s}}"


def killed_as_whole(make_run, same_run, settings, kills):
    """Both runs; the killed one ends as the whole one did."""
    whole, killed = make_run("whole", *settings), make_run("killed", *settings)
    whole.whole()
    first, *later = kills
    killed.kill_after(first)
    for step in later:
        killed.resume_until(step)
    killed.resume()
    same_run(killed, whole)
    assert killed.state() == whole.state()
    return whole


def test_ppo_goes_on_with_its_value_model_inside_and_after_the_warm_up(make_run, same_run):
    whole = killed_as_whole(make_run, same_run, (*EVERY_STEP, *PPO), kills=(2, 4))
    assert whole.models() == {"trainer", "value"}
    losses = {line["step"]: "loss/total" in line for line in whole.metrics()}
    assert losses == {1: False, 2: True, 3: True, 4: True, 5: True, 6: True}


def test_a_reference_that_moved_and_the_entropy_factor_go_on(make_run, same_run):
    settings = (*EVERY_STEP, *MOVING_REFERENCE, *ENTROPY_CONTROL)
    whole = killed_as_whole(make_run, same_run, settings, kills=(4,))
    assert whole.models() == {"trainer", "reference"}
    assert whole.state()["reference_step"] == 6
    kl = whole.series("loss/kl")
    assert max(kl[0], kl[2], kl[4]) < 1e-5 < min(kl[1], kl[3], kl[5])  # fresh at 1, 3 and 5
    coefs = whole.series("train/entropy_coef")
    assert len(set(coefs)) > 2, f"the control went nowhere: {coefs}"


def test_a_learning_sampler_and_corrections_go_on_from_the_middle_of_a_window(make_run, same_run):
    settings = (
        "train.updates=8",
        "train.updates_per_sync=2",
        "checkpoint.every=2",
        "eval=null",
        "sampler=low_success",
        "corrections=[icepop/icepop, icepop/token-tis]",
    )
    whole = killed_as_whole(make_run, same_run, settings, kills=(5,))
    assert whole.series("loss/kept") and whole.series("loss/icepop/token-tis/weight")
    assert whole.series("sampler/seen_frac")[-1] > whole.series("sampler/seen_frac")[0]


@pytest.mark.parametrize(("update", "dropout"), [("merged", 0.1), ("adapter", 0)])
def test_an_adapter_goes_on_with_its_reference(make_run, same_run, update, dropout):
    settings = (*EVERY_STEP, *MOVING_REFERENCE, LORA % (dropout, update))
    whole = killed_as_whole(make_run, same_run, settings, kills=(3,))
    assert any("lora" in name for name in whole.final_weights())
    kl = whole.series("loss/kl")
    assert len(kl) == 6 and kl[1] > 1e-5, "the policy never left its reference"
    if not dropout:  # what engines are served is what is trained
        assert max(whole.series("loss/mismatch_max")) < 1e-4
