"""Table `training_log` in; the loss while a model was fine-tuned out."""

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
    many = len(log) >= SMOOTH
    quiet = {"color": theme.QUIET, "width": 1 if many else 2}
    hover = "step %{x}<br>%{y:.3f} nats per token<extra>training</extra>"
    fig.add_scatter(x=steps, y=loss, mode="lines", line=quiet, opacity=0.55 if many else 1, hovertemplate=hover)
    drawn = loss
    if many:
        drawn = loss.rolling(max(5, len(log) // 20), center=True, min_periods=1).median()
        fig.add_scatter(x=steps, y=drawn, mode="lines", line={"color": theme.QUIET, "width": 2.5}, hoverinfo="skip")
    _name(fig, "training", steps, drawn, theme.QUIET)
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
    fig.update_xaxes(title="step", showgrid=False)
    fig.update_yaxes(title="loss, nats per token", rangemode="tozero")
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


def _name(fig: go.Figure, text: str, x: pd.Series, y: pd.Series, colour: str) -> None:
    theme.note(fig, f"<b>{text}</b>", x.iloc[-1], y.iloc[-1], xshift=8, font={"size": 13, "color": colour})
