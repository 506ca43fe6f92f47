import io

import pytest
from rich.console import Console

from axisrl.builtin.config import ConsoleConfig
from axisrl.builtin.console_logger import ConsoleLogger
from axisrl.types import BuildContext


class Screen:
    """A console logger and what it wrote."""

    def __init__(self, clock, terminal=False, **options):
        self.file = io.StringIO()
        # An empty environment, so that the tests mean the same wherever they run.
        self.console = Console(file=self.file, force_terminal=terminal, width=100, _environ={})
        context = BuildContext(run_dir=".", clock=clock, services={"console": self.console})
        self.logger = ConsoleLogger(ConsoleConfig(**options), context)

    @property
    def text(self):
        return self.file.getvalue()

    @property
    def steps(self):
        return [line for line in self.text.splitlines() if line.startswith("step ")]

    def view(self):
        """The live view as it is now."""
        plain = Console(file=io.StringIO(), width=100, _environ={})
        plain.print(self.logger._view())
        return plain.file.getvalue()


def test_without_a_terminal_each_step_is_one_plain_line(clock, run_info):
    screen = Screen(clock)
    screen.logger.start(run_info(), None)
    screen.logger.progress("rollout", 1, 8)
    screen.logger.scalars(1, {"reward/mean": 0.25, "loss/total": -1.5e-7, "rollout/other": 3.0})
    clock.advance(61.0)
    screen.logger.scalars(2, {"reward/mean": 0.5})
    assert screen.steps == [
        "step 1/3  reward/mean 0.25  loss/total -1.5e-07  eta 0:00",
        "step 2/3  reward/mean 0.5  eta 0:30",
    ]
    assert "\x1b" not in screen.text


def test_plain_means_plain_lines_in_a_terminal_too(clock, run_info):
    screen = Screen(clock, terminal=True, plain=True)
    screen.logger.start(run_info(), None)
    screen.logger.scalars(1, {"reward/mean": 0.25})
    screen.logger.finish("completed")
    assert len(screen.steps) == 1
    assert "\x1b[?25l" not in screen.text


def test_a_long_line_is_not_wrapped(clock, run_info):
    names = {f"time/part_{n}": float(n) for n in range(40)}
    screen = Screen(clock)
    screen.logger.start(run_info(), None)
    screen.logger.scalars(1, names)
    assert len(screen.steps) == 1 and "time/part_39 39" in screen.steps[0]


def test_a_terminal_gets_a_live_view_with_step_phase_rewards_and_eta(clock, run_info):
    screen = Screen(clock, terminal=True)
    screen.logger.start(run_info(), None)
    clock.advance(100.0)
    screen.logger.scalars(1, {"reward/mean": 0.25, "eval/accuracy": 0.1})
    screen.logger.scalars(2, {"reward/mean": 0.75, "loss/total": 0.5})
    screen.logger.progress("rollout", 3, 8)
    view = screen.view()
    screen.logger.finish("completed")
    for part in ("step 2/3", "eta 0:50", "elapsed 1:40", "phase rollout 3/8", "▁█ 0.25 0.75"):
        assert part in view
    assert "eval/accuracy 0.1" in view and "loss/total 0.5" in view
    assert screen.steps == []
    assert "\x1b[?25l" in screen.text and "\x1b[?25h" in screen.text


def test_the_eta_of_a_resumed_run_counts_its_own_steps(clock, run_info):
    screen = Screen(clock)
    config = {"train": {"updates": 14}}
    screen.logger.start(run_info(resumed_from=10, config=config), {})
    clock.advance(20.0)
    screen.logger.scalars(12, {})
    assert "resumed after step 10" in screen.text
    assert screen.steps == ["step 12/14  eta 0:20"]


def test_the_eta_leaves_out_the_evaluation_before_the_first_step(clock, run_info):
    screen = Screen(clock)
    screen.logger.start(run_info(), None)
    clock.advance(1000.0)
    screen.logger.scalars(0, {})
    clock.advance(5.0)
    screen.logger.scalars(1, {})
    assert screen.steps == ["step 0/3", "step 1/3  eta 0:10"]


@pytest.mark.parametrize("mode", ["eval", "mismatch"])
def test_a_run_that_takes_no_steps_counts_none(clock, run_info, mode):
    screen = Screen(clock)
    screen.logger.start(run_info(config={"mode": mode, "train": {"updates": 9}}), None)
    screen.logger.scalars(0, {"reward/mean": 0.5})
    assert screen.steps == ["step 0  reward/mean 0.5"]


def test_a_run_of_unknown_length_has_no_eta(clock, run_info):
    screen = Screen(clock)
    screen.logger.start(run_info(config={}), None)
    screen.logger.scalars(1, {"reward/mean": 1.0})
    assert screen.steps == ["step 1  reward/mean 1"]
    assert "step 1" in screen.view()


def test_metrics_are_chosen_and_ordered_by_the_config(clock, run_info):
    screen = Screen(clock, metrics=("b/*", "a/x"))
    screen.logger.start(run_info(config={}), None)
    screen.logger.scalars(1, {"a/x": 1.0, "a/y": 2.0, "b/z": 3.0, "b/c": 4.0})
    assert screen.steps == ["step 1  b/c 4  b/z 3  a/x 1"]


def test_samples_show_prompt_answer_and_reward(clock, run_info, make_row):
    screen = Screen(clock, show_samples=1, samples_every=2)
    screen.logger.start(run_info(), None)
    rows = [make_row(reward=0.0, answer="5"), make_row(reward=0.5, answer="it is 4")]
    screen.logger.rollouts(1, rows)
    text = screen.text
    for part in ("task task-7", "reward 0.5", "user: 2+2?", "assistant: it is 4", "completed"):
        assert part in text
    assert "assistant: 5" not in text
    screen.logger.rollouts(2, rows)
    assert screen.text == text
    screen.logger.rollouts(3, rows)
    assert len(screen.text) > len(text)


def test_zero_samples_print_none(clock, run_info, make_row):
    screen = Screen(clock, show_samples=0)
    screen.logger.start(run_info(), None)
    before = screen.text
    screen.logger.rollouts(1, [make_row()])
    assert screen.text == before


@pytest.mark.parametrize("terminal", [False, True])
def test_model_text_is_shown_as_it_is_and_neither_markup_nor_control_codes(
    clock, run_info, make_row, terminal
):
    screen = Screen(clock, terminal=terminal)
    screen.logger.start(run_info(), None)
    screen.logger.rollouts(1, [make_row(answer="[bold]x[/bold] [/] \x1b]0;evil\x07 :smile:")])
    screen.logger.finish("completed")
    assert "[bold]x[/bold] [/] " in screen.text and ":smile:" in screen.text
    assert "\x1b]0;" not in screen.text


def test_a_long_answer_is_cut_with_its_size_told(clock, run_info, make_row):
    screen = Screen(clock, sample_chars=20)
    screen.logger.start(run_info(), None)
    screen.logger.rollouts(1, [make_row(answer="y" * 520)])
    assert "500 characters" in screen.text and "y" * 21 not in screen.text


@pytest.mark.parametrize(("environ", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_no_color_is_respected(clock, run_info, environ, coloured):
    screen = Screen(clock)
    screen.logger.start(run_info(), None)
    screen.logger.scalars(1, {"reward/mean": 1.0})
    out = io.StringIO()
    terminal = Console(
        file=out, force_terminal=True, color_system="standard", _environ=environ, width=100
    )
    terminal.print(screen.logger._view())
    assert ("\x1b[32m" in out.getvalue()) is coloured


def test_nan_rewards_do_not_break_the_view(clock, run_info):
    screen = Screen(clock)
    screen.logger.start(run_info(), None)
    screen.logger.scalars(1, {"reward/mean": float("nan")})
    screen.logger.scalars(2, {"reward/mean": float("inf")})
    assert "nan inf" in screen.view()


def test_the_end_is_told_with_its_outcome(clock, run_info):
    screen = Screen(clock)
    screen.logger.start(run_info(), None)
    clock.advance(3723.0)
    screen.logger.finish("interrupted")
    assert screen.text.splitlines()[-1] == "run interrupted at step 0/3 after 1:02:03"


@pytest.mark.parametrize(
    "options", [{"samples_every": 0}, {"show_samples": -1}, {"sample_chars": 0}]
)
def test_senseless_options_are_refused(options):
    with pytest.raises(ValueError, match="samples_every"):
        ConsoleConfig(**options)


def test_the_live_view_shows_what_waits_for_what_once_it_is_measured(clock, run_info):
    screen = Screen(clock, terminal=True)
    screen.logger.start(run_info(), None)
    before = screen.view()
    screen.logger.scalars(
        1,
        {
            "rollout/queue_open": 3.0,
            "rollout/queue_home": 2.0,
            "time/trainer_wait_frac": 0.301,
            "time/engine_idle_frac": 0.05,
            "rollout/staleness_older_frac": 0.01,
            "rollout/staleness_age_10_frac": 0.09,
            "rollout/staleness_age_2_frac": 0.3,
            "rollout/staleness_age_0_frac": 0.6,
        },
    )
    view = screen.view()
    screen.logger.finish("completed")
    assert "groups played 3  waiting 2" in view
    assert "waits trainer 30%  engines 5%" in view
    assert "age 0 60%  2 30%  10 9%  older 1%" in view
    assert not any(word in before for word in ("groups", "waits", "age "))


def test_a_plain_line_has_waits_only_when_they_are_among_its_metrics(clock, run_info):
    values = {"time/trainer_wait_frac": 0.3, "reward/mean": 1.0}
    for metrics, shown in ((("reward/mean",), False), (("time/trainer_wait_frac",), True)):
        screen = Screen(clock, metrics=metrics)
        screen.logger.start(run_info(), None)
        screen.logger.scalars(1, values)
        assert ("trainer_wait_frac 0.3" in screen.steps[0]) is shown
