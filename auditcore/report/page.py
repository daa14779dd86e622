"""A run in; one self-contained HTML file out: finding, verdicts, figures, what was and was not audited.

No row of the data stands in it, only aggregates; counts of fewer than 10 subjects are suppressed. Nothing is loaded
from anywhere: plotly.js is inlined once, and a content policy forbids everything else.
"""

from importlib.resources import files
from typing import Any

import pandas as pd

from auditcore import cards, decisions, findings, records, summary, words
from auditcore.figures import stack
from auditcore.findings import ceiling
from auditcore.findings import defences as told
from auditcore.report import checkpoints, tables, vectors
from auditcore.report.parts import plot as _plot
from auditcore.report.parts import section as _section
from auditcore.report.parts import table as _table
from auditcore.store import Run
from auditcore.verdict import JUDGED, MEANINGS, SYMBOLS
from auditcore.words import escape, isolated, sentence_html

_POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
_TITLES = {
    "membership": "Remembered rows",
    "vectors": "Exported vectors",
    "finetune": "Fine-tuning",
    "sweep": "Fine-tuning methods",
    "surfacelora": "Training a mitigation",
    "frontier": "Checkpoints",
}


def html_report(run: Run) -> str:
    """Build the report of a run, whatever is there of it already."""
    manifest = run.manifest
    spec = manifest["spec"]
    name = str(spec.get("name") or run.id)
    figures = _figures(run)
    parts = [
        _head(run, name),
        _warnings(run),
        _cards(run),
        *[section for section, _ in figures],
        _verdicts(run),
        *tables.sections(run),
        _records(run),
        _claims(manifest),
        _facts(run),
    ]
    script = _plotly_script() if any(has_plot for _, has_plot in figures) else ""
    style = files("auditcore.report").joinpath("report.css").read_text(encoding="utf-8") + stack.css("38rem")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(words.shorten(name, 80))}</title><style>{style}</style>{script}</head>"
        f"<body><main>{''.join(parts)}</main></body></html>\n"
    )


def _head(run: Run, name: str) -> str:
    finding = summary.finding(run)
    finished = words.when(run.manifest.get("finished"))
    state = f"finished {finished}" if run.status == "done" else f"{run.status}, not finished"
    lead = f'<p class="lead">{sentence_html(finding)}</p>' if finding else ""
    kind = _TITLES.get(run.kind, run.kind)
    lead += "".join(f'<div class="warning">{sentence_html(s)}</div>' for s in summary.giveaway_sentences(run))
    return f'<p class="quiet">{escape(kind)} · {escape(state)}</p><h1>{isolated(name)}</h1>{lead}'


def _warnings(run: Run) -> str:
    items = summary.warnings(run)
    if run.status != "done":
        message = str(run.manifest.get("message") or "Numbers that are missing were not computed yet.")
        items.insert(0, f"This run is {run.status}. {message}")
    if not items:
        return ""
    rows = "".join(f"<li>{isolated(item)}</li>" for item in items)
    return f'<div class="warning"><b>Read this first</b><ul>{rows}</ul></div>'


def _cards(run: Run) -> str:
    drawn = "".join(
        f'<div class="card">{pill(card.verdict)}<p>{sentence_html(card.what)}</p>'
        f'<p class="number">{escape(card.number)}</p>'
        f'<p class="quiet">{"<br>".join(sentence_html(d) for d in card.details)}</p></div>'
        for card in cards.of_run(run)
    )
    return f'<div class="cards">{drawn}</div>' if drawn else ""


def pill(verdict: str) -> str:
    """A verdict as symbol and words."""
    kind = verdict.replace(" ", "-") if verdict in SYMBOLS else "none"
    return f'<span class="pill {kind}">{SYMBOLS.get(verdict, "")} {escape(verdict or "no verdict")}</span>'


def _figures(run: Run) -> list[tuple[str, bool]]:
    """Sections with one figure each, and whether they need plotly."""
    made: list[tuple[str, bool]] = []
    if run.kind == "membership" and run.has("roc") and run.has("attack_metrics"):
        made.append(_roc(run))
    if run.kind == "sweep" and run.has("sweep"):
        made += _sweep(run)
    if decisions.has_checkpoints(run):
        made += checkpoints.sections(run)
    if run.has("training_log"):
        made += _training(run)
    if run.kind == "vectors" and run.has("probe_metrics"):
        best = findings.leakiest(run.read("probe_metrics"))
        made += vectors.labels(run)
        made += [_artifacts(run, best, str(a), i) for i, a in enumerate(best["attribute"].unique())]
        made += [_baselines(a, *held, i) for i, (a, held) in enumerate(summary.baselines(run).items())]
        made += vectors.depth(run)
        made += [_curve(run, a, *found, i) for i, (a, found) in enumerate(summary.curves(run).items())]
        made += [_defences(run, a, table, i) for i, (a, table) in enumerate(summary.defences(run).items())]
        made += [_texts(run, a, rows, i) for i, (a, rows) in enumerate(summary.text_axes(run).items()) if len(rows)]
    return made


def _roc(run: Run) -> tuple[str, bool]:
    from auditcore.figures.membership import curves, roc_figure

    metrics = run.read("attack_metrics")
    if metrics.empty:
        return "", False
    drawn = curves(run.read("roc"), int(metrics["n_nonmember"].max()))
    title = "Training rows found against other rows falsely accused"
    note = "Both axes are logarithmic. Rates pool all rows: they are not error rates for one person."
    best = findings.strongest_attack(metrics)
    fig = roc_figure(drawn, findings.HEADLINE_FPR, best=None if best is None else str(best["attack"]))
    return _section(title, _plot(fig, "roc"), note), True


def _training(run: Run) -> list[tuple[str, bool]]:
    from auditcore.figures import training

    log = run.read("training_log", order_by="step")
    best = (run.manifest.get("training") or {}).get("best_step")
    text = words.plain(training.training_finding(log, best))
    body = _plot(training.loss_figure(log, best), "loss") if len(log) else ""
    made = [(_section("Loss while it was trained", body, text), bool(body))]
    if training.has_adversaries(log):
        known = run.has("checkpoints") and "moment" not in run.manifest["spec"].get("adversary", [])
        classes = run.read("checkpoints", ["attribute", "n_classes"]).drop_duplicates() if known else pd.DataFrame()
        guess = training.guessing(classes["n_classes"].tolist()) if known else None
        said = words.plain(training.adversary_finding(log, guess))
        made.append(
            (_section("Adversaries in the loop", _plot(training.adversary_figure(log, guess), "adv"), said), True)
        )
        said = words.plain(training.gradients_finding(log))
        made.append((_section("The two gradients", _plot(training.gradients_figure(log), "gradients"), said), True))
    return made


def _sweep(run: Run) -> list[tuple[str, bool]]:
    from auditcore import findings
    from auditcore.figures.sweep import loss_figure, steps_figure, sweep_table

    sweep, matched = run.read("sweep"), run.read("matched")
    rate, made = findings.finest_rate(sweep), []
    for number, attack in enumerate(dict.fromkeys(sweep["attack"])):
        rows, name = findings.at_rate(sweep, attack, rate), findings.attack_name(attack)
        over, equal = findings.checkpoints_finding(rows, attack, rate), findings.matched_finding(matched, attack, rate)
        body = _plot(steps_figure(rows, rate), f"steps-{number}") + sweep_table(rows, rate)
        made.append((_section(f"{name}: leakage over training", body, words.plain(over)), True))
        body = _plot(loss_figure(rows, matched, rate), f"equal-{number}")
        made.append((_section(f"{name}: leakage at the same validation loss", body, words.plain(equal)), True))
    return made


def _artifacts(run: Run, best: pd.DataFrame, attribute: str, number: int) -> tuple[str, bool]:
    from auditcore.figures.overview import artifact_comparison

    rows = best[best["attribute"] == attribute]
    top = ceiling.ceiling_row(summary.ceilings(run), attribute, str(rows["split"].iloc[0]))
    figure = artifact_comparison(
        best, attribute, run.manifest["spec"].get("budget"), None if top is None else top["ceiling"]
    )
    title = f"How well {words.shorten(attribute, 60)} is read from each vector"
    note = (
        f"Strongest probe per artifact on {rows['split'].iloc[0]}, {words.count(rows['n_subjects'].iloc[0])} subjects; "
        "bars are 95 % intervals over subjects, conditional on the fitted probes; "
        "the band is the budget around chance. " + words.plain(ceiling.ceiling_sentence(top, rows.iloc[0]))
    )
    return _section(title, _plot(figure, f"artifacts-{number}"), note), True


def _baselines(attribute: str, metrics: pd.DataFrame, rows: pd.DataFrame, number: int) -> tuple[str, bool]:
    """The probe and layer that tell most of each artifact, against what is held anyway."""
    from auditcore.figures.baselines import differences_figure
    from auditcore.findings.baselines import RULE, baselines_finding, leading

    if rows.empty:
        return "", False
    title = f"Does a vector tell more or less of {words.shorten(attribute, 60)} than what its recipient already holds?"
    note = f"{words.plain(baselines_finding(metrics, rows, attribute))} Strongest probe and layer of each. {RULE}"
    return _section(title, _plot(differences_figure(leading(rows)), f"baselines-{number}"), note), True


def _curve(run: Run, attribute: str, points: pd.DataFrame, more: pd.DataFrame, number: int) -> tuple[str, bool]:
    """The artifact that tells most; figure and table."""
    from auditcore.figures.curve import curve_figure
    from auditcore.findings.curve import RULE, curve_finding, leading

    artifact = leading(points)
    mine, beyond = points[points["artifact"] == artifact], more[more["artifact"] == artifact]
    told = words.plain(curve_finding(points, more, artifact, float(run.manifest["spec"]["budget"])))
    title = f"{words.shorten(attribute, 60)}: an attacker with fewer rows, and with more"
    top = ceiling.ceiling_of(summary.ceilings(run), attribute, str(mine["split"].iloc[0]))
    body = _plot(curve_figure(mine, beyond, ceiling=top), f"curve-{number}")
    return _section(title, body, f"{told} {RULE}"), True


def _defences(run: Run, attribute: str, table: pd.DataFrame, number: int) -> tuple[str, bool]:
    """The leakiest artifact behind every defence; the rest stands in the table of probes."""
    from auditcore.figures.defences import gaps_figure

    metrics, budget = run.read("probe_metrics"), float(run.manifest["spec"]["budget"])
    lead = table.sort_values("signed_gap", ascending=False, kind="stable").iloc[0]
    split = "bal_test" if (metrics["split"] == "bal_test").any() else "bal_val"
    rows = told.defended(metrics, attribute, split)
    rows = rows[(rows["artifact"] == lead["artifact"]) & (rows["layer"] == lead["layer"])]
    mine = table[(table["artifact"] == lead["artifact"]) & (table["layer"] == lead["layer"])]
    top = ceiling.ceiling_of(summary.ceilings(run), attribute, split)
    title = f"What defences leave of {words.shorten(attribute, 60)} in {words.shorten(lead['artifact'], 40)}"
    note = f"{words.plain(told.defences_finding(table, attribute, budget))} {told.fit_sentence(table)}"
    note += " Lines are 90 % intervals over subjects, conditional on the fitted defence and probes."
    return _section(title, _plot(gaps_figure(rows, budget, told.marks(mine), top), f"defences-{number}"), note), True


def _texts(run: Run, attribute: str, rows: pd.DataFrame, number: int) -> tuple[str, bool]:
    from auditcore.figures.outputs import axis_figure
    from auditcore.findings.outputs import axis_note, outputs_finding

    title = f"Where {words.shorten(attribute, 60)} is, text by text and vector by vector"
    note = f"{words.plain(outputs_finding(rows, attribute))} {axis_note(rows)}"
    top = ceiling.ceiling_of(summary.ceilings(run), attribute)
    return _section(title, _plot(axis_figure(rows, top), f"texts-{number}"), note), True


def _plotly_script() -> str:
    from plotly.offline import get_plotlyjs

    return f'<script type="text/javascript">{get_plotlyjs()}</script>'


def _verdicts(run: Run) -> str:
    if not run.has("verdicts"):
        return ""
    rows = []
    for row in run.read("verdicts").to_dict("records"):
        together = "all artifacts" if row["kind"] == "vectors" else "training rows"
        what = row["artifact"] if isinstance(row["artifact"], str) else together
        attribute = row["attribute"] if isinstance(row["attribute"], str) else ""
        layer = f", layer {int(row['layer'])}" if words.known(row["layer"]) else ""
        attacker = "all declared attackers" if row["attacker"] == "all" else str(row["attacker"])
        attacker += f" behind {row['defence']}" if row.get("defence") not in (None, "none") else ""
        cells = [attribute, f"{what}{layer}", attacker]
        numbers = [words.signed(row["value"]), words.interval(row["low"], row["high"]), words.number(row["budget"])]
        numbers.append(words.count(row["n_subjects"]))
        rows.append(
            "<tr>"
            + "".join(f"<td>{isolated(c)}</td>" for c in cells)
            + "".join(f'<td class="num">{escape(n)}</td>' for n in numbers)
            + f"<td>{pill(str(row['verdict']))}</td></tr>"
        )
    names = ("attribute", "measured", "attacker", "above chance", "90 % interval", "budget", "subjects", "verdict")
    meanings = " ".join(f"{name[:1].upper()}{name[1:]}: {text}." for name, text in MEANINGS.items())
    return _section("Verdicts", _table(names, "".join(rows)), f"{meanings} {JUDGED}")


def _records(run: Run) -> str:
    """What was declared, locked, revealed, voted and decided."""
    lines = summary.record_lines(run)
    if not lines:
        return ""
    items = "".join(
        f'<li><span class="quiet">{escape(time)}</span> {sentence_html(sentence)}</li>' for time, sentence in lines
    )
    broken = "".join(f"<p><b>{escape(problem)}</b></p>" for problem in records.problems(run))
    return _section("What was declared and decided", f"{broken}<ol>{items}</ol>", "Records are only ever added to.")


def _claims(manifest: dict[str, Any]) -> str:
    claim = manifest.get("claim") or {}
    if not claim:
        return _section("What this report claims", "<p>Nothing: this run has no finished verdict.</p>")
    text = "".join(f"<p>{isolated(claim[k])}</p>" for k in ("audited", "not_audited") if claim.get(k))
    return _section("What was audited, and what was not", text)


def _facts(run: Run) -> str:
    manifest = run.manifest
    spec = manifest["spec"]
    pairs: list[tuple[str, object]] = [
        ("run", run.id),
        ("kind", run.kind),
        ("created", words.when(manifest["created"])),
    ]
    pairs += [(f"model: {k}", v) for k, v in (spec.get("model") or {}).items() if v is not None]
    data = manifest.get("data") or {}
    pairs += [("data", spec["data"]["path"]), ("rows", data.get("rows"))]
    pairs += [("template", spec.get("template")), ("longest text, tokens", spec.get("max_length"))]
    pairs += [("device", manifest.get("device")), ("dtype", manifest.get("dtype")), ("seed", spec.get("seed"))]
    pairs += [(f"fingerprint: {k}", str(v)[:16] if v else v) for k, v in (manifest.get("fingerprints") or {}).items()]
    pairs += [(f"version: {k}", v) for k, v in (manifest.get("versions") or {}).items()]
    shown = "".join(f"<dt>{escape(k)}</dt><dd>{isolated(v)}</dd>" for k, v in pairs if v not in (None, ""))
    notes = "".join(f"<li>{isolated(n)}</li>" for n in data.get("notes") or [])
    return _section("How it was made", f"<dl>{shown}</dl>" + (f"<ul>{notes}</ul>" if notes else ""))
