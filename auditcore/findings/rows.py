"""What an attack says about one row. In: a line of `membership_scores`, a threshold. Out: sentences."""

from typing import Any

import numpy as np
import pandas as pd

from auditcore.findings.common import attack_name, score_number
from auditcore.findings.membership import points
from auditcore.words import Sentence, Strong, count, counted, known, signed

STATUS_WORDS = {
    "ok": "scored",
    "p_zero": "no token raised (P = 0)",
    "n_zero": "no token lowered (N = 0)",
    "no_errors": "the model makes no error here",
    "insufficient": "one error, or no shift at all: counts as 0",
    "no_evidence": "no evidence (too short, or nothing to compare): left out of every rate",
}
FORCED = ("no_errors", "n_zero")  # rows without a ratio: where they stand is the policy of the run

# The same for a narrow column.
SHORT_WORDS = {
    "ok": "",
    "p_zero": "P = 0",
    "n_zero": "N = 0",
    "no_errors": "no error",
    "insufficient": "counts as 0",
    "no_evidence": "no evidence",
}


def threshold_at(metrics: pd.DataFrame, attack: str, target_fpr: float) -> float | None:
    """From which rank score on an attack calls rows members; None where too few rows or tied scores leave none.

    metrics: table `attack_metrics`.
    """
    at = points(metrics, target_fpr)
    at = at[(at["attack"] == attack) & at["value"].notna() & at["threshold"].notna()]
    return None if at.empty else float(at["threshold"].iloc[0])


def called(rank_score: object, threshold: object) -> bool | None:
    """Whether a row is called a member at a threshold; None where either is missing (no evidence, not resolved)."""
    return float(rank_score) >= float(threshold) if known(rank_score) and known(threshold) else None


def status_words(status: str, rank_score: object, short: bool = False) -> str:
    """Why a row has no plain score. A row without a ratio stands where the run's policy ranked it: top, or 0."""
    told = (SHORT_WORDS if short else STATUS_WORDS).get(status, status)
    if status not in FORCED or not known(rank_score):
        return told
    top = "at the top" if short else "placed at the top"
    return f"{told}: {top if float(rank_score) > 0 else 'counts as 0'}"


def scores_title(attack: str, threshold: object, forced: int, forced_called: int, beyond: bool) -> str:
    """Which rows of the distribution are called training rows, in one line.

    forced: rows drawn without a ratio; forced_called: those of them that are called; beyond: no row with a score is.
    """
    start = f"{attack_name(attack)} scores"
    if not known(threshold):
        return f"{start} of training rows and of other rows"
    apart = counted(forced, "row") + " without a ratio"
    if beyond and not forced_called:
        return f"{start}: at this rate no row is called a training row"
    if beyond:
        are = "are" if forced_called > 1 else "is"
        only = f"{start}: at this rate only {counted(forced_called, 'row')} {are} called training"
        return f"{only}, among the {count(forced)} without a ratio"
    right = f"{start}: every row right of the line is called a training row"
    if not forced:
        return right
    if forced_called == forced:
        return f"{right}, and so {'are all' if forced > 1 else 'is the'} {apart}"
    return f"{right}; {f'so are {count(forced_called)}' if forced_called else 'none'} of the {apart}"


def row_sentence(row: Any, threshold: object, attack: str) -> list[str]:
    """What the attack says about one row of `membership_scores`, and whether that is right."""
    if row["status"] == "no_evidence":
        scored = known(row.get("n_scored")) and row["n_scored"] > 0
        why = "nothing to go by in the numbers of this row" if scored else "the row is too short to score"
        return [Strong("No evidence"), f": {why}, so nothing is said about it."]
    member = _truth(row["member"])
    truth = "" if member is None else "it was trained on" if member else "it was not trained on"
    says = called(row["rank_score"], threshold)
    why = status_words(row["status"], row["rank_score"])
    why = f" {why[0].upper()}{why[1:]}." if row["status"] != "ok" else ""
    if says is None:
        known_truth = f"; {truth}" if truth else "; its membership is unknown"
        return [Strong("Not judged"), f": this run has no threshold at the chosen rate{known_truth}.{why}"]
    told = Strong("Called a training row" if says else "Not called a training row")
    if not truth:
        return [told, f"; whether it is one is unknown.{why}"]
    right = says == member
    tail = f", rightly: {truth}." if right else f", wrongly: {truth}."
    return [told, tail + why]


def tokens_under_both(mine: pd.DataFrame, theirs: pd.DataFrame, name_a: str, name_b: str) -> Sentence:
    """How likely two runs' models find the same tokens. mine, theirs: rows of `token_stats` of one example."""
    both = mine.merge(theirs, on="position", suffixes=("", "_b"))
    more = both["logp_target"].astype(float) - both["logp_target_b"].astype(float)
    more = more[both["scored"] & both["scored_b"] & np.isfinite(more)]
    if more.empty:
        return ["No token shown is scored in both runs."]
    told = Strong(f"{count(int((more > 0).sum()))} of {counted(len(more), 'token')} are likelier under {name_a}")
    return [told, f" than under {name_b}: on average {signed(more.mean(), 2)} nats a token."]


def score_words(row: Any, attack: str, threshold: object = None) -> str:
    """The score of one row as a reader sees it: "EZ 4.31 (threshold 1.87)"."""
    name = attack_name(attack)
    value = f"{name} {score_number(row['score'])}" if known(row["score"]) else f"no {name} score"
    limit = float(threshold) if known(threshold) else None
    # Beyond any real score: the threshold lies among rows placed at the top.
    return (
        value
        if limit is None
        else f"{value} (threshold {'above every row with a ratio' if limit > 1e100 else score_number(limit)})"
    )


def _truth(member: object) -> bool | None:
    return None if member is None or pd.isna(member) else bool(member)  # type: ignore[call-overload]
