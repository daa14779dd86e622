"""Traces, shapes and labels as plain dicts in; one plotly figure out.

Plotly checks a figure anew at every `add_` and `update_` call, which costs 30 to 50 ms for a small chart. A page draws
five of them at each click: here everything is collected first and checked once, in 10 ms. Method names are plotly's.
"""

import copy
import functools
from typing import Any

import plotly.graph_objects as go

from auditcore.figures import theme


class Canvas:
    """A figure that is still being drawn; `figure()` makes it one."""

    def __init__(self, height: int, **layout: Any):
        self.layout = {**copy.deepcopy(_base()), "height": height, **layout}
        self.traces: list[dict[str, Any]] = []
        self.shapes: list[dict[str, Any]] = []
        self.annotations: list[dict[str, Any]] = []

    def add(self, kind: str, **trace: Any) -> None:
        """Add a trace of plotly type `kind`."""
        self.traces.append({"type": kind, **trace})

    def add_annotation(self, **annotation: Any) -> None:
        """Add a label (used by `theme.note`)."""
        self.annotations.append(annotation)

    def note(self, text: str, x: Any, y: Any, **options: Any) -> None:
        """Add a label without an arrow. `text` must be escaped."""
        theme.note(self, text, x, y, **options)

    def add_shape(self, **shape: Any) -> None:
        """Add a shape in the coordinates of the data."""
        self.shapes.append(shape)

    def add_vline(self, x: float, **options: Any) -> None:
        """Add a vertical line over the whole height."""
        self.add_shape(type="line", x0=x, x1=x, y0=0, y1=1, xref="x", yref="y domain", **options)

    def add_hline(self, y: float, **options: Any) -> None:
        """Add a horizontal line over the whole width."""
        self.add_shape(type="line", x0=0, x1=1, y0=y, y1=y, xref="x domain", yref="y", **options)

    def add_vrect(self, x0: float, x1: float, **options: Any) -> None:
        """Add a band over the whole height."""
        self.add_shape(type="rect", x0=x0, x1=x1, y0=0, y1=1, xref="x", yref="y domain", **options)

    def xaxis(self, title: str = "", **axis: Any) -> None:
        """Set the horizontal axis."""
        self._axis("xaxis", title, axis)

    def yaxis(self, title: str = "", **axis: Any) -> None:
        """Set the vertical axis."""
        self._axis("yaxis", title, axis)

    def _axis(self, name: str, title: str, axis: dict[str, Any]) -> None:
        named = {"title": {**self.layout[name].get("title", {}), "standoff": 16, "text": title}} if title else {}
        self.layout[name] = {**self.layout[name], **axis, **named}

    def figure(self) -> go.Figure:
        """Check everything once and return the figure."""
        return go.Figure(
            {"data": self.traces, "layout": {**self.layout, "shapes": self.shapes, "annotations": self.annotations}}
        )


@functools.cache
def _base() -> dict[str, Any]:
    """Layout of `theme.figure`, computed once; plotly's own template is left to the page."""
    layout = theme.figure().to_dict()["layout"]
    layout.pop("template", None)
    return layout
