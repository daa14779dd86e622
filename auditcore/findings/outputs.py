"""What is read from texts, beside vectors. In: `output_metrics`, `generation_metrics`, `probe_metrics`. Out: words.

In `output_metrics` a source "vector:lasttok" is the exported vector of the same rows, read by the same folds.
"""

import pandas as pd

from auditcore.findings.common import records, share, short
from auditcore.findings.vectors import pooled, strongest
from auditcore.words import Strong, counted, interval, known, number, percent, percent_interval, signed

READERS = {"tfidf": "words", "embedding": "vectors of the text"}
SOURCES = {"prompt": "the prompt", "reference": "the reference summary", "generated": "what the model writes"}
ROUGES = {"rouge1": "ROUGE-1", "rouge2": "ROUGE-2", "rougeL": "ROUGE-L"}
COLUMNS = ["what", "detail", "kind", "accuracy", "accuracy_low", "accuracy_high", "chance", "n_subjects", "verdict"]
VECTOR = "vector:"  # how the source of an exported vector begins


def source_name(source: str, defence: str) -> str:
    """Name what was read: "what the model writes behind prompt:neutral", "vector lasttok"."""
    behind = "" if defence == "none" else f" behind {defence}"
    name = f"vector {source.removeprefix(VECTOR)}" if source.startswith(VECTOR) else SOURCES.get(source, source)
    return f"{name}{behind}"


def one_axis(
    readings: pd.DataFrame, metrics: pd.DataFrame | None, attribute: str, held: pd.DataFrame | None = None
) -> pd.DataFrame:
    """Everything a label can be read from, in one order: texts by both readers, then exported vectors.

    readings: table `output_metrics`. Where it holds vectors, these are drawn: same rows and folds as the texts. Where
    it does not (an older run), probes of metrics (`probe_metrics`) and the words of held (`baseline_metrics`) stand in:
    fitted on all training rows, so not comparable. Columns as in `COLUMNS` and n_fit, the rows that those were fitted
    on; kind is text, vector, probe or baseline.
    """
    lines = []
    mine = records(readings[readings["attribute"] == attribute])
    for row in sorted(mine, key=lambda row: str(row["source"]).startswith(VECTOR)):
        kind = "vector" if str(row["source"]).startswith(VECTOR) else "text"
        detail = READERS.get(row["attacker"], row["attacker"]) if kind == "text" else "linear probe"
        lines.append(_line(row, source_name(row["source"], row["defence"]), detail, kind))
    if lines and lines[-1]["kind"] == "vector":
        return pd.DataFrame(lines, columns=[*COLUMNS, "n_fit"])
    if held is not None and len(held):
        text = (held["attribute"] == attribute) & (held["baseline"] == "text") & (held["split"] == "bal_test")
        lines += [_line(row, SOURCES["prompt"], "words", "baseline") for row in records(held[text])]
    if metrics is not None and len(metrics):
        tried = [str(d) for d in metrics["defence"].dropna().unique()]
        for defence in [d for d in tried if d == "none" or d.startswith("prompt:")]:
            several = pooled(metrics, attribute, defence=defence)["layer"].nunique() > 1
            for row in records(strongest(metrics, attribute, defence=defence)):
                layer = f" at layer {int(row['layer'])}" if several else ""
                what = source_name(f"{VECTOR}{row['artifact']}{layer}", defence)
                lines.append(_line(row, what, str(row["probe"]), "probe"))
    return pd.DataFrame(lines, columns=[*COLUMNS, "n_fit"])


def _line(row: dict, what: str, detail: str, kind: str) -> dict:
    numbers = {name: row.get(name) for name in COLUMNS[3:]}
    n_fit = row.get("n_train") if kind in ("probe", "baseline") else None
    return {"what": what, "detail": detail, "kind": kind, **numbers, "n_fit": n_fit}


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
    vectors = rows[rows["kind"].isin(["vector", "probe"])].sort_values("accuracy", ascending=False, kind="stable")
    if len(vectors):
        told.append((str(vectors["what"].iloc[0]), vectors.iloc[0]))
    for place, (what, row) in enumerate(told):
        amount = f"{share(row['accuracy'])} subjects" if place == 0 else short(row["accuracy"])
        ends = f" ({percent_interval(row['accuracy_low'], row['accuracy_high'])})"
        parts += [", " if place else "for ", Strong(amount), f"{ends} from {what}"]
    parts.append(f"; guessing gives {short(rows['chance'].iloc[0])}, in brackets 95 % intervals.")
    texts = rows[rows["kind"] == "text"]
    if len(texts) and len(vectors):
        parts.append(_compared(rows, texts.iloc[0], vectors.iloc[0]))
    return parts


def _compared(rows: pd.DataFrame, text: pd.Series, vector: pd.Series) -> str:
    """Whether texts and vectors were read alike, and what the words of the prompt give where they were not."""
    few = counted(int(text["n_subjects"]), "subject")
    if vector["kind"] == "vector":
        return f" Texts and vectors were read on the same rows of {few}, in the same folds."
    told = (
        f" Attackers on texts learnt from folds of {few}, those on vectors from all of bal_train, judged on "
        f"{counted(int(vector['n_subjects']), 'subject')}: what texts tell is understated beside vectors."
    )
    held = rows[rows["kind"] == "baseline"]
    if held.empty:
        return told
    return f"{told} Fitted on as many rows, the prompt's own words name {share(held['accuracy'].iloc[0])}."


def axis_note(rows: pd.DataFrame) -> str:
    """What the intervals of `one_axis` are, and on which rows its points were read."""
    if (rows["kind"] == "vector").any():
        return "95 % intervals over subjects. Texts and vectors: the same rows, cross-validated by subject."
    open_ones = " Open: fitted on all training rows, read on the reserved test rows." if len(rows) else ""
    return f"95 % intervals over subjects. Texts: cross-validated by subject.{open_ones}"


def changes(readings: pd.DataFrame, attribute: str) -> pd.DataFrame:
    """Rows of `output_metrics` of one label behind a directive, whose paired change against none was measured."""
    if "change" not in readings:
        return readings.iloc[:0]
    return readings[(readings["attribute"] == attribute) & readings["change"].notna()]


def changes_sentence(rows: pd.DataFrame) -> list[str]:
    """The largest change in how well the label is read behind a directive. rows: `changes`; [] without any."""
    if rows.empty:
        return []
    row = records(rows)[int(rows["change"].abs().to_numpy().argmax())]
    ends = f"95 % interval {points(row['change_low'])} to {points(row['change_high'])}"
    n = counted(int(row["n_subjects"]), "subject")
    clear = row["change_low"] > 0 or row["change_high"] < 0
    return [
        "Largest change behind a directive: ",
        Strong(f"{points(row['change'])} points"),
        f" ({ends}, {n}, paired by row) of {row['attribute']} from {source_name(row['source'], row['defence'])}, by "
        f"{READERS.get(row['attacker'], row['attacker'])}{'' if clear else ': not told apart from none'}.",
    ]


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
