"""Table `training_log` in; what happened while a model was trained out: its loss, its adversaries, two gradients."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from auditcore import words
from auditcore.figures import theme

SMOOTH = 25  # points from which a running median is drawn over the single steps


def loss_figure(log: pd.DataFrame, best_step: int | None = None, height: int = 300) -> go.Figure:
    """Training loss per step, validation loss where it was measured, and the step of the best checkpoint.

    log: columns step, lm_loss and optionally validation_loss, in nats per token.
    """
    fig = theme.figure(height=height)
    steps, loss = log["step"], log["lm_loss"].astype(float)
    _curve(fig, steps, loss, "training", theme.QUIET, "%{y:.3f} nats per token")
    measured = validation(log)
    if len(measured):
        hover = "step %{x}<br>%{y:.3f} nats per token<extra>validation</extra>"
        line = {"color": theme.ACCENT, "width": 2.5}
        x, y = measured["step"], measured["validation_loss"]
        fig.add_scatter(x=x, y=y, mode="lines+markers", line=line, marker={"size": 8}, hovertemplate=hover)
        _name(fig, "validation", x, y, theme.ACCENT)
    if best_step is not None:
        fig.add_vline(x=best_step, line={"dash": "dot", "width": 1.5, "color": theme.QUIET}, layer="below")
        theme.note(fig, "best", best_step, 1.0, yref="paper", yanchor="bottom", xanchor="center")
    fig.update_xaxes(title_text="step", showgrid=False)
    fig.update_yaxes(title_text="loss, nats per token", rangemode="tozero")
    return fig.update_layout(margin={"t": 26, "r": 78})


def validation(log: pd.DataFrame) -> pd.DataFrame:
    """Rows at which the validation loss was measured."""
    if "validation_loss" not in log:
        return log.iloc[:0]
    return log[log["validation_loss"].notna()]


def training_finding(log: pd.DataFrame, best_step: int | None) -> list[str]:
    """Say what training did to the loss, and whether it went past its best."""
    if log.empty:
        return ["No step has been made yet."]
    first, last = log["lm_loss"].iloc[0], log["lm_loss"].iloc[-1]
    moved = "fell" if last < first else "rose"
    parts: list[str] = [f"In {words.counted(int(log['step'].iloc[-1]), 'step')} the training loss {moved} from "]
    parts += [f"{words.number(first, 2)} to ", words.Strong(f"{words.number(last, 2)} nats per token")]
    measured = validation(log)
    if len(measured) and best_step is not None:
        at = measured[measured["step"] == best_step]
        if len(at):
            lowest = words.number(at["validation_loss"].iloc[0], 2)
            parts.append(f"; the validation loss was lowest at step {best_step}, {lowest}")
        if measured["step"].iloc[-1] > best_step:
            parts.append(f", and {words.number(measured['validation_loss'].iloc[-1], 2)} at the end")
    return [*parts, "."]


def has_adversaries(log: pd.DataFrame) -> bool:
    """True when discriminators took part in this training."""
    return "adversary_loss" in log and bool(log["adversary_loss"].notna().any())


def guessing(n_classes: Sequence[int]) -> float | None:
    """Cross-entropy of a discriminator that knows nothing, in nats: log K, averaged over attributes."""
    return float(np.mean(np.log(list(n_classes)))) if len(n_classes) else None


def adversary_figure(log: pd.DataFrame, guess: float | None, height: int = 260) -> go.Figure:
    """Loss of the discriminators in the loop, on prompts that they were not fitted on, and that of guessing.

    log: columns step, adversary_loss (nats, null before they take part); guess: see `guessing`, None to leave it out.
    """
    fig = theme.figure(height=height)
    known = log[log["adversary_loss"].notna()]
    _curve(fig, known["step"], known["adversary_loss"].astype(float), "adversaries", theme.RAISED, "%{y:.3f} nats")
    if guess is not None:
        fig.add_hline(y=guess, line={"dash": "dot", "width": 1.5, "color": theme.QUIET}, layer="below")
        theme.note(fig, "guessing", 0.0, guess, xref="paper", yanchor="bottom")
    fig.update_xaxes(title_text="step", showgrid=False)
    fig.update_yaxes(title_text="loss of the adversaries, nats", rangemode="tozero")
    return fig.update_layout(margin={"t": 26, "r": 92})


def gradients_figure(log: pd.DataFrame, height: int = 260) -> go.Figure:
    """Norms of the two gradients before each was clipped: the summaries' and the turned one.

    log: columns step, lora_grad_norm and reversed_grad_norm (null where no turned gradient was made).
    """
    fig = theme.figure(height=height)
    for column, name, colour in (
        ("lora_grad_norm", "summaries", theme.QUIET),
        ("reversed_grad_norm", "turned", theme.RAISED),
    ):
        known = log[log[column].astype(float) > 0]
        if len(known):
            _curve(fig, known["step"], known[column].astype(float), name, colour, "norm %{y:.3g}")
    fig.update_xaxes(title_text="step", showgrid=False)
    fig.update_yaxes(title_text="norm of the gradient", type="log", dtick=1)
    return fig.update_layout(margin={"t": 26, "r": 92})


def adversary_finding(log: pd.DataFrame, guess: float | None, last: int = SMOOTH) -> list[str]:
    """Say where the adversaries stand at the end, and that this is no evidence."""
    known = log[log["adversary_loss"].notna()].tail(last)
    if known.empty:
        return ["No adversary has taken part yet."]
    value = float(known["adversary_loss"].median())
    parts: list[str] = [f"In the last {words.counted(len(known), 'step')} the adversaries' loss was "]
    parts.append(words.Strong(f"{words.number(value, 2)} nats"))
    if guess is not None:
        gap = guess - value
        near = (
            "that of guessing"
            if abs(gap) < 0.005
            else (f"{words.number(abs(gap), 2)} {'below' if gap > 0 else 'above'} guessing ({words.number(guess, 2)})")
        )
        parts.append(f", {near}")
    strength = log["lambda"].iloc[-1] if "lambda" in log and len(log) else None
    if words.known(strength):
        parts.append(f", at lambda {words.number(strength, 2)}")
    return [*parts, ". What they reach in the loop is no evidence: only fresh probes on frozen vectors are."]


def gradients_finding(log: pd.DataFrame, last: int = SMOOTH) -> list[str]:
    """Say how large the turned gradient is beside the summaries' one: a saturated adversary sends none."""
    known = log[log["reversed_grad_norm"].notna()].tail(last)
    if known.empty:
        return ["No gradient was turned yet."]
    turned, own = (float(known[c].median()) for c in ("reversed_grad_norm", "lora_grad_norm"))
    parts: list[str] = [f"In the last {words.counted(len(known), 'step')} the turned gradient had a norm of "]
    parts += [words.Strong(words.number(turned, 3)), f", the summaries' one {words.number(own, 3)}"]
    return [*parts, "; each is clipped on its own."]


def _curve(fig: go.Figure, steps: pd.Series, values: pd.Series, name: str, colour: str, said: str) -> None:
    """Single steps thin, a running median over them, the name at its end."""
    many = len(values) >= SMOOTH
    line = {"color": colour, "width": 1 if many else 2}
    hover = f"step %{{x}}<br>{said}<extra>{name}</extra>"
    fig.add_scatter(x=steps, y=values, mode="lines", line=line, opacity=0.5 if many else 1, hovertemplate=hover)
    drawn = values
    if many:
        drawn = values.rolling(max(5, len(values) // 20), center=True, min_periods=1).median()
        fig.add_scatter(x=steps, y=drawn, mode="lines", line={"color": colour, "width": 2.5}, hoverinfo="skip")
    if len(values):
        # On a logarithmic axis a label stands at the logarithm of its value; the axis type is set by the caller.
        y = float(np.log10(drawn.iloc[-1])) if said.startswith("norm") else float(drawn.iloc[-1])
        theme.note(fig, f"<b>{name}</b>", steps.iloc[-1], y, xshift=8, font={"size": 13, "color": colour})


def _name(fig: go.Figure, text: str, x: pd.Series, y: pd.Series, colour: str) -> None:
    theme.note(fig, f"<b>{text}</b>", x.iloc[-1], y.iloc[-1], xshift=8, font={"size": 13, "color": colour})
