"""Where the linear attacker falls more than another. In: predictions of a run. Out: paired differences, kept.

A defence is often fitted against a linear reader: the rest may read on. What counts is stated in `told.FALLS_MORE`.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import streamlit as st

from auditcore.store import Run
from auditcore.verdict import OVER

LINEAR = "linear"


def falls_more(run: Run, rows: pd.DataFrame, table: pd.DataFrame) -> pd.Series:
    """Return for each row of `table` a dict (probe, change, low, high, n_subjects), or None where nothing is marked.

    rows: `told.defended`; table: `told.summarise` of them. change: what the linear attacker lost more, in accuracy.
    """
    found: list[dict[str, Any] | None] = []
    there = run.has("predictions") and (rows["defence"] == "none").any()
    for line in table.to_dict("records"):
        where = [line["artifact"], int(line["layer"]), line["defence"]]
        mine = rows[(rows["artifact"] == where[0]) & (rows["layer"] == where[1]) & (rows["defence"] == where[2])]
        best = mine[mine["probe"] == line["probe"]]
        asked = there and where[2] != "none" and line["probe"] != LINEAR and (best["verdict"] == OVER).any()
        if not asked or line["linear_only"]:
            found.append(None)
            continue
        key = (str(best["attribute"].iloc[0]), *where, str(line["probe"]), str(best["split"].iloc[0]))
        spec = run.manifest["spec"]
        found.append(_paired(str(run.path), run.version("predictions"), key, spec.get("n_boot", 2000), spec["seed"]))
    return pd.Series(found, table.index, dtype=object)


@st.cache_data(show_spinner="Comparing attackers row by row", max_entries=200)
def _paired(path: str, version: str, key: tuple, n_boot: int, seed: int) -> dict[str, Any] | None:
    attribute, artifact, layer, defence, probe, split = key
    query = """
        with p as (select *, (actual = predicted)::double as r from predictions)
        select p.example_id, any_value(p.actual) as actual,
               any_value(coalesce(e."group"::varchar, p.example_id)) as subject,
               avg(p.r) filter (p.defence = 'none' and p.probe = 'linear') as linear_before,
               avg(p.r) filter (p.defence <> 'none' and p.probe = 'linear') as linear_after,
               avg(p.r) filter (p.defence = 'none' and p.probe <> 'linear') as other_before,
               avg(p.r) filter (p.defence <> 'none' and p.probe <> 'linear') as other_after
        from p left join examples e on e.example_id = p.example_id
        where p.attribute = ? and p.artifact = ? and p.layer = ? and p.split = ?
          and p.defence in ('none', ?) and p.probe in ('linear', ?)
        group by 1 order by 1
    """
    params = [attribute, artifact, layer, split, defence, probe]
    judged = Run(Path(path)).sql(query, params, ["predictions", "examples"])
    found = compare(judged.dropna(), n_boot, seed)
    return None if found is None else {"probe": probe, **found}


def compare(judged: pd.DataFrame, n_boot: int, seed: int) -> dict[str, Any] | None:
    """Say how much more the linear attacker lost than the other; None unless it fell, and by more, beyond chance.

    judged: one row per example: actual, subject, correctness linear_before, linear_after, other_before, other_after.
    """
    from auditcore.leakage.paired import paired  # here: scipy is slow to import, and the page stands before it is there

    if judged.empty:
        return None
    codes = np.unique(judged["actual"], return_inverse=True)[1]
    subjects = judged["subject"].to_numpy(dtype=str)
    before, after, other_before, other_after = (
        judged[f"{who}_{when}"].to_numpy(dtype=float) for who in ("linear", "other") for when in ("before", "after")
    )
    fell = paired(before, after, codes, subjects, n_boot, seed)
    more = paired(after - before, other_after - other_before, codes, subjects, n_boot, seed)
    if fell.high >= 0 or more.low <= 0:
        return None
    return {"change": more.change, "low": more.low, "high": more.high, "n_subjects": more.n_subjects}
