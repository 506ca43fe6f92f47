"""kill -9 at any step and --resume: the rest of the run is bit-identical to one that was never
killed."""

SHORT = ("train.updates=6", "checkpoint.every=1", "eval.every=3")


def test_a_run_killed_at_three_steps_ends_as_if_it_never_was(make_run, same_run):
    whole = make_run("whole", *SHORT)
    whole.whole()
    killed = make_run("killed", *SHORT)
    killed.kill_after(2)  # a step is logged before it is saved: step 1 is safe now, 2 may not be
    for step in (3, 5):
        killed.resume_until(step)
    killed.resume()
    same_run(killed, whole)
