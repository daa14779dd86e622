"""The loss of a fine-tuning run: what is drawn and what is said."""

import pandas as pd

from auditcore import words
from auditcore.figures.training import loss_figure, training_finding


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
