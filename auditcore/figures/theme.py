"""The look of every figure. In: nothing. Out: colours, a base figure, plotly's configuration. No DataFrames here.

The colours of data have a contrast of at least 3:1 on the light and on the dark paper, so that a figure need not know
the theme. Text needs 4.5:1, which no one colour has on both: labels are written in the first colour of `TEXT`, and
on dark paper the style sheet of the pages puts the second in its place.
"""

from typing import Any

import plotly.graph_objects as go

# Roles, not decoration.
RAISED = "#D55E00"  # log-probability raised by fine-tuning; an attacker that finds something
LOWERED = "#0072B2"  # lowered
ACCENT = "#128A80"  # the thing selected; what can be clicked
OCHRE, VIOLET, QUIET, ROSE = "#9A7B0A", "#8A56B8", "#7A838E", "#B8437F"
SERIES = (RAISED, LOWERED, ACCENT, OCHRE, VIOLET, QUIET)  # in this order; survives colour-blindness and print
BUDGET_BAND = "rgba(18, 138, 128, 0.14)"  # within budget
NULL_BAND = "rgba(122, 131, 142, 0.20)"  # what permuted labels reach
HAIRLINE = "rgba(122, 131, 142, 0.28)"
CEILING_LIFT = 20  # pixels from a plot to the name of its ceiling: the name of guessing stands below

# One hue per verdict, always beside a symbol and words.
VERDICT_COLOURS = {
    "over budget": "#C2362B",
    "within budget": "#128A80",
    "not resolved": "#9A7B0A",
    "below chance": "#0072B2",
}

INK, PAPER, QUIET_TEXT = "#1B2430", "#FCFCFA", "#5B6470"

# What a colour is written in, on light and on dark paper: at least 4.5:1 (WCAG AA). Rules in pages/_style.css.
TEXT = {
    RAISED: ("#B04C00", "#F08A3C"),
    LOWERED: ("#0072B2", "#5AAFE0"),
    ACCENT: ("#0F766E", "#2FB3A4"),
    OCHRE: ("#7A6100", "#CDAB3A"),
    VIOLET: ("#8A56B8", "#B795DB"),
    QUIET: (QUIET_TEXT, "#A3ACB6"),
    ROSE: ("#B8437F", "#E58DB8"),
    "#C2362B": ("#C2362B", "#F0837A"),  # over budget
    INK: (INK, "#E6E9E4"),
}
FONT = "'Source Sans', 'Source Sans 3', system-ui, -apple-system, 'Segoe UI', 'Helvetica Neue', Arial, sans-serif"

# Passed with every figure, on pages and in exported files: no upload button, a camera that saves SVG.
CONFIG: dict[str, Any] = {
    "showSendToCloud": False,
    "displaylogo": False,
    "responsive": True,
    "modeBarButtonsToRemove": ["lasso2d", "select2d", "autoScale2d"],
    "toImageButtonOptions": {"format": "svg"},
}


def figure(height: int = 320, **layout: Any) -> go.Figure:
    """Return an empty figure: tight margins, no background of its own, hairline grid, no legend box, no title."""
    fig = go.Figure()
    fig.update_layout(
        height=height,
        margin={"l": 8, "r": 16, "t": 16, "b": 8},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        showlegend=False,
        hoverlabel={"align": "left"},
        font={"size": 13},
        colorway=list(SERIES),
        bargap=0.4,
    )
    axis = {"gridcolor": HAIRLINE, "zeroline": False, "showline": False, "automargin": True, "ticks": ""}
    axis |= {"tickfont_color": QUIET_TEXT, "title_font_color": QUIET_TEXT}
    fig.update_xaxes(**axis, title_standoff=10)
    fig.update_yaxes(**axis, title_standoff=10)
    return fig.update_layout(**layout)


def ceiling_line(fig: Any, at: float, text: str) -> None:
    """Draw what nobody can beat as a line, named above the plot, over the names of other lines. fig: figure or canvas.

    `text` must be escaped.
    """
    fig.add_vline(x=at, line={"dash": "dash", "width": 1.5, "color": VIOLET}, layer="below")
    options = {"yref": "paper", "yanchor": "bottom", "xanchor": "right", "xshift": 6, "yshift": CEILING_LIFT}
    note(fig, text, at, 1.0, **options, font={"size": 12, "color": VIOLET})


def for_paper(fig: go.Figure) -> go.Figure:
    """Return a copy for an exported file: ink on white paper, without Streamlit's template."""
    copy = go.Figure(fig)
    copy.update_layout(template="plotly_white", font={"family": FONT, "color": INK, "size": 13})
    return copy


def note(fig: go.Figure, text: str, x: Any, y: Any, **options: Any) -> go.Figure:
    """Write a label straight into a figure, without an arrow. `text` must be escaped (words.escape).

    Its colour (`font`) may be one of data: it is written in the one that can be read.
    """
    font = {"size": 12, "color": INK, **options.pop("font", {})}
    font["color"] = TEXT.get(font["color"], (font["color"],))[0]
    return fig.add_annotation(
        **{"x": x, "y": y, "text": text, "showarrow": False, "font": font, "xanchor": "left", **options}
    )
