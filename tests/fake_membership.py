"""A fake membership run. In: a folder, sizes, a seed. Out: the run, numbers drawn from a seeded generator."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import beta, rankdata

from auditcore.store import Run
from tests.fake_parts import HOSTILE, TEXT, VERDICT_COLUMNS, Recipe, example_table, judged, progress, start_run

TARGETS = (0.001, 0.01, 0.05, 0.1)
METRICS = [
    *("attack", "metric", "target_fpr", "value", "low", "high", "realised_fpr", "threshold", "resolvable"),
    *("n_member", "n_nonmember", "n_no_evidence"),
]


def membership_run(out: Path, recipe: Recipe | None = None, **changes: Any) -> Run:
    """Write a membership run: examples, token_stats, membership_scores, attack_metrics, roc, verdicts."""
    recipe = replace(recipe or Recipe(), **changes)
    rng = np.random.default_rng(recipe.seed)
    group = {"group": "patient"} if recipe.per_subject > 1 else {}
    spec = {
        "kind": "membership",
        "name": out.name,
        "model": {"source": "runs/ft/checkpoints/last", "reference": "smollm2-135m"},
        "data": {"path": "rows.csv", "roles": {"text": "text", "member": "member"} | group},
        "max_length": 128,
        "store_text": recipe.store_text,
    }
    run = start_run(out, spec, recipe)
    examples = example_table(rng, recipe)
    stats, offsets = _token_stats(rng, recipe, examples)
    scores = _scores(stats, offsets, examples)
    metrics, roc = _metrics(scores)
    tables = {
        "examples": examples,
        "token_stats": stats,
        "membership_scores": scores,
        "attack_metrics": metrics,
        "roc": roc,
        "verdicts": _membership_verdicts(metrics),
    }
    for name in list(tables)[: recipe.stages]:
        run.write(name, tables[name])
    progress(run, ["token statistics", "scores", "operating points"], recipe)
    return run


def _token_stats(rng: np.random.Generator, recipe: Recipe, examples: pd.DataFrame) -> tuple[pd.DataFrame, np.ndarray]:
    lengths = examples["n_tokens"].to_numpy().astype(np.int64)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    total = int(offsets[-1])
    row = np.repeat(np.arange(len(lengths)), lengths)
    position = (np.arange(total) - offsets[row]).astype(np.int32)
    member = examples["member"].fillna(False).to_numpy(dtype=bool)[row]
    reference = -rng.gamma(1.2, 2.0, total)
    is_error = rng.random(total) < np.clip(-reference / 6, 0.05, 0.95)
    delta = rng.normal(0, 0.5, total) + np.where(member & is_error, recipe.lift * rng.random(total), -0.05)
    target = np.minimum(reference + delta, -1e-4)
    quiet = np.isin(row, [12, 13]) if len(lengths) >= 20 else np.zeros(total, dtype=bool)
    is_error &= ~quiet  # rows without an error
    scored = position > 0
    words = np.array([" " + w for w in TEXT.split(" ")])
    token_id = rng.integers(0, len(words), total).astype(np.int32)
    token = words[token_id].astype(object)
    if recipe.hostile:
        for index in range(min(len(HOSTILE), len(lengths))):
            text, start, stop = HOSTILE[index], offsets[index], offsets[index + 1]
            pieces = [text[i : i + 4] for i in range(0, len(text), 4)] or [""]
            token[start:stop] = [pieces[i % len(pieces)] for i in range(stop - start)]
    if recipe.store_text == "none":
        token[:] = ""
    frame = pd.DataFrame(
        {
            "example_id": examples["example_id"].to_numpy()[row],
            "position": position,
            "token_id": token_id,
            "token": token,
            "logp_target": np.where(scored, target, np.nan).astype(np.float32),
            "logp_reference": np.where(scored, reference, np.nan).astype(np.float32),
            "delta": np.where(scored, target - reference, np.nan).astype(np.float32),
            "is_error": is_error & scored,
            "scored": scored,
        }
    )
    return frame, offsets


def _scores(stats: pd.DataFrame, offsets: np.ndarray, examples: pd.DataFrame) -> pd.DataFrame:
    n = len(examples)
    row = np.repeat(np.arange(n), np.diff(offsets))
    counted = (stats["scored"] & (stats["position"] > 1)).to_numpy()
    zone = counted & stats["is_error"].to_numpy()
    delta = np.nan_to_num(stats["delta"].to_numpy(dtype=np.float64))
    logp = np.nan_to_num(stats["logp_target"].to_numpy(dtype=np.float64))

    def total(values: np.ndarray) -> np.ndarray:
        return np.bincount(row, weights=values, minlength=n)

    n_scored, n_errors = total(counted).astype(int), total(zone).astype(int)
    p, m = total(np.where(zone, np.maximum(delta, 0), 0)), total(np.where(zone, np.maximum(-delta, 0), 0))
    none = n_scored == 0
    status = np.select(
        [none, n_errors == 0, (n_errors == 1) | (p + m == 0), m == 0, p == 0],
        ["no_evidence", "no_errors", "insufficient", "n_zero", "p_zero"],
        "ok",
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio, mean, shift = p / m, total(logp * counted) / n_scored, total(delta * counted) / n_scored
    plain = np.isin(status, ["ok", "p_zero"])
    place = np.select(
        [plain, status == "no_errors", status == "n_zero", status == "insufficient"],
        [ratio, 1e300, 1e200 * p, 0.0],
        np.nan,
    )
    common = {"example_id": examples["example_id"], "member": examples["member"]}
    counts = {"n_scored": n_scored, "n_errors": n_errors, "p_sum": p, "n_sum": m}
    ez = {**common, "attack": "ez", "score": np.where(plain, ratio, np.nan), "rank_score": place, "status": status}
    frames = [pd.DataFrame({**ez, **counts})]
    for attack, value in (("loss", mean), ("reference", shift)):
        simple = {"attack": attack, "score": value, "rank_score": value}
        blank = dict.fromkeys(("n_errors", "p_sum", "n_sum"), np.nan)
        words = np.where(none, "no_evidence", "ok")
        frames.append(pd.DataFrame({**common, **simple, "status": words, "n_scored": n_scored, **blank}))
    frame = pd.concat(frames, ignore_index=True)
    return frame.astype({"n_errors": "Int32"})


def _metrics(scores: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    rows, curves = [], []
    for attack, all_rows in scores.groupby("attack", sort=False):
        known = all_rows[all_rows["member"].notna() & all_rows["rank_score"].notna()]
        member = known["member"].to_numpy(dtype=bool)
        rank = known["rank_score"].to_numpy(dtype=float)
        n1, n0 = int(member.sum()), int((~member).sum())
        counts = {"n_member": n1, "n_nonmember": n0, "n_no_evidence": int(all_rows["rank_score"].isna().sum())}
        if not n1 or not n0:
            nothing = {"attack": attack, "value": np.nan, "low": np.nan, "high": np.nan, **counts}
            rows.append({**nothing, "metric": "auc"})
            rows += [{**nothing, "metric": "tpr", "target_fpr": f, "resolvable": False} for f in TARGETS]
            curves.append(pd.DataFrame({"attack": attack, "fpr": [np.nan], "tpr": [np.nan], "threshold": [np.nan]}))
            continue
        auc = (rankdata(rank)[member].sum() - n1 * (n1 + 1) / 2) / (n1 * n0)
        half = 1.96 * np.sqrt(max(auc * (1 - auc), 1e-6) / min(n1, n0))
        low, high = max(0.0, auc - half), min(1.0, auc + half)
        rows.append({"attack": attack, "metric": "auc", "value": auc, "low": low, "high": high, **counts})
        fpr, tpr, threshold = _roc(member, rank)
        curves.append(pd.DataFrame({"attack": attack, "fpr": fpr, "tpr": tpr, "threshold": threshold}))
        for target in TARGETS:
            at = int(np.searchsorted(fpr, target, side="right")) - 1
            rows.append({"attack": attack, **_operating_point(target, fpr[at], tpr[at], threshold[at], counts)})
    return pd.DataFrame(rows, columns=METRICS), pd.concat(curves, ignore_index=True)


def _operating_point(target: float, fpr: float, tpr: float, threshold: float, counts: dict[str, int]) -> dict[str, Any]:
    n1, n0 = counts["n_member"], counts["n_nonmember"]
    resolvable = bool(beta.ppf(0.975, round(fpr * n0) + 1, n0 - round(fpr * n0)) <= 2 * target)
    hits = round(tpr * n1)
    low = beta.ppf(0.025, hits, n1 - hits + 1) if hits else 0.0
    high = beta.ppf(0.975, hits + 1, n1 - hits) if hits < n1 else 1.0
    interval = resolvable and n0 * target >= 5
    return {
        "metric": "tpr",
        "target_fpr": target,
        "value": tpr if resolvable else None,
        "low": low if interval else None,
        "high": high if interval else None,
        "realised_fpr": fpr,
        "threshold": threshold,
        "resolvable": resolvable,
        **counts,
    }


def _roc(member: np.ndarray, rank: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    order = np.argsort(-rank, kind="stable")
    last = np.append(np.diff(rank[order]) != 0, True)
    tpr, fpr = np.cumsum(member[order])[last] / member.sum(), np.cumsum(~member[order])[last] / (~member).sum()
    return np.append(0, fpr), np.append(0, tpr), np.append(np.nan, rank[order][last])


def _membership_verdicts(metrics: pd.DataFrame) -> pd.DataFrame:
    rows = []
    for row in metrics.to_dict("records"):
        if row["metric"] != "tpr" or row["target_fpr"] != 0.01:
            continue
        excess, low, high = (
            None if pd.isna(row[k]) else float(row[k]) - float(row["realised_fpr"]) for k in ("value", "low", "high")
        )
        n = row["n_member"] + row["n_nonmember"]
        line = {"kind": "membership", "attacker": row["attack"], "split": None, "n_subjects": n}
        rows.append({**line, **judged(excess, low, high)})
    if rows:
        best = max(rows, key=lambda r: -1 if r["value"] is None else r["value"])
        rows.append({**best, "attacker": "all"})
    return pd.DataFrame(rows, columns=VERDICT_COLUMNS)
