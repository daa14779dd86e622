"""Membership scores. In: log-probabilities per token of a target and a reference model. Out: table `membership_scores`.

Higher always means "more likely a member". `score` is the number an attack defines; `rank_score` is the row's place in
the ranking: finite for every row with evidence and comparable between runs, so that a threshold found in one run can
classify a text scored later.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from auditcore.errors import SpecError, did_you_mean
from auditcore.membership.arrays import TokenArrays, Tokens, tokens_from_frame

__all__ = ["ATTACKS", "Attack", "Options", "Scores", "Tokens", "score_table", "status_counts", "tokens_from_frame"]

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]

# Where the paper policy puts rows whose ratio P/N does not exist. Log-probabilities are float32, so P is at most 1e45
# and N at least 1e-45: every ratio stays below 1e90, and P x N_ZERO_SCALE of an `n_zero` row above 1e150.
NO_ERRORS_RANK = 1e300
N_ZERO_SCALE = 1e200
FORCED_FROM = 1e150  # a rank_score (or threshold) at or above this belongs to a row forced to the top


@dataclass(frozen=True)
class Options:
    """Choices that change scores or ranking (fields `ez_policy` and `skip_first` of a membership spec)."""

    ez_policy: Literal["paper", "official"] = "paper"
    skip_first: bool = True


@dataclass(frozen=True)
class Scores:
    """What one attack says about n rows: score and rank_score float64 [n] (NaN = none), status str [n], n_scored int64.

    n_errors int64 [n], p_sum and n_sum float64 [n] only where the attack knows an error zone.
    """

    score: Floats
    rank_score: Floats
    status: np.ndarray
    n_scored: Integers
    n_errors: Integers | None = None
    p_sum: Floats | None = None
    n_sum: Floats | None = None


@dataclass(frozen=True)
class Attack:
    """One way to tell members from non-members. passes: forward passes per row, all models together."""

    fn: Callable[[TokenArrays, Options], Scores]
    title: str
    paper: str
    access: str
    passes: int


def ez(tokens: TokenArrays, options: Options) -> Scores:
    """Error-zone ratio P/N (arXiv 2601.12104): shifts of log-probability where the target errs, raised over lowered.

    E = error positions, the first predicted position of each sequence left out under `skip_first`, as in the authors'
    code. P sums max(delta, 0) over E and N sums max(-delta, 0), in float64. A NaN shift adds to neither; a token to
    which the target gives probability 0 makes N infinite and the score 0. Where a NaN or infinite number would lift the
    row to the top (P infinite, or nothing left that was lowered) the row is `no_evidence`.
    """
    reference = _reference(tokens, "ez")
    counted = tokens.scored.astype(bool)
    if options.skip_first:
        counted = counted & (tokens.position != 1)  # position 0 is never predicted
    row, n = _rows(tokens), len(tokens.offsets) - 1
    n_scored = _count(row[counted], n)
    broken = _broken(row, counted, n, tokens.logp_target, reference)

    zone = np.flatnonzero(counted & tokens.is_error.astype(bool))
    with np.errstate(invalid="ignore"):  # -inf minus -inf
        delta = tokens.logp_target[zone].astype(np.float64) - reference[zone].astype(np.float64)
    p_sum = _sum(row[zone], np.fmax(delta, 0), n)  # fmax(NaN, 0) is 0
    n_sum = _sum(row[zone], np.fmax(-delta, 0), n)
    n_errors = _count(row[zone], n)

    cases = [
        ((n_scored == 0) | np.isinf(p_sum) | (broken & (n_sum == 0)), "no_evidence"),
        (n_errors == 0, "no_errors"),
        ((n_errors == 1) | ((p_sum == 0) & (n_sum == 0)), "insufficient"),
        (n_sum == 0, "n_zero"),
        (p_sum == 0, "p_zero"),
    ]
    status = np.select([c for c, _ in cases], [name for _, name in cases], default="ok").astype(object)
    has_ratio = (status == "ok") | (status == "p_zero")
    score = np.full(n, np.nan)
    score[has_ratio] = p_sum[has_ratio] / n_sum[has_ratio]
    return Scores(score, _ez_rank(score, status, p_sum, options), status, n_scored, n_errors, p_sum, n_sum)


def _ez_rank(score: Floats, status: np.ndarray, p_sum: Floats, options: Options) -> Floats:
    if options.ez_policy not in ("paper", "official"):
        raise SpecError(
            f"ez_policy: '{options.ez_policy}' is unknown.{did_you_mean(options.ez_policy, ['paper', 'official'])}"
        )
    rank = np.where(np.isnan(score), 0.0, score)
    if options.ez_policy == "paper":
        n_zero = status == "n_zero"
        rank[n_zero] = N_ZERO_SCALE * p_sum[n_zero]
        rank[status == "no_errors"] = NO_ERRORS_RANK
    rank[status == "no_evidence"] = np.nan
    return rank


def loss(tokens: TokenArrays, options: Options) -> Scores:
    """Mean log-probability of the scored positions under the target (Yeom et al. 2018), float64 sums."""
    return _mean(tokens, tokens.logp_target)


def reference(tokens: TokenArrays, options: Options) -> Scores:
    """Mean log-probability under the target minus under the reference: a difference, not a quotient."""
    other = _reference(tokens, "reference")
    return _mean(tokens, tokens.logp_target, minus=other)


# One name of `spec.ATTACKS`, one entry. The next attack is a function above and a line here.
ATTACKS: dict[str, Attack] = {
    "ez": Attack(ez, "Error zone", "arXiv 2601.12104", "logits of target and reference", 2),
    "loss": Attack(loss, "Loss", "Yeom et al. 2018", "log-probabilities of the target", 1),
    "reference": Attack(
        reference, "Reference difference", "Carlini et al. 2021", "log-probabilities of target and reference", 2
    ),
}


def score_table(
    tokens: TokenArrays,
    attacks: Sequence[str],
    example_ids: Sequence[str],
    member: Any,
    *,
    ez_policy: Literal["paper", "official"] = "paper",
    skip_first: bool = True,
) -> pd.DataFrame:
    """Score every row with every attack: table `membership_scores`, attack by attack, rows in the order given.

    tokens: n rows (`Tokens`, or anything with its fields); example_ids: n names; member: n values true, false or
    missing (pandas boolean, or a list with None). A row without a scored position is `no_evidence`: neither score nor
    rank, never an exception; so is a row with a NaN or infinite log-probability where the attack takes a mean (`ez`
    says what it does).
    Raises SpecError for an unknown attack, an unknown policy or a missing reference; ValueError for unequal lengths.
    """
    n = len(tokens.offsets) - 1
    known = pd.array(member, dtype="boolean")
    if len(example_ids) != n or len(known) != n:
        raise ValueError(f"{n} rows of tokens, {len(example_ids)} example ids, {len(known)} member values")
    options = Options(ez_policy, skip_first)
    tables = []
    for name in attacks:
        if name not in ATTACKS:
            raise SpecError(f"attacks: '{name}' is unknown.{did_you_mean(name, ATTACKS)}")
        result = ATTACKS[name].fn(tokens, options)
        table = pd.DataFrame(
            {
                "example_id": pd.Series(list(example_ids), dtype="str"),
                "member": known,
                "attack": pd.Series([name] * n, dtype="str"),
                "score": result.score,
                "rank_score": result.rank_score,
                "status": pd.Series(result.status, dtype="str"),
                "n_scored": result.n_scored,
            }
        )
        table["n_errors"] = pd.array(np.full(n, None) if result.n_errors is None else result.n_errors, dtype="Int64")
        table["p_sum"] = np.nan if result.p_sum is None else result.p_sum
        table["n_sum"] = np.nan if result.n_sum is None else result.n_sum
        tables.append(table)
    if not tables:
        raise SpecError(f"attacks: name at least one.{did_you_mean('', ATTACKS)}")
    return pd.concat(tables, ignore_index=True)


def status_counts(scores: pd.DataFrame) -> pd.DataFrame:
    """Count rows per attack and status: attack, status, forced, n_member, n_nonmember, n_unknown.

    forced: the row stands at the top of the ranking without a ratio. Such rows are shown beside every EZ number, since
    boilerplate that any model predicts has no errors either.
    """
    frame = scores[["attack", "status"]].copy()
    member = scores["member"].astype("boolean")
    frame["n_member"] = member.fillna(False).astype("int64")
    frame["n_nonmember"] = (~member).fillna(False).astype("int64")
    frame["n_unknown"] = member.isna().astype("int64")
    frame["forced"] = scores["rank_score"] >= FORCED_FROM
    counts = frame.groupby(["attack", "status", "forced"], sort=False, as_index=False).sum()
    return counts[["attack", "status", "forced", "n_member", "n_nonmember", "n_unknown"]]


def _reference(tokens: TokenArrays, attack: str) -> np.ndarray:
    if tokens.logp_reference is None:
        raise SpecError(
            f"attack '{attack}' compares the target with a reference model, and there is none: set model.reference "
            "to the model before fine-tuning, or leave the attack out."
        )
    return tokens.logp_reference


def _mean(tokens: TokenArrays, logp: np.ndarray, minus: np.ndarray | None = None) -> Scores:
    counted = tokens.scored.astype(bool)
    row, n = _rows(tokens), len(tokens.offsets) - 1
    n_scored = _count(row[counted], n)
    # The whole row is set aside: without its broken positions it could rank higher than with them.
    broken = _broken(row, counted, n, logp, *(() if minus is None else (minus,)))
    used = np.flatnonzero(counted & ~broken[row])
    total = _sum(row[used], logp[used].astype(np.float64), n)
    if minus is not None:
        total -= _sum(row[used], minus[used].astype(np.float64), n)
    evidence = (n_scored > 0) & ~broken
    score = np.full(n, np.nan)
    score[evidence] = total[evidence] / n_scored[evidence]
    return Scores(score, score.copy(), np.where(evidence, "ok", "no_evidence").astype(object), n_scored)


def _rows(tokens: TokenArrays) -> Integers:
    """Return the row of every token: int64 [t]."""
    return np.repeat(np.arange(len(tokens.offsets) - 1, dtype=np.int64), np.diff(tokens.offsets))


def _broken(row: Integers, counted: Booleans, n: int, *logps: np.ndarray) -> Booleans:
    """Say which rows count a NaN or infinite log-probability: bool [n]."""
    bad = np.zeros(len(row), dtype=bool)
    for logp in logps:
        bad |= ~np.isfinite(logp)
    broken = np.zeros(n, dtype=bool)
    broken[row[bad & counted]] = True
    return broken


def _count(row: Integers, n: int) -> Integers:
    return np.bincount(row, minlength=n).astype(np.int64)


def _sum(row: Integers, values: Floats, n: int) -> Floats:
    """Sum float64 values per row, in order: the same for a row alone and for a row among others."""
    return np.bincount(row, weights=values, minlength=n).astype(np.float64)
