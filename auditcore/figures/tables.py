"""Table `attack_metrics` in; the table of attacks out, as HTML with every name escaped. For pages and reports."""

from collections.abc import Mapping, Sequence

import pandas as pd

from auditcore.figures import stack
from auditcore.figures.membership import colours
from auditcore.findings import attack_name, p_words, points, tie_reason
from auditcore.verdict import SYMBOLS, point_rule
from auditcore.words import (
    NONE,
    count,
    counted,
    duration,
    escape,
    known,
    number,
    percent,
    percent_interval,
    shorten,
    signed,
)

_LEVEL95, _LEVEL90 = "<small>95 % interval</small>", "<small>90 % interval</small>"


def attack_table(
    metrics: pd.DataFrame,
    target_fpr: float,
    passes: Mapping[str, int],
    needed: int | None,
    said: Mapping[str, str] | None = None,
) -> str:
    """One line per attack, best first: AUC, TPR at `target_fpr` with intervals, realised FPR, forward passes per row.

    needed: non-members that would resolve `target_fpr`, said where a value is missing; said: what stands there instead
    for some attacks.
    """
    rows = points(metrics, target_fpr)
    auc = metrics[metrics["metric"] == "auc"].set_index("attack")
    hues = colours(list(dict.fromkeys(metrics["attack"])), str(rows["attack"].iloc[0]) if len(rows) else None)
    body = "".join(_line(row, auc, hues, passes, needed, said or {}) for row in rows.to_dict("records"))
    rate = percent(target_fpr, 0 if target_fpr >= 0.01 else 1)
    head = (
        f'<tr><th scope="col">attack</th><th scope="col">rows found at {rate} false accusations'
        f'{_LEVEL95}</th><th scope="col" class="num">AUC{_LEVEL95}</th><th scope="col" class="num">realised</th>'
        '<th scope="col" class="num">passes</th></tr>'
    )
    return table_html(head, body)


def _line(
    row: dict,
    auc: pd.DataFrame,
    hues: dict[str, str],
    passes: Mapping[str, int],
    needed: int | None,
    said: Mapping[str, str],
) -> str:
    name = str(row["attack"])
    area = auc.loc[name] if name in auc.index else None
    if known(row["value"]):
        between = percent_interval(row["low"], row["high"])
        spread = between if between != NONE else "too few for an interval"
        found = f"<b>{percent(row['value'])}</b> {bar(row, hues[name])}<small>{spread}</small>"
    elif name in said:
        found = f'<small class="at-why">{escape(said[name])}</small>'
    elif not row["n_member"] and not row["n_nonmember"] and row["n_no_evidence"]:
        found = '<small class="at-why">no row of known membership holds evidence</small>'
    elif why := tie_reason(row):
        found = f'<small class="at-why">{escape(why)}</small>'
    else:
        more = f" ({count(needed)} needed)" if needed is not None else ""
        found = f'<small class="at-why">not resolved by {count(row["n_nonmember"])} non-members{more}</small>'
    value, between = (NONE, "") if area is None else (number(area["value"]), _between(area["low"], area["high"]))
    return (
        f'<tr><th scope="row"><i class="at-dot" style="background:{hues[name]}"></i>{escape(attack_name(name))}</th>'
        f'<td class="at-found">{found}</td><td class="num">{value}<small>{between}</small></td>'
        f'<td class="num">{percent(row["realised_fpr"], 2)}</td><td class="num">{count(passes.get(name))}</td></tr>'
    )


def cost_table(costs: Sequence[Mapping[str, object]]) -> str:
    """One line per attack: its paper, what it has to read, forward passes per row, and what is trained for it.

    costs: what `findings.attack_costs` gives, or the plan of a run, which knows the time an attack alone takes too.
    """
    timed = any("seconds" in one for one in costs)
    columns = ("attack", "paper", "reads", "passes", "trains", *(["alone, here"] if timed else []))
    head = "".join(f'<th scope="col"{" class=num" if c == "passes" else ""}>{c}</th>' for c in columns)
    body = ""
    for one in costs:
        passes = "none" if one["passes"] == 0 else count(one["passes"])
        body += (
            f'<tr><th scope="row">{escape(attack_name(str(one["attack"])))}</th><td>{escape(one["paper"])}</td>'
            f'<td>{escape(one["access"])}</td><td class="num">{passes}</td>'
            f"<td>{escape(one['training'] or 'nothing')}</td>"
            + (f"<td>about {duration(one.get('seconds'))}</td></tr>" if timed else "</tr>")
        )
    return table_html(f"<tr>{head}</tr>", body)


def _between(low: object, high: object) -> str:
    return f"{number(low)} to {number(high)}" if known(low) and known(high) else ""


def bar(row: dict, hue: str) -> str:
    """A bar from 0 to 100 % with its 95 % interval as a line, no text on it."""
    value = 100 * float(row["value"])
    whisker = ""
    if known(row["low"]) and known(row["high"]):
        low, high = 100 * float(row["low"]), 100 * float(row["high"])
        whisker = f'<i class="at-i" style="left:{low:.2f}%;width:{max(high - low, 0.5):.2f}%"></i>'
    return f'<span class="at-bar"><i style="width:{value:.2f}%;background:{hue}"></i>{whisker}</span>'


def probe_table(rows: pd.DataFrame, budget: float, n_seeds: int) -> str:
    """One line per attacker in the order given: accuracy, gap, both intervals, null band, sizes, verdict.

    rows: seed-averaged rows of `probe_metrics`.
    """
    several = rows["layer"].nunique() > 1
    columns = (
        ("attacker", ""),
        (f"accuracy{_LEVEL95}", "num"),
        ("guessing", "num"),
        (f"LeakageGap{_LEVEL90}", "num"),
        ("verdict", ""),
        ("permuted<small>mean / 95th</small>", "num"),
        ("rows<small>fit / test</small>", "num"),
        ("subjects", "num"),
        ("estimate alone", ""),
    )
    head = "".join(f'<th scope="col" class="{kind}">{name}</th>' for name, kind in columns)
    body = "".join(_probe_line(row, several, budget, n_seeds) for row in rows.to_dict("records"))
    return table_html(f"<tr>{head}</tr>", body)


def table_html(head: str, body: str) -> str:
    """A table whose cells stand under each other on a narrow screen, from rows whose text is escaped."""
    return stack.table(head, body, "ac-table at")


NOT_CONVERGED = ", not converged: a longer fit may read more"


def _probe_line(row: dict, several: bool, budget: float, n_seeds: int) -> str:
    layer = f"layer {int(row['layer'])}, " if several and known(row["layer"]) else ""
    seeds = f"{layer}{counted(n_seeds, 'seed')}" + ("" if row["converged"] else NOT_CONVERGED)
    verdict = str(row["verdict"]) if isinstance(row["verdict"], str) else "no verdict"
    rule = "would pass" if point_rule(row["signed_gap"], budget) else "would not pass"
    name = f"{escape(shorten(row['artifact'], 40))} · {escape(row['probe'])}"
    return (
        f'<tr><th scope="row">{name}<small>{seeds}</small></th>'
        + _number(percent(row["accuracy"]), percent_interval(row["accuracy_low"], row["accuracy_high"]))
        + _number(percent(row["chance"]))
        + _number(signed(row["signed_gap"]), _between(row["signed_low90"], row["signed_high90"]))
        + f"<td>{SYMBOLS.get(verdict, '')} {escape(verdict)}</td>"
        + _number(f"{percent(row['null_mean'])} / {percent(row['null_p95'])}", f"p {p_words(row)}")
        + _number(f"{count(row['n_train'])} / {count(row['n_eval'])}")
        + _number(count(row["n_subjects"]))
        + f"<td>{rule}</td></tr>"
    )


def _number(value: str, under: str = "") -> str:
    return f'<td class="num">{value}<small>{under}</small></td>'
