"""Two candidates on the same rows. In: their runs' predictions and summaries. Out: paired differences, with intervals.

Both were judged on the same subjects and the same summaries, so the difference is known more closely than either
number; that two intervals overlap says nothing about it.
"""

from pathlib import Path

import pandas as pd
import streamlit as st

from auditcore import words
from auditcore.decisions import Frontier
from auditcore.store import Run
from auditcore.votes import Candidate

N_BOOT = 2000
RIGHT = """
    select p.example_id, any_value(p.actual::varchar) as actual,
           any_value(coalesce(e."group"::varchar, p.example_id)) as "group",
           avg((p.actual = p.predicted)::double) as "right"
    from predictions p left join examples e using (example_id)
    where p.split = 'bal_val' and p.step = ? and p.attribute = ? and p.artifact = ? and p.layer = ? and p.probe = ?
    group by p.example_id order by p.example_id
"""
WRITTEN = """
    select g.example_id, any_value(coalesce(e."group"::varchar, g.example_id)) as "group",
           avg(g.rouge1) as rouge1, avg(g.rouge2) as rouge2, avg(g."rougeL") as "rougeL"
    from generations g left join examples e using (example_id)
    where g.step = ? and coalesce(g.defence, 'none') = 'none' group by g.example_id order by g.example_id
"""


def words_of(seen: Frontier, attribute: str, artifact: str, one: Candidate, other: Candidate) -> tuple[str, str]:
    """How the first differs from the second: in ROUGE-L, in what the strongest attacker names. "" where not paired."""
    runs = {run.id: run for run in seen.runs}
    mine, theirs = runs[one[0]], runs[other[0]]
    versions = tuple(run.version(t) for run in (mine, theirs) for t in ("predictions", "generations") if run.has(t))
    paths = (str(mine.path), str(theirs.path))
    use = _written(paths, (one[1], other[1]), versions)
    cells = []
    for candidate in (one, other):
        row = seen.point(*candidate, attribute, artifact)
        if row is None:
            return use, ""
        cells.append((candidate[1], attribute, artifact, int(row["layer"]), str(row["probe"])))
    return use, _leak(paths, tuple(cells), versions)


@st.cache_data(show_spinner=False, max_entries=60)
def _written(paths: tuple[str, str], steps: tuple[int, int], versions: tuple) -> str:
    from auditcore.rouge import NAMES, means

    runs = [Run(Path(path)) for path in paths]
    if not all(run.has("generations") and run.has("examples") for run in runs):
        return ""
    tables = ["generations", "examples"]
    one, other = (run.sql(WRITTEN, [step], tables) for run, step in zip(runs, steps, strict=True))
    both = one.merge(other.drop(columns="group"), on="example_id", suffixes=("", "_other"))
    if len(both) < 2:
        return ""
    moved = pd.DataFrame({name: both[name] - both[f"{name}_other"] for name in NAMES})
    found = means(moved, both["group"].tolist(), N_BOOT, 0)
    spread = f"{words.signed(found['rougeL_low'], 1)} to {words.signed(found['rougeL_high'], 1)}"
    n = words.counted(len(both), "summary", "summaries")
    return f"{words.signed(found['rougeL'], 1)} points (95 % interval {spread}, the same {n})"


@st.cache_data(show_spinner=False, max_entries=60)
def _leak(paths: tuple[str, str], cells: tuple, versions: tuple) -> str:
    from auditcore.leakage.paired import paired

    runs = [Run(Path(path)) for path in paths]
    if not all(run.has("predictions") and run.has("examples") for run in runs):
        return ""
    tables = ["predictions", "examples"]
    one, other = (run.sql(RIGHT, list(cell), tables) for run, cell in zip(runs, cells, strict=True))
    both = one.merge(other[["example_id", "right"]], on="example_id", suffixes=("", "_other"))
    codes = pd.factorize(both["actual"], sort=True)[0]
    if len(both) < 2 or codes.max() < 1:
        return ""
    found = paired(both["right_other"].to_numpy(), both["right"].to_numpy(), codes, both["group"].to_numpy(), N_BOOT, 0)
    spread = f"{words.signed(100 * found.low, 1)} to {words.signed(100 * found.high, 1)}"
    subjects = words.counted(found.n_subjects, "subject")
    return f"{words.signed(100 * found.change, 1)} percentage points (95 % interval {spread}, the same {subjects})"
