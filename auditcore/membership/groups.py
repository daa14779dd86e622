"""Subjects instead of rows. In: subject, membership and "called a member" of every row. Out: rates per subject, and
which subjects have more rows found than others.

A false-positive rate over rows is none per person: who has many rows is accused more often. Exact binomial intervals;
rows of one subject count as independent, which they seldom are, so that an interval over subjects is the safer one.
"""

from typing import Any

import numpy as np
import pandas as pd
from scipy.special import gammaln

from auditcore.membership.thresholds import exact_interval
from auditcore.verdict import holm

ALPHA = 0.05
IN, OUT = "in training", "not in training"


def subject_rates(group: Any, member: Any, flagged: Any) -> pd.DataFrame:
    """Two lines, subjects with a row in training and subjects without one: at least one row called a member.

    group: names [n]; member: boolean or missing [n]; flagged: boolean or missing [n] (missing: no evidence); rows with
    anything missing are left out. Of a subject with both kinds of rows, those in training count. Columns: kind,
    n_subjects, n_rows, n_flagged (rows), n_found (subjects), share, low, high (95 %, Clopper-Pearson; NaN without
    subjects).
    """
    counts = _counts(group, member, flagged)
    inside = counts["n_members"] > 0
    lines = []
    for kind, mine, rows, hits in (
        (IN, counts[inside], "n_members", "n_found"),
        (OUT, counts[~inside], "n_others", "n_accused"),
    ):
        n, found = len(mine), int((mine[hits] > 0).sum())
        share = found / n if n else np.nan
        low, high = exact_interval(share, n, 0.025)
        lines.append((kind, n, int(mine[rows].sum()), int(mine[hits].sum()), found, share, low, high))
    columns = ["kind", "n_subjects", "n_rows", "n_flagged", "n_found", "share", "low", "high"]
    return pd.DataFrame(lines, columns=columns)


def by_subject(group: Any, member: Any, flagged: Any) -> pd.DataFrame:
    """One line per subject with two or more rows in training, those with the most found first.

    Columns: group, n_rows (of known membership, with evidence), n_members, n_found (of them called members), share,
    low, high (95 %, exact), p_value (Fisher's exact test against the training rows of all others, one-sided,
    Holm-corrected over the subjects of this table) and stands_out (p_value <= 0.05).
    """
    counts = _counts(group, member, flagged)
    total, hits = int(counts["n_members"].sum()), int(counts["n_found"].sum())
    several = counts[counts["n_members"] >= 2].reset_index()
    n, k = several["n_members"].to_numpy(dtype=np.int64), several["n_found"].to_numpy(dtype=np.int64)
    share = k / n
    bounds = [exact_interval(s, int(m), 0.025) for s, m in zip(share, n, strict=True)]
    p = [_as_many(int(a), int(b), hits, total) for a, b in zip(k, n, strict=True)]
    several = several.assign(
        share=share,
        low=np.array([low for low, _ in bounds], dtype=np.float64),
        high=np.array([high for _, high in bounds], dtype=np.float64),
        p_value=holm(p),
    )
    several = several.assign(stands_out=several["p_value"] <= ALPHA)
    ordered = several.sort_values(
        ["stands_out", "n_found", "share", "group"], ascending=[False, False, False, True], kind="stable"
    )
    columns = ["group", "n_rows", "n_members", "n_found", "share", "low", "high", "p_value", "stands_out"]
    return ordered[columns].reset_index(drop=True)


def _as_many(found: int, n: int, hits: int, total: int) -> float:
    """Probability that n rows drawn from `total`, `hits` of them found, hold `found` or more (Fisher, one-sided)."""
    x = np.arange(found, min(n, hits) + 1)
    x = x[n - x <= total - hits]
    chance = np.exp(_choose(hits, x) + _choose(total - hits, n - x) - _choose(total, n))
    return min(float(chance.sum()), 1.0)


def _choose(n: Any, k: Any) -> Any:
    """Logarithm of the binomial coefficient."""
    return gammaln(np.add(n, 1)) - gammaln(np.add(k, 1)) - gammaln(np.subtract(n, k) + 1)


def _counts(group: Any, member: Any, flagged: Any) -> pd.DataFrame:
    """Per subject: n_rows, n_members, n_found (members flagged), n_others, n_accused (others flagged)."""
    frame = pd.DataFrame(
        {
            "group": pd.array(group, dtype="str"),
            "member": pd.array(member, dtype="boolean"),
            "flagged": pd.array(flagged, dtype="boolean"),
        }
    ).dropna()
    yes, hit = frame["member"].to_numpy(dtype=bool), frame["flagged"].to_numpy(dtype=bool)
    frame = frame[["group"]].assign(n_rows=1, n_members=yes, n_found=yes & hit, n_others=~yes, n_accused=~yes & hit)
    return frame.groupby("group", sort=True).sum().astype(np.int64)
