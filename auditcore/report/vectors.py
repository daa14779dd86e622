"""A vectors run in; its sections of the report on several labels and on many layers out."""

import pandas as pd

from auditcore import findings, summary, words
from auditcore.findings import attributes, corrected, layers
from auditcore.findings.ceiling import NAME, ceiling_of
from auditcore.report.parts import number_cell, plot, section, table
from auditcore.store import Run
from auditcore.words import escape, isolated


def labels(run: Run) -> list[tuple[str, bool]]:
    """The matrix label by artifact and what is corrected, where several labels were audited; needs no plotly."""
    found = corrected.every_test(*_judged(run))
    if found["attribute"].nunique() < 2:
        return []
    said, ceilings = corrected.verdicts(found, "attribute"), summary.ceilings(run)
    rows = []
    for row in attributes.matrix(found).to_dict("records"):
        word, taken_back = attributes.cell_words(row)
        layer = f", layer {int(row['layer'])}" if found["layer"].nunique() > 1 else ""
        names = [row["attribute"], f"{row['artifact']}{layer}", row["probe"]]
        top = ceiling_of(ceilings, str(row["attribute"]), str(row["split"]))
        ends = words.interval(row["signed_low90"], row["signed_high90"])
        cells = [words.percent(row["chance"], 0), words.NONE if top is None else words.percent(top)]
        cells += [f"{words.signed(row['signed_gap'])} ({ends})", words.number(row["p_adjusted"])]
        told = f"{attributes.SYMBOLS.get(word, '')} {word}" + (f", {taken_back}" if taken_back else "")
        left = "".join(f"<td>{isolated(words.shorten(n, 60))}</td>" for n in names)
        right = "".join(number_cell(c) for c in cells)
        rows.append(f"<tr>{left}{right}<td>{escape(told)}</td></tr>")
    head = ("label", "artifact", "attacker", "guessing", NAME, "LeakageGap (90 % interval)", "p, corrected", "verdict")
    lead = "; ".join(f"{words.shorten(a, 60)}: {word}" for a, word in said.items())
    note = words.plain(attributes.family_sentence(found))
    lead = f"<p>All attackers on a label, after the correction: {escape(lead)}.</p>" if lead else ""
    body = lead + table(head, "".join(rows))
    return [(section(f"{len(said) or found['attribute'].nunique()} labels in one run", body, note), False)]


def depth(run: Run) -> list[tuple[str, bool]]:
    """For each label a heat map of accuracy by layer and artifact, where many layers were audited."""
    from auditcore.figures.layers import layers_figure

    metrics, split = _judged(run)
    made = []
    for number, attribute in enumerate(metrics["attribute"].unique()):
        rows = findings.pooled(metrics, str(attribute), split)
        if not layers.swept(rows):
            continue
        cells = layers.by_layer(rows)
        top = ceiling_of(summary.ceilings(run), str(attribute), split)
        title = f"How deep {words.shorten(attribute, 60)} can be read"
        note = f"{words.plain(layers.layers_sentence(cells))} Shown: {layers.probes_in(rows)}, % named correctly; "
        note += "95 % intervals over subjects, conditional on the fitted probes. Every number stands in the table of "
        made.append((section(title, plot(layers_figure(cells, top), f"layers-{number}"), note + "probes."), True))
    return made


def _judged(run: Run) -> tuple[pd.DataFrame, str]:
    metrics = run.read("probe_metrics")
    return metrics, findings.judging_split(metrics)
