"""One artifact of a vectors run, closely. In: run, attackers, attribute, artifact, layer. Out: the lower page part."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import streamlit as st

from auditcore import findings, words
from auditcore.errors import AuditError
from auditcore.figures import projection
from auditcore.figures import vectors as figures
from auditcore.spec import ARTIFACTS
from auditcore.store import Run
from auditcore.verdict import wilson
from pages import _ui as ui

WHERE = "p.attribute = ? and p.artifact = ? and p.layer = ? and p.probe = ? and p.split = ? and p.defence = ?"
UNKNOWN = "not measured"
OF_STEP = " and p.step = ?"  # a run of checkpoints holds the predictions of each


def draw(
    run: Run, rows: pd.DataFrame, attribute: str, artifact: str, layer: int, split: str, step: int | None = None
) -> None:
    """Draw confusion, recall, projection and the facts of one artifact, for its strongest probe.

    step: the checkpoint, in a run of several.
    """
    mine = rows[(rows["artifact"] == artifact) & (rows["layer"] == layer)]
    if mine.empty:
        return
    best = mine.iloc[0]
    meaning = ARTIFACTS.get(artifact, "")
    spec = run.manifest["spec"]
    where = f"{artifact}, layer {layer}" if spec.get("model") or spec.get("checkpoints") else artifact
    ui.section(
        where,
        f"{meaning[:1].upper()}{meaning[1:]}{'. ' if meaning else ''}Shown: the {best['probe']} probe, the stronger.",
    )
    sizes: dict[str, int] = {}
    if run.has("predictions"):
        key: tuple = (attribute, artifact, layer, str(best["probe"]), split, str(best["defence"]))
        key += () if step is None else (step,)
        sizes = _who(run, key, best)
    left, right = st.columns([3, 2], gap="large")
    with left:
        _projection(run, attribute, artifact, layer, split)
    with right:
        _facts(run, best, sizes)


# --- who is given away ---


def _who(run: Run, key: tuple, best: pd.Series) -> dict[str, int]:
    """Draw confusion and recall. Returns the test subjects of each class."""
    cells = _cells(str(run.path), run.version("predictions"), key)
    if cells.empty:
        ui.empty("No predictions are stored for this attacker.")
        return {}
    left, right = st.columns([3, 2], gap="large")
    with left:
        matrix = _matrix(cells)
        caption = findings.confusion_sentence(matrix)
        ui.chart_title("Who is taken for whom", caption)
        ui.chart(figures.confusion_figure(matrix), "confusion", f"Confusion matrix. {words.plain(caption)}")
    with right:
        recalls = figures.class_recalls(_recalls(str(run.path), run.version("predictions"), key))
        ui.chart_title(
            "How often each class is named correctly", "95 % intervals (Wilson) over subjects, seeds averaged."
        )
        ui.chart(figures.recall_figure(recalls, float(best["chance"])), "recall", "Recall of each class")
    return {str(k): int(n) for k, n in zip(recalls["name"], recalls["n"], strict=True)}


def _matrix(cells: pd.DataFrame) -> pd.DataFrame:
    names = sorted(set(cells["actual"]) | set(cells["predicted"]))
    matrix = cells.pivot_table(index="actual", columns="predicted", values="n", aggfunc="sum", fill_value=0.0)
    return matrix.reindex(index=names, columns=names, fill_value=0.0)


@st.cache_data(show_spinner=False, max_entries=60)
def _cells(path: str, version: str, key: tuple) -> pd.DataFrame:
    where = WHERE + OF_STEP * (len(key) > 6)
    query = f"""
        with mine as (select * from predictions p where {where})
        select actual::varchar as actual, predicted::varchar as predicted,
               count(*)::double / (select count(distinct seed) from mine) as n
        from mine group by 1, 2
    """
    return Run(Path(path)).sql(query, list(key), ["predictions"])


@st.cache_data(show_spinner=False, max_entries=60)
def _recalls(path: str, version: str, key: tuple) -> pd.DataFrame:
    where = WHERE + OF_STEP * (len(key) > 6)
    query = f"""
        select p.actual::varchar as name, avg((p.actual = p.predicted)::double) as recall,
               count(distinct coalesce(e."group"::varchar, p.example_id)) as n
        from predictions p left join examples e on e.example_id = p.example_id
        where {where} group by 1 order by 1
    """
    return Run(Path(path)).sql(query, list(key), ["predictions", "examples"])


# --- the vectors themselves ---


def _projection(run: Run, attribute: str, artifact: str, layer: int, split: str) -> None:
    ui.chart_title(f"{artifact} on its two widest directions")
    file = run.vectors_path(artifact, layer)
    where = (str(run.path), artifact, layer, attribute)
    try:
        if file.exists():
            stat = file.stat()
            version = f"{file.name}:{stat.st_size}:{stat.st_mtime_ns}"
            drawn, labels = _from_vectors(*where, version, split)
        elif run.has("projection"):
            drawn, labels = _from_table(*where, run.version("projection"))
        else:
            drawn, labels = {}, pd.Series(dtype="str")
    except AuditError as error:
        ui.notice("error", str(error))
        return
    if not drawn or not len(drawn["points"]):
        ui.empty("The vectors of this artifact were not kept with the run.", "Run the audit here to see them.")
        return
    shown = projection.Projection(**drawn)
    classes = sorted(labels.dropna().unique().tolist())
    caption = findings.projection_sentence(
        len(shown.points), shown.total, shown.not_finite, shown.width, shown.explained
    )
    ui.quiet(caption)
    if len(classes) > 6:
        ui.quiet(f"{len(classes)} classes share 6 colours and signs; the tables tell them apart.")
    alt = f"{len(shown.points)} vectors on two principal components, coloured by {len(classes)} classes"
    ui.chart(figures.projection_figure(shown, labels, classes), "projection", alt)


@st.cache_data(show_spinner="Projecting the vectors", max_entries=20)
def _from_vectors(
    path: str, artifact: str, layer: int, attribute: str, version: str, split: str
) -> tuple[dict[str, Any], pd.Series]:
    run = Run(Path(path))
    examples = run.read("examples", ["split", attribute])
    rows = np.flatnonzero((examples["split"] == split).to_numpy(dtype=bool, na_value=False))
    if not len(rows):
        rows = np.arange(len(examples))
    drawn = projection.project(run.vectors_path(artifact, layer), rows)
    labels = examples[attribute].iloc[drawn.points["row"]].reset_index(drop=True).astype("str")
    return vars(drawn), labels


@st.cache_data(show_spinner=False, max_entries=20)
def _from_table(path: str, artifact: str, layer: int, attribute: str, version: str) -> tuple[dict[str, Any], pd.Series]:
    """The picture a run keeps when its vectors are not shipped with it."""
    run = Run(Path(path))
    columns = ["example_id", "x", "y", "share_x", "share_y"]
    points = run.read("projection", columns, "artifact = ? and layer = ?", [artifact, layer])
    if points.empty:
        return {}, pd.Series(dtype="str")
    known = run.read("examples", ["example_id", attribute]).set_index("example_id")[attribute]
    labels = known.reindex(points["example_id"]).reset_index(drop=True).astype("str")
    explained = (float(points["share_x"].iloc[0]), float(points["share_y"].iloc[0]))
    drawn = projection.Projection(points[["x", "y"]], explained, len(points), 0, 0)
    return vars(drawn), labels


# --- facts ---


def _facts(run: Run, best: pd.Series, sizes: dict[str, int]) -> None:
    """sizes: test subjects of each class."""
    ui.chart_title("What stands behind these numbers")
    spec = run.manifest["spec"]
    prints = run.manifest.get("fingerprints") or {}
    model = (spec.get("model") or {}).get("source") or (spec.get("checkpoints") or {}).get("base")
    model = model or "vectors from a file"
    pairs = [
        ("test subjects", words.count(best["n_subjects"])),
        ("rows to test on", words.count(best["n_eval"])),
        ("rows to fit on", words.count(best["n_train"])),
        ("classes", words.count(best["n_classes"])),
        *([("layer", f"{int(best['layer'])}, the last (−1 in the form)")] if _last(spec) else []),
        ("seeds", ", ".join(str(s) for s in spec.get("seeds") or [])),
        ("what the probe tells of the label (V-information)", _bits(best)),
        *([("code length of the labels", length)] if (length := findings.code_length_words(best)) != UNKNOWN else []),
        ("p against chance", _p(best, spec)),
        ("probe converged", "yes" if best["converged"] else "no: a longer fit may read more, so this is the least"),
        ("model", words.shorten(model, 40)),
        ("template", words.shorten(str(spec.get("template") or "the default"), 40)),
        ("fingerprint of the template", str(prints.get("template", words.NONE))[:16]),
    ]
    ui.facts(pairs)
    ui.chart_title("Near certainty", findings.confident_sentence(best))
    ui.facts([(words.shorten(k, 30), _certain(share, sizes.get(k))) for k, share in findings.confident_by_class(best)])


def _last(spec: dict[str, Any]) -> bool:
    return (spec.get("layers") or spec.get("layer")) in ([-1], -1)


def _bits(best: pd.Series) -> str:
    """Bits told of those there are; the classes are equally frequent where they are judged."""
    bits = f"{words.number(best['v_information_bits'], 2)} of {words.number(np.log2(best['n_classes']), 2)} bits a row"
    return f"{bits}, an estimate without an interval"


def _p(best: pd.Series, spec: dict[str, Any]) -> str:
    p = findings.p_words(best, spec.get("permutations"))
    least = ", the least that so many permutations can show" if p.startswith("≤") else ""
    return f"{p} (labels permuted by subject{least})"


def _certain(share: float, n: int | None) -> str:
    """The share of one class, with Wilson's interval over its subjects."""
    if not n:
        return words.percent(share)
    return f"{words.percent(share)} ({words.percent_interval(*wilson(share, n))}, of {words.count(n)})"
