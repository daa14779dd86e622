"""Paired differences of two runs in; their table out, as HTML with every name escaped."""

import pandas as pd

from auditcore.figures.tables import table_html
from auditcore.findings import attack_name
from auditcore.words import NONE, escape, known, number, percent, signed


def comparison_table(differences: pd.DataFrame, name_a: str, name_b: str, target_fpr: float) -> str:
    """One line per attack: rows found by both runs and their difference, AUC of both and their difference."""
    rate = percent(target_fpr, 0 if target_fpr >= 0.01 else 1)
    heads = (
        f"rows found at {rate}: {name_a}",
        name_b,
        "difference",
        f"AUC: {name_a}",
        name_b,
        "difference",
    )
    head = '<th scope="col">attack</th>' + "".join(f'<th scope="col" class="num">{escape(h)}</th>' for h in heads)
    body = "".join(_line(str(attack), rows, target_fpr) for attack, rows in differences.groupby("attack", sort=False))
    return table_html(f"<tr>{head}</tr>", body)


def _line(attack: str, rows: pd.DataFrame, target_fpr: float) -> str:
    at = rows[(rows["metric"] == "tpr") & (rows["target_fpr"] - target_fpr).abs().lt(1e-12)]
    auc = rows[rows["metric"] == "auc"]
    cells = _cells(at, percent) + _cells(auc, number)
    inner = "".join(f'<td class="num">{value}<small>{under}</small></td>' for value, under in cells)
    return f'<tr><th scope="row">{escape(attack_name(attack))}</th>{inner}</tr>'


def _cells(rows: pd.DataFrame, write) -> list[tuple[str, str]]:
    if rows.empty or not known(rows["value_a"].iloc[0]):
        return [("not resolved", ""), ("not resolved", ""), (NONE, "")]
    row = rows.iloc[0]
    spread = f"{signed(row['low'])} to {signed(row['high'])}" if known(row["low"]) else "too few for an interval"
    return [(write(row["value_a"]), ""), (write(row["value_b"]), ""), (signed(row["difference"]), spread)]
