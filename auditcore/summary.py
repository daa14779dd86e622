"""A run in; what it found, in sentences, and rows to compare runs by, out. No streamlit, no torch.

Used by the overview, the list of runs and the report, so that all three say the same.
"""

from collections.abc import Callable, Sequence

import pandas as pd

from auditcore import decisions, findings, records, votes, words
from auditcore.decisions import Frontier
from auditcore.findings import attributes, ceiling, corrected, curve, layers, outputs
from auditcore.findings import baselines as held
from auditcore.findings import defences as told
from auditcore.findings import frontier as say
from auditcore.store import Run
from auditcore.words import Sentence, Strong

Read = Callable[[Run, str], pd.DataFrame]
SUSPECT = "Members and non-members"  # how the warning of the blind baseline begins (membership.blind)


def read_table(run: Run, table: str) -> pd.DataFrame:
    """Read a whole table (pages pass a cached reader instead)."""
    return run.read(table)


def warnings(run: Run) -> list[str]:
    """What a reader must know before any number of a run; first what puts all of its numbers in question."""
    said = [str(w) for w in run.manifest.get("warnings") or []]
    return sorted(said, key=lambda text: not text.startswith(SUSPECT))


def run_verdict(run: Run, read: Read = read_table) -> str:
    """The verdict over everything this run declared; "" when it has none (yet)."""
    return findings.overall(read(run, "verdicts")) if run.has("verdicts") else ""


def giveaway_sentences(run: Run, read: Read = read_table) -> list[Sentence]:
    """Who is given away with near certainty although the average is not over the budget; [] when nobody is."""
    if run.kind != "vectors" or not run.has("probe_metrics"):
        return []
    metrics = read(run, "probe_metrics")
    split = findings.judging_split(metrics)
    sentence = findings.giveaway_sentence(metrics, split)
    return [sentence] if sentence else []


def ceilings(run: Run, read: Read = read_table) -> pd.DataFrame | None:
    """Table `ceilings` of a run on data whose making is known, else None."""
    return read(run, "ceilings") if run.has("ceilings") else None


def vector_sentences(run: Run, read: Read = read_table) -> list[Sentence]:
    """Beyond the finding: the ceiling, the layers, the labels together; for a terminal and a report."""
    if run.kind != "vectors" or not run.has("probe_metrics"):
        return []
    metrics = read(run, "probe_metrics")
    found: list[Sentence] = []
    split = findings.judging_split(metrics)
    every = corrected.every_test(metrics, split)
    if every["attribute"].nunique() > 1:
        found += [attributes.attributes_finding(every), attributes.family_sentence(every)]
    table = ceilings(run, read)
    for attribute in dict.fromkeys(every["attribute"]):
        rows = findings.pooled(metrics, str(attribute), split)
        name = f"{attribute}: " if every["attribute"].nunique() > 1 else ""
        best = rows.sort_values("signed_gap", ascending=False, kind="stable", na_position="last").iloc[0]
        top = ceiling.ceiling_sentence(ceiling.ceiling_row(table, str(attribute), split), best)
        found += [[name, *top]] if top else []
        both = findings.both_sentence(rows.to_dict("records"))
        found += [[name, *both]] if both else []
        if layers.swept(rows):
            found.append([name, *layers.layers_sentence(layers.by_layer(rows))])
    return found


def finding(run: Run, read: Read = read_table) -> Sentence:
    """What a run found, in one sentence; empty when it has no result yet."""
    if run.kind == "membership" and run.has("attack_metrics"):
        return findings.membership_finding(read(run, "attack_metrics"))
    if run.kind == "sweep" and run.has("matched"):
        sweep, matched = read(run, "sweep"), read(run, "matched")
        return findings.matched_finding(matched, str(sweep["attack"].iloc[0]), findings.finest_rate(sweep))
    if run.kind == "vectors" and run.has("probe_metrics"):
        metrics = read(run, "probe_metrics")
        best = findings.leakiest(metrics).sort_values("signed_gap", ascending=False, kind="stable")
        if len(best):
            row, budget = best.iloc[0], float(run.manifest["spec"]["budget"])
            return findings.vectors_finding(metrics, str(row["attribute"]), budget, str(row["split"]))
    if decisions.has_checkpoints(run):
        seen = decisions.view([run], read=read)
        return checkpoint_finding(run, seen, seen.declaration.attributes[0], read)
    return ()


def checkpoint_finding(
    run: Run, seen: Frontier, attribute: str, read: Read = read_table, of_run: dict[str, str] | None = None
) -> Sentence:
    """What the rule chooses among checkpoints; once revealed, what the test rows said of it comes first.

    of_run: run id -> words, where several runs are compared.
    """
    at = seen.at
    cells = [c for c in seen.beside(at, attribute) if c["artifact"] != "concat"]
    plain = seen.anchors[seen.anchors["anchor"] == "utility-only LoRA"].to_dict("records")
    which = of_run[at["run_id"]] if of_run and at is not None and len(seen.runs) > 1 else ""
    sentence = say.frontier_finding(at, seen.selection, seen.declaration, cells, plain[0] if plain else None, which)
    record = decisions.revealed(run)
    if record is None or not run.has("verdicts"):
        return sentence
    name = say.checkpoint_name(record["content"]["chosen"])
    return (*say.reveal_finding(read(run, "verdicts"), name), " On the selection rows: ", *sentence)


def checkpoint_sentences(run: Run, read: Read = read_table) -> list[Sentence]:
    """What a terminal or a report says of a run of checkpoints beyond its finding: rule, rebounds, left out."""
    if not decisions.has_checkpoints(run):
        return []
    seen = decisions.view([run], read=read)
    lines: list[Sentence] = [say.selection_sentence(seen.selection, seen.declaration)]
    if run.kind != "frontier":
        found = decisions.rebounds(run, seen.declaration)
        lines += [
            say.rebound_sentence(found.get((a, b)), b) for a in seen.declaration.attributes for b in seen.artifacts()
        ]
        lines.append((say.REBOUND_RULE,))
    lines += [told for a in seen.declaration.attributes if (told := findings.both_sentence(seen.beside(seen.at, a)))]
    for (_, artifact), cell in decisions.defended(seen, read).groupby(["attribute", "artifact"], sort=False):
        if told := say.defended_sentence(cell, seen.at):
            lines.append((f"{artifact}: ", *told))
    if decisions.revealed(run) is None:
        lines.append((say.SEALED,))
    return lines


def record_lines(run: Run) -> list[tuple[str, Sentence]]:
    """Time and words of every record of a run but its votes, oldest first; then one line that counts the votes."""
    found = records.read(run)
    lines: list[tuple[str, Sentence]] = [
        (words.when(r["time"]), say.record_words(r)) for r in found if r["kind"] != "vote"
    ]
    meetings: dict[frozenset[votes.Candidate], None] = {}
    for record in found:
        if record["kind"] == "vote":
            meetings.setdefault(frozenset((str(r), int(s)) for r, s in record["content"]["order"]))
    for meeting in meetings:
        candidates = sorted(meeting)
        cast = votes.tally(votes.counted([r for r in found if r["kind"] == "vote"], candidates), candidates)
        said = [f"{n} for step {step}" for (_, step), n in cast.wins.items()]
        last = max(r["time"] for r in found if r["kind"] == "vote")
        text = f"Blind votes of {words.counted(cast.reviewers, 'reviewer')} on {words.counted(cast.rows, 'row')}: "
        lines.append(
            (words.when(last), (text, Strong(words.listed(said)), f", {cast.no_difference} without preference."))
        )
    return lines


def defences(run: Run, read: Read = read_table) -> dict[str, pd.DataFrame]:
    """Attribute -> what `findings.defences.summarise` says of its defences; empty when the run tried none."""
    if run.kind != "vectors" or not run.has("probe_metrics"):
        return {}
    metrics = read(run, "probe_metrics")
    if metrics.empty or not told.has_defences(metrics):
        return {}
    split = findings.judging_split(metrics)
    costs = read(run, "defence_costs") if run.has("defence_costs") else None
    attributes = [str(a) for a in metrics["attribute"].unique()]
    return {a: told.table_of(metrics, costs, a, split) for a in attributes}


def defence_findings(run: Run, read: Read = read_table) -> list[Sentence]:
    """One sentence per attribute on what the defences achieve."""
    budget = float(run.manifest["spec"].get("budget", 0))
    return [told.defences_finding(table, attribute, budget) for attribute, table in defences(run, read).items()]


def baselines(run: Run, read: Read = read_table) -> dict[str, tuple[pd.DataFrame, pd.DataFrame]]:
    """Attribute -> rows of `baseline_metrics` and `baseline_differences` (as exported, judged split); {} without."""
    if not run.has("baseline_metrics") or not run.has("baseline_differences"):
        return {}
    metrics, moved = read(run, "baseline_metrics"), read(run, "baseline_differences")
    split = findings.judging_split(metrics)
    defence = findings.baseline(moved)
    attributes = [str(a) for a in metrics["attribute"].unique()]
    return {a: (held.chosen(metrics, a, split), held.chosen(moved, a, split, defence)) for a in attributes}


def baseline_findings(run: Run, read: Read = read_table) -> list[Sentence]:
    """One sentence per attribute on whether a vector tells more than what its recipient holds."""
    return [held.baselines_finding(one, moved, a) for a, (one, moved) in baselines(run, read).items()]


def curves(run: Run, read: Read = read_table) -> dict[str, tuple[pd.DataFrame, pd.DataFrame]]:
    """Attribute -> rows of `sample_curve` and `sample_extrapolation`; {} where no curve was measured."""
    if not run.has("sample_curve") or not run.has("sample_extrapolation"):
        return {}
    points, more = read(run, "sample_curve"), read(run, "sample_extrapolation")
    attributes = [str(a) for a in points["attribute"].unique()]
    return {a: (curve.of_attribute(points, a), curve.of_attribute(more, a)) for a in attributes}


def curve_findings(run: Run, read: Read = read_table) -> list[Sentence]:
    """One sentence per attribute on what more training rows would give an attacker."""
    budget = float(run.manifest["spec"].get("budget", 0))
    return [curve.curve_finding(p, more, curve.leading(p), budget) for p, more in curves(run, read).values()]


def subjects(run: Run) -> tuple[findings.Subjects, str, float] | None:
    """Subjects of a membership run at its finest rate: what was found, the strongest attack, the target rate.

    None where rows share no subject, or where no rate could be measured.
    """
    if run.kind != "membership" or not run.has("attack_metrics"):
        return None
    groups = run.read("examples", ["group"])["group"]
    metrics = run.read("attack_metrics")
    fpr = findings.finest_fpr(metrics) if len(metrics) else None
    if fpr is None or not findings.shared_subjects(run.manifest["spec"]["data"], groups):
        return None
    best = findings.points(metrics, fpr).dropna(subset=["value"]).iloc[0]
    found = findings.subjects(subject_scores(run, str(best["attack"])), best["threshold"])
    return None if found is None else (found, str(best["attack"]), fpr)


def subject_scores(run: Run, attack: str) -> pd.DataFrame:
    """Subject, membership and rank score of one attack's rows, in the order of the scores."""
    query = """
        select e."group", s.member, s.rank_score from membership_scores s join examples e using (example_id)
        where s.attack = ?
    """
    return run.sql(query, [attack], tables=["membership_scores", "examples"])


def text_axes(run: Run, read: Read = read_table) -> dict[str, pd.DataFrame]:
    """Attribute -> `findings.outputs.one_axis`; empty when the run read no text."""
    if not run.has("output_metrics"):
        return {}
    readings = read(run, "output_metrics")
    metrics, held = (read(run, t) if run.has(t) else None for t in ("probe_metrics", "baseline_metrics"))
    attributes: list = readings["attribute"].unique().tolist() if len(readings) else []
    return {str(a): outputs.one_axis(readings, metrics, str(a), held) for a in attributes}


def text_findings(run: Run, read: Read = read_table) -> list[Sentence]:
    """Per attribute where it is read from and what directives change in that; then what they do to the summaries."""
    axes = text_axes(run, read)
    found: list[Sentence] = [outputs.outputs_finding(rows, a) for a, rows in axes.items()]
    changed = [outputs.changes_sentence(outputs.changes(read(run, "output_metrics"), a)) for a in axes]
    found += [sentence for sentence in changed if sentence]
    return [*found, outputs.writing_sentence(read(run, "generation_metrics"))] if found else []


def per_hundred(share: float) -> str:
    """A share as "so many of 100": no decimals unless it is below 10."""
    value = 100 * float(share)
    return words.number(value, 0 if value >= 9.95 or abs(value - round(value)) < 0.05 else 1)


def compared(runs: Sequence[Run], read: Read = read_table) -> pd.DataFrame:
    """Rows for the comparison of membership runs: run_id, name, attack, value, low, high, n_member, n_nonmember."""
    rows = []
    for run in runs:
        best = findings.strongest_attack(read(run, "attack_metrics"))
        if best is None or not words.known(best["value"]):
            continue
        name = str(run.manifest["spec"].get("name") or run.id)
        numbers = {k: best[k] for k in ("attack", "value", "low", "high", "n_member", "n_nonmember")}
        rows.append({"run_id": run.id, "name": name, **numbers})
    return pd.DataFrame(rows, columns=["run_id", "name", "attack", "value", "low", "high", "n_member", "n_nonmember"])


def comparison_sentence(frame: pd.DataFrame) -> Sentence:
    """Say how the two extremes of `compared` differ; careful when their intervals overlap."""
    ordered = frame.sort_values("value", kind="stable")
    low, high = ordered.iloc[0], ordered.iloc[-1]
    a, b = words.shorten(low["name"], 40), words.shorten(high["name"], 40)
    overlap = not (words.known(low["high"]) and words.known(high["low"])) or low["high"] >= high["low"]
    if overlap:
        return (f"The intervals of {a} and {b} overlap",)
    if low["value"] <= 0:
        return (f"{a} gives away no row at this threshold, {b} {per_hundred(high['value'])} of 100",)
    ratio = high["value"] / low["value"]
    times = words.number(ratio, 0 if ratio >= 10 else 1)
    return (f"{a} gives away about {times} times fewer rows than {b}",)
