"""Tables of a run in; sections of the report as HTML out. Counts of fewer than 10 subjects are suppressed."""

from collections.abc import Callable, Mapping

import pandas as pd

from auditcore import findings, summary, words
from auditcore.figures.tables import NOT_CONVERGED
from auditcore.findings import baselines as held_anyway
from auditcore.findings import outputs
from auditcore.report.parts import number_cell, section, table
from auditcore.store import Run
from auditcore.words import isolated

FEWEST = 10  # subjects behind a published count


def sections(run: Run) -> list[str]:
    """Every table section this run can fill."""
    made = []
    if run.has("attack_metrics"):
        blind = [run.read("blind")] if run.has("blind") else []
        metrics = pd.concat([run.read("attack_metrics"), *blind], ignore_index=True)
        made.append(attacks(metrics, findings.no_difference(run.manifest)))
        made.append(costs(findings.attack_costs(run.manifest["spec"])))
        made.append(subjects(run))
    elif run.has("blind"):  # a sweep: its attacks stand beside its figures
        made.append(attacks(run.read("blind")))
    if run.has("probe_metrics"):
        made.append(probes(run.read("probe_metrics")))
        made += [baselines(a, *held) for a, held in summary.baselines(run).items()]
        made += [curve(a, *found) for a, found in summary.curves(run).items()]
        made += [defences(a, table) for a, table in summary.defences(run).items()]
        if run.has("generation_metrics"):
            made.append(summaries(run.read("generation_metrics")))
        if run.has("predictions") and run.has("examples"):
            made.append(recall(run))
    return [m for m in made if m]


def attacks(metrics: pd.DataFrame, said: Mapping[str, str] | None = None) -> str:
    """One line per attack: AUC and the rows found at each false alarm rate, with intervals; what was not measured."""
    if metrics.empty:
        return ""
    rates = sorted(metrics["target_fpr"].dropna().unique())
    rows = []
    for attack, lines in metrics.groupby("attack", sort=False):
        auc = lines[lines["metric"] == "auc"].to_dict("records")
        cells = [_with_interval(words.number(auc[0]["value"]), auc[0], words.interval)] if auc else [words.NONE]
        for rate in rates:
            at = lines[(lines["metric"] == "tpr") & (lines["target_fpr"] == rate)].to_dict("records")
            found = at and words.known(at[0]["value"])
            why = "tied scores" if at and findings.tie_reason(at[0]) else "not measured"
            cells.append(
                _with_interval(words.percent(at[0]["value"]), at[0], words.percent_interval)
                if found
                else (said or {}).get(str(attack), why)
            )
        rows.append(_row([findings.attack_name(str(attack))], cells))
    notes = " ".join(words.plain(n) for n in findings.unresolved_notes(metrics))
    head = ("attack", "AUC", *(f"found at {100 * r:g} % false alarms" for r in rates))
    return _table("Attacks, with 95 % intervals", head, rows, notes)


def subjects(run: Run) -> str:
    """Two lines where rows share subjects: of how many is a row called a training row? No subject is named."""
    counted = summary.subjects(run)
    if counted is None:
        return ""
    found, attack, fpr = counted
    rows = []
    for line in found.rates.to_dict("records"):
        few, some = line["n_subjects"] < FEWEST, 0 < line["n_found"] < FEWEST
        n = f"fewer than {FEWEST}" if few else words.count(line["n_subjects"])
        hits = f"fewer than {FEWEST}" if some else words.count(line["n_found"])
        share = words.percent(line["share"]) if words.known(line["share"]) else words.NONE
        cells = [n, words.count(line["n_rows"]), hits]
        cells.append("suppressed" if few or some else _with_interval(share, line, words.percent_interval))
        rows.append(_row([line["kind"]], cells))
    head = ("subjects", "how many", "rows", "with a row called training", "share (95 % interval)")
    return _table("Subjects", head, rows, words.plain(findings.subjects_finding(found, attack, fpr, FEWEST)))


def costs(found: list[dict]) -> str:
    """One line per attack: its paper, what it reads, forward passes per row, what is trained for it."""
    rows = [
        _row(
            [findings.attack_name(one["attack"]), one["paper"], one["access"], one["training"] or "nothing"],
            ["none" if one["passes"] == 0 else words.count(one["passes"])],
        )
        for one in found
    ]
    note = "Passes are counted for each attack alone; attacks that read the same numbers share them."
    return _table(
        "What each attack reads and costs", ("attack", "paper", "reads", "trains", "passes a row"), rows, note
    )


def _with_interval(value: str, row: dict, write: Callable[..., str]) -> str:
    spread = write(row["low"], row["high"])
    return value if spread == words.NONE else f"{value} ({spread})"


def probes(metrics: pd.DataFrame) -> str:
    """One line per attribute, artifact, layer and probe on the test split, seeds averaged."""
    pooled = metrics[metrics["seed"].isna()]
    several = pooled["attribute"].nunique() > 1
    tested = pooled[pooled["split"] == "bal_test"]
    rows = []
    for row in (tested if len(tested) else pooled).to_dict("records"):
        behind = f" behind {row['defence']}" if row["defence"] != "none" else ""
        probe = str(row["probe"]) + ("" if bool(row["converged"]) else NOT_CONVERGED)
        certain = dict(zip(("low", "high"), findings.confident_interval(row), strict=True))
        names = [row["attribute"]] if several else []
        names += [f"{row['artifact']}, layer {row['layer']}{behind}", probe]
        cells = [
            f"{words.percent(row['accuracy'])} ({words.percent_interval(row['accuracy_low'], row['accuracy_high'])})",
            f"{words.percent(row['chance'])} / {words.percent(row['null_p95'])}",
            f"{words.signed(row['signed_gap'])} ({words.interval(row['signed_low90'], row['signed_high90'])})",
            findings.p_words(row),
            words.count(row["n_subjects"]),
            f"{words.number(row['v_information_bits'], 2)} / {words.number(row.get('mdl_bits'), 2)}",
            _with_interval(words.percent(row["confident_share"]), certain, words.percent_interval),
        ]
        rows.append(_row(names, cells))
    head = (*(["attribute"] if several else []), "read from", "by", "accuracy (95 % interval)")
    head += ("guessing / permuted labels, 95th percentile", "LeakageGap (90 % interval)", "p", "subjects")
    more = ("V-information / code length, bits a row", "named with near certainty (95 % interval)")
    note = findings.null_sentence(tested if len(tested) else pooled)
    of = "" if several or pooled.empty else f", {words.shorten(pooled['attribute'].iloc[0], 60)}"
    return _table(f"Probes on the test split{of}", (*head, *more), rows, note)


def baselines(attribute: str, metrics: pd.DataFrame, moved: pd.DataFrame) -> str:
    """One line per baseline, then one per probe with its difference from each baseline."""
    names = [str(b) for b in metrics["baseline"]]
    rows = []
    for row in metrics.to_dict("records"):
        value, spread = held_anyway.accuracy_words(row)
        cells = [f"{value} ({spread})", *[words.NONE] * len(names), words.count(row["n_subjects"])]
        rows.append(_row([held_anyway.baseline_name(row["baseline"]), "baseline"], cells))
    for (artifact, layer, probe), part in moved.groupby(["artifact", "layer", "probe"], sort=False):
        by = {str(one["baseline"]): one for one in part.to_dict("records")}
        over = [f"{outputs.points(by[n]['change'])} ({held_anyway.spread(by[n])})" for n in names]
        cells = [words.percent(part["accuracy"].iloc[0]), *over, words.count(part["n_subjects"].max())]
        rows.append(_row([f"{artifact}, layer {layer}", probe], cells))
    heads = [f"over {held_anyway.baseline_name(name)}, points (95 % interval)" for name in names]
    title = f"What vectors add to what is held anyway of {words.shorten(attribute, 60)}"
    return _table(title, ("read from", "by", "accuracy", *heads, "subjects"), rows, held_anyway.RULE)


def curve(attribute: str, points: pd.DataFrame, more: pd.DataFrame) -> str:
    """One line per artifact, probe and size; then what is extrapolated, or why it is not."""
    rows = []
    for (artifact, probe), part in points.groupby(["artifact", "probe"], sort=False):
        for row in part.to_dict("records"):
            spread = words.percent_interval(row["accuracy_low"], row["accuracy_high"])
            cells = [words.count(row["n_train"]), f"{words.percent(row['accuracy'])} ({spread})", "measured"]
            rows.append(_row([artifact, probe], cells))
        beyond = more[(more["artifact"] == artifact) & (more["probe"] == probe)].sort_values("times")
        last = beyond.iloc[-1].to_dict()
        spread = words.percent_interval(last["low"], last["high"])
        value = f"{words.percent(last['accuracy'])} ({spread})" if words.known(last["accuracy"]) else words.NONE
        how = f"not extrapolated: {last['refused']}" if last["refused"] else "extrapolated, 95 % band"
        rows.append(_row([artifact, probe], [words.count(last["n_train"]), value, how]))
    head = ("artifact", "probe", "training rows", "accuracy (95 % interval)", "how")
    return _table(f"{words.shorten(attribute, 60)}: accuracy against training rows", head, rows)


def defences(attribute: str, table: pd.DataFrame) -> str:
    """One line per artifact and defence: what the strongest attacker still reads, and what the defence costs."""
    rows = []
    for row in table.to_dict("records"):
        names = [row["artifact"], row["defence"], row["probe"]]
        gap = f"{words.number(row['signed_gap'])} ({words.interval(row['signed_low90'], row['signed_high90'])})"
        overlap = words.percent(row["overlap"], 0)
        if words.known(row["overlap_low"]):
            overlap += f" ({words.percent_interval(row['overlap_low'], row['overlap_high'], 0)})"
        named = f"; {words.percent(row['named'])} named with near certainty" if row["named"] > 0 else ""
        cells = [gap, f"{row['verdict']}{named}", words.listed(row["linear_only"]) or words.NONE, overlap]
        rows.append(_row(names, [*cells, words.percent(row["variance"], 0), words.count(row["n_fit"])]))
    head = ("artifact", "defence", "strongest attacker", "LeakageGap (90 % interval)", "all attackers")
    more = ("reads on where linear falls", "neighbours kept (95 % interval)", "variance kept", "rows fitted on")
    note = (
        "Of the ten nearest rows among the test rows, how many stay; variance: one minus squared change over variance."
    )
    return _table(f"Defences against {words.shorten(attribute, 60)}", (*head, *more), rows, note)


def summaries(scores: pd.DataFrame) -> str:
    """One line per directive: ROUGE with intervals, share of summaries with a meta-term, its paired change."""
    there = [name for name in outputs.ROUGES if name in scores]
    rows = []
    for row in scores.to_dict("records"):
        cells = [f"{words.number(row[n], 1)} ({words.interval(row[f'{n}_low'], row[f'{n}_high'], 1)})" for n in there]
        held, spread = outputs.share_with_interval(row)
        cells += [f"{held} ({spread})", outputs.points(row["contaminated_change"]), words.count(row["n_rows"])]
        rows.append(_row(["as it is" if row["defence"] == "none" else row["defence"]], cells))
    head = ("prompt", *(outputs.ROUGES[n] for n in there), "with a meta-term", "change, points", "summaries")
    note = words.plain(outputs.writing_sentence(scores))
    return _table("Summaries the model wrote, with 95 % intervals", head, rows, note)


def recall(run: Run) -> str:
    """Per-class recall of the strongest probe of each attribute; classes of fewer than 10 subjects are suppressed."""
    best = findings.leakiest(run.read("probe_metrics"))
    rows: list[str] = []
    hidden = 0
    for row in best.sort_values("signed_gap", ascending=False).drop_duplicates("attribute").to_dict("records"):
        for line in _per_class(run, row).to_dict("records"):
            few = line["subjects"] < FEWEST
            hidden += few
            cells = (
                [f"fewer than {FEWEST}", "suppressed"]
                if few
                else [words.count(line["subjects"]), words.percent(line["recall"])]
            )
            rows.append(_row([row["attribute"], f"{row['artifact']}, {row['probe']}", line["actual"]], cells))
    note = f"{words.counted(hidden, 'class', 'classes')} of fewer than {FEWEST} subjects suppressed." if hidden else ""
    return _table("Recall per class, strongest probe", ("attribute", "from", "class", "subjects", "recall"), rows, note)


def _per_class(run: Run, row: dict) -> pd.DataFrame:
    query = """
        select p.actual, count(distinct e."group") as subjects, avg((p.actual = p.predicted)::int) as recall
        from predictions p join examples e using (example_id)
        where p.attribute = ? and p.artifact = ? and p.layer = ? and p.probe = ? and p.split = ? and p.defence = ?
        group by p.actual order by recall desc, p.actual
    """
    keys = ("attribute", "artifact", "layer", "probe", "split", "defence")
    params = [int(row[k]) if k == "layer" else str(row[k]) for k in keys]
    return run.sql(query, params, tables=["predictions", "examples"])


def _row(names: list[object], cells: list[str]) -> str:
    left = "".join(f"<td>{isolated(words.shorten(n, 80))}</td>" for n in names)
    return f"<tr>{left}{''.join(number_cell(c) for c in cells)}</tr>"


def _table(title: str, head: tuple[str, ...], rows: list[str], note: str = "") -> str:
    if not rows:
        return ""
    return section(title, table(head, "".join(rows)), note)
