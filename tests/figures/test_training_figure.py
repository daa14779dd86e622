"""The loss of a fine-tuning run: what is drawn and what is said."""

import math

import pandas as pd
import pytest

from auditcore import words
from auditcore.figures.training import (
    adversary_figure,
    adversary_finding,
    gradients_figure,
    gradients_finding,
    guessing,
    has_adversaries,
    loss_figure,
    training_finding,
)


def log(n: int = 40, best: int = 20) -> pd.DataFrame:
    steps = range(1, n + 1)
    measured = {10: 3.0, best: 2.8, n: 2.9}
    losses = {"lm_loss": [4 - 0.08 * s for s in steps], "validation_loss": [measured.get(s) for s in steps]}
    return pd.DataFrame({"step": steps, **losses})


def test_every_step_and_every_validation_is_drawn() -> None:
    fig = loss_figure(log(), best_step=20)
    assert list(fig.data[0].y) == list(log()["lm_loss"])
    assert list(fig.data[-1].x) == [10, 20, 40]
    assert {a.text for a in fig.layout.annotations} == {"<b>training</b>", "<b>validation</b>", "best"}


def test_without_validation_only_training_is_drawn() -> None:
    fig = loss_figure(log(5).drop(columns="validation_loss"))
    assert len(fig.data) == 1


def test_the_finding_tells_where_the_best_checkpoint_is() -> None:
    text = words.plain(training_finding(log(), 20))
    assert text == (
        "In 40 steps the training loss fell from 3.92 to 0.80 nats per token; the validation loss was lowest at "
        "step 20, 2.80, and 2.90 at the end."
    )
    assert words.plain(training_finding(log().iloc[:0], None)) == "No step has been made yet."


def surface_log(n: int = 60, begin: int = 10) -> pd.DataFrame:
    steps = list(range(1, n + 1))
    late = [None if s <= begin else 1.0 for s in steps]
    return pd.DataFrame(
        {
            "step": steps,
            "lambda": [0.0 if s <= begin else 2.0 for s in steps],
            "lm_loss": [3 - 0.04 * s for s in steps],
            "adversary_loss": [v and 1.2 + 0.005 * s for v, s in zip(late, steps, strict=True)],
            "lora_grad_norm": [0.5] * n,
            "reversed_grad_norm": [v and 0.04 for v in late],
        }
    )


def test_adversaries_are_drawn_from_where_they_begin_with_the_loss_of_guessing() -> None:
    log = surface_log()
    fig = adversary_figure(log, guessing([5]))
    assert list(fig.data[0].x) == list(range(11, 61))
    assert fig.layout.shapes[0].y0 == pytest.approx(math.log(5))
    assert not adversary_figure(log, None).layout.shapes
    assert has_adversaries(log)
    assert not has_adversaries(log.assign(adversary_loss=None))
    assert not has_adversaries(log.drop(columns="adversary_loss"))


def test_both_gradients_are_drawn_on_one_logarithmic_axis_each_with_its_name_at_its_end() -> None:
    fig = gradients_figure(surface_log())
    assert fig.layout.yaxis.type == "log"
    labels = {a.text: a.y for a in fig.layout.annotations}
    assert labels["<b>turned</b>"] == pytest.approx(math.log10(0.04))
    assert labels["<b>summaries</b>"] == pytest.approx(math.log10(0.5))
    assert len(gradients_figure(surface_log().assign(reversed_grad_norm=None)).layout.annotations) == 1


def test_findings_say_where_the_adversaries_stand_and_that_it_is_no_evidence() -> None:
    text = words.plain(adversary_finding(surface_log(), guessing([5, 5])))
    assert text == (
        "In the last 25 steps the adversaries' loss was 1.44 nats, 0.17 below guessing (1.61), at lambda 2.00. "
        "What they reach in the loop is no evidence: only fresh probes on frozen vectors are."
    )
    text = words.plain(gradients_finding(surface_log()))
    assert text == (
        "In the last 25 steps the turned gradient had a norm of 0.040, the summaries' one 0.500; each is clipped "
        "on its own."
    )
    assert "yet" in words.plain(adversary_finding(surface_log(5), None))
    assert "yet" in words.plain(gradients_finding(surface_log(5)))
    assert guessing([]) is None
