"""Tests of several labels in; the matrix label by artifact as HTML out, colour, sign and word in every cell."""

from typing import Any

import pandas as pd

from auditcore.figures import theme
from auditcore.figures.tables import table_html
from auditcore.findings import corrected
from auditcore.findings.attributes import cell_words, matrix
from auditcore.findings.ceiling import NAME, ceiling_of
from auditcore.findings.vectors import together
from auditcore.verdict import SYMBOLS
from auditcore.words import NONE, count, escape, interval, known, percent, shorten, signed


def attribute_matrix(found: pd.DataFrame, ceilings: pd.DataFrame | None = None) -> str:
    """A line per label, a column per artifact, in each cell every attacker: LeakageGap, 90 % interval, verdict.

    found: `findings.corrected.every_test`; ceilings: the run's table, or None. The last column is the label's verdict
    over all its attackers and layers, corrected over all tests of the run.
    """
    best, said = matrix(found), corrected.verdicts(found, "attribute")
    artifacts = [str(a) for a in dict.fromkeys(found["artifact"])]
    several = found["layer"].nunique() > 1
    head = '<tr><th scope="col">sensitive label</th>'
    head += "".join(f'<th scope="col">{escape(shorten(a, 24))}</th>' for a in artifacts)
    head += '<th scope="col">all attackers<small>after the correction</small></th></tr>'
    body = []
    for attribute, mine in best.groupby("attribute", sort=False):
        cells = "".join(_cell(mine[mine["artifact"] == a], several) for a in artifacts)
        word = said.get(str(attribute), "no verdict")
        body.append(
            f'<tr><th scope="row">{escape(shorten(attribute, 40))}{_about(mine, ceilings)}</th>{cells}'
            f'<td class="df-cell" style="--hue:{_hue(word)}"><b>{SYMBOLS.get(word, "")} {escape(word)}</b></td></tr>'
        )
    return table_html(head, "".join(body))


def _about(rows: pd.DataFrame, ceilings: pd.DataFrame | None) -> str:
    """Classes, guessing, test subjects and ceiling of one label: what its gaps are measured by."""
    first = rows.iloc[0]
    top = ceiling_of(ceilings, str(first["attribute"]), str(first["split"]))
    lines = [f"{count(first['n_classes'])} classes, guessing {percent(first['chance'], 0)}"]
    lines.append(f"{count(rows['n_subjects'].max())} test subjects")
    lines += [f"{NAME} {percent(top)}"] if top is not None else []
    return "".join(f"<small>{line}</small>" for line in lines)


def _cell(rows: pd.DataFrame, several: bool) -> str:
    if rows.empty:
        return f"<td>{NONE}</td>"
    hue = _hue(str(together(rows["verdict"])))
    return f'<td class="df-cell" style="--hue:{hue}">{"".join(_line(r, several) for r in rows.to_dict("records"))}</td>'


def _line(row: dict[Any, Any], several: bool) -> str:
    word, taken_back = cell_words(row)
    layer = f", layer {int(row['layer'])}" if several and known(row["layer"]) else ""
    spread = interval(row["signed_low90"], row["signed_high90"])
    more = f"<small>{escape(taken_back)}</small>" if taken_back else ""
    return (
        f"<div><b>{signed(row['signed_gap'])}</b> {escape(row['probe'])}{layer}<small>{spread}</small>"
        f'<small class="df-word" style="--hue:{_hue(word)}">{SYMBOLS.get(word, "")} {escape(word)}</small>{more}</div>'
    )


def _hue(word: str) -> str:
    return theme.VERDICT_COLOURS.get(word, theme.QUIET)
