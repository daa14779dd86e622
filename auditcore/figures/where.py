"""Shares of raised and lowered shifts in; their table out, as HTML with every name escaped."""

import pandas as pd

from auditcore.figures import theme
from auditcore.figures.tables import bar, table_html
from auditcore.findings import score_number
from auditcore.words import NONE, count, escape, known, percent


def where_table(shares: pd.DataFrame, title: str) -> str:
    """One line per group: members' tokens in the error zone, share of P and of N as bars, P/N of members and of others.

    shares: `membership.where.shares`, its first column the group.
    """
    heads = (title, "tokens", "share of P, raised", "share of N, lowered", "P/N members", "P/N others")
    kinds = ("", "num", "", "", "num", "num")
    head = "".join(f'<th scope="col" class="{k}">{escape(h)}</th>' for h, k in zip(heads, kinds, strict=True))
    body = "".join(_line(row, str(shares.columns[0])) for row in shares.to_dict("records"))
    return table_html(f"<tr>{head}</tr>", body)


def _line(row: dict, by: str) -> str:
    bars = "".join(
        f'<td class="at-found">{percent(row[key], 0)} {bar(_plain(row[key]), hue)}</td>'
        for key, hue in (("p_share", theme.RAISED), ("n_share", theme.LOWERED))
    )
    ratios = "".join(
        f'<td class="num">{score_number(row[key]) if known(row[key]) else NONE}</td>'
        for key in ("ratio", "ratio_others")
    )
    return f'<tr><th scope="row">{escape(row[by])}</th><td class="num">{count(row["n_tokens"])}</td>{bars}{ratios}</tr>'


def _plain(share: float) -> dict:
    """A value without an interval, as `bar` reads it."""
    return {"value": share if known(share) else 0.0, "low": None, "high": None}
