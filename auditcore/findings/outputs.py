"""What is read from texts, beside vectors. In: `output_metrics`, `generation_metrics`, `probe_metrics`. Out: words."""

import pandas as pd

from auditcore.findings.common import records, share, short
from auditcore.findings.vectors import pooled, strongest
from auditcore.words import Strong, counted, interval, known, number, percent, percent_interval, signed

READERS = {"tfidf": "words", "embedding": "vectors of the text"}
SOURCES = {"prompt": "the prompt", "reference": "the reference summary", "generated": "what the model writes"}
ROUGES = {"rouge1": "ROUGE-1", "rouge2": "ROUGE-2", "rougeL": "ROUGE-L"}
COLUMNS = ["what", "detail", "kind", "accuracy", "accuracy_low", "accuracy_high", "chance", "n_subjects", "verdict"]


def source_name(source: str, defence: str) -> str:
    """Name a kind of text: "what the model writes behind prompt:neutral"."""
    behind = "" if defence == "none" else f" behind {defence}"
    return f"{SOURCES.get(source, source)}{behind}"


def one_axis(readings: pd.DataFrame, metrics: pd.DataFrame | None, attribute: str) -> pd.DataFrame:
    """Everything a label can be read from, in one order: texts by both readers, then vectors by their strongest probe.

    Columns as in `COLUMNS`; kind is text or vector. Texts are cross-validated on the rows that were generated from,
    vectors are read on bal_test by probes fitted on bal_train.
    """
    lines = []
    for row in records(readings[readings["attribute"] == attribute]):
        keep = {name: row[name] for name in COLUMNS[3:]}
        what = source_name(row["source"], row["defence"])
        lines.append({"what": what, "detail": READERS.get(row["attacker"], row["attacker"]), "kind": "text", **keep})
    if metrics is not None and len(metrics):
        tried = [str(d) for d in metrics["defence"].dropna().unique()]
        for defence in [d for d in tried if d == "none" or d.startswith("prompt:")]:
            several = pooled(metrics, attribute, defence=defence)["layer"].nunique() > 1
            for row in records(strongest(metrics, attribute, defence=defence)):
                behind = "" if defence == "none" else f" behind {defence}"
                layer = f" at layer {int(row['layer'])}" if several else ""
                keep = {name: row[name] for name in COLUMNS[3:]}
                what = f"vector {row['artifact']}{layer}{behind}"
                lines.append({"what": what, "detail": str(row["probe"]), "kind": "vector", **keep})
    return pd.DataFrame(lines, columns=COLUMNS)


def outputs_finding(rows: pd.DataFrame, attribute: str) -> list[str]:
    """One sentence on where the label is: reference, generated text, the vector that tells most. rows: `one_axis`."""
    if rows.empty:
        return ["No text was read yet."]
    parts: list[str] = [f"{attribute} is named correctly "]
    told = []
    for what in (SOURCES["prompt"], SOURCES["reference"], SOURCES["generated"]):
        mine = rows[(rows["kind"] == "text") & (rows["what"] == what)]
        if len(mine):
            told.append((what, mine.iloc[int(mine["accuracy"].to_numpy().argmax())]))
    vectors = rows[rows["kind"] == "vector"].sort_values("accuracy", ascending=False, kind="stable")
    if len(vectors):
        told.append((str(vectors["what"].iloc[0]), vectors.iloc[0]))
    for place, (what, row) in enumerate(told):
        amount = f"{share(row['accuracy'])} subjects" if place == 0 else short(row["accuracy"])
        ends = f" ({percent_interval(row['accuracy_low'], row['accuracy_high'])})"
        parts += [", " if place else "for ", Strong(amount), f"{ends} from {what}"]
    parts.append(f"; guessing gives {short(rows['chance'].iloc[0])}, in brackets 95 % intervals.")
    texts = rows[rows["kind"] == "text"]
    if len(texts) and len(vectors):
        few, many = (counted(int(found["n_subjects"].iloc[0]), "subject") for found in (texts, vectors))
        parts.append(
            f" Attackers on texts learnt from folds of {few}, those on vectors from all of bal_train, judged on "
            f"{many}: what texts tell is understated beside vectors."
        )
    return parts


def writing_sentence(scores: pd.DataFrame) -> list[str]:
    """What directives do to the summaries: ROUGE-L beside the undirected ones, and the largest share of meta-terms."""
    plain = scores[scores["defence"] == "none"]
    directed = scores[scores["defence"] != "none"]
    if plain.empty or directed.empty:
        row = records(scores)[0]
        held = percent(row["contaminated"])
        return [f"{held} of {counted(int(row['n_rows']), 'summary', 'summaries')} hold a meta-term."]
    worst = records(directed.sort_values("contaminated", ascending=False, kind="stable"))[0]
    n = counted(int(worst["n_rows"]), "summary", "summaries")
    share_there, share_before = percent(worst["contaminated"]), percent(plain["contaminated"].iloc[0])
    ends = f"{points(worst['contaminated_change_low'])} to {points(worst['contaminated_change_high'])}"
    change = f"{points(worst['contaminated_change'])} points (95 % interval {ends}, paired by row)."
    parts = [
        f"Behind {worst['defence']} ",
        Strong(share_there),
        f" of {n} hold a meta-term, {share_before} without it: ",
    ]
    parts.append(change)
    if "rougeL" in scores and known(worst["rougeL"]):
        before, spread = number(plain["rougeL"].iloc[0], 1), interval(worst["rougeL_low"], worst["rougeL_high"], 1)
        parts.append(f" Its ROUGE-L is {number(worst['rougeL'], 1)} (95 % interval {spread}), {before} without.")
    return parts


def points(value: object) -> str:
    """A difference of shares in points: 0.123 -> "+12.3"."""
    return signed(100 * float(value), 1) if known(value) else "–"


def share_with_interval(row: dict) -> tuple[str, str]:
    """Share of summaries with a meta-term, and its interval."""
    return percent(row["contaminated"]), percent_interval(row["contaminated_low"], row["contaminated_high"])
