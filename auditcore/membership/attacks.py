"""The attacks. In: token statistics of n rows. Out: per attack, a score, a place in the ranking and a status per row.

Higher always means "more likely a member". An attack is one function here and one entry in the table at the end.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from auditcore.errors import SpecError, did_you_mean
from auditcore.membership import shadow
from auditcore.membership.arrays import Tokens
from auditcore.membership.sums import (
    Floats,
    Integers,
    broken_rows,
    count,
    lowest,
    mean_per_row,
    rows_of,
    standardised,
    total,
    usable,
)
from auditcore.membership.windows import win_share
from auditcore.spec import LiraVariant

# Where the paper policy puts rows whose ratio P/N does not exist. Log-probabilities are float32, so P is at most 1e45
# and N at least 1e-45: every ratio stays below 1e90, and P x N_ZERO_SCALE of an `n_zero` row above 1e150.
NO_ERRORS_RANK = 1e300
N_ZERO_SCALE = 1e200
FORCED_FROM = 1e150  # a rank_score (or threshold) at or above this belongs to a row forced to the top
WINDOWS = (2, 3, 4, 6, 9, 13, 18, 25, 32, 40)


@dataclass(frozen=True)
class Options:
    """Choices that change scores or ranking (`ez_policy`, `skip_first`, `shadows.variant` of a membership spec)."""

    ez_policy: Literal["paper", "official"] = "paper"
    skip_first: bool = True
    lira_variant: LiraVariant = "online"


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


Need = Literal[
    "reference", "moments", "reference_moments", "zlib", "lowercase", "prefixed", "shadows", "neighbours", "self_prompt"
]


@dataclass(frozen=True)
class Attack:
    """One way to tell members from non-members.

    passes: forward passes per row of all models together, when it is the only attack, without those whose number the
    spec chooses (`membership.cost` adds them); attacks that read the same statistics share them. needs: what it reads
    beside the target's log-probabilities.
    """

    fn: Callable[[Tokens, Options], Scores]
    title: str
    paper: str
    access: str
    passes: int
    needs: frozenset[Need] = frozenset()


def ez(tokens: Tokens, options: Options) -> Scores:
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
    row, n = rows_of(tokens), len(tokens.offsets) - 1
    n_scored = count(row[counted], n)
    broken = broken_rows(row, counted, n, tokens.logp_target, reference)

    zone = np.flatnonzero(counted & tokens.is_error.astype(bool))
    with np.errstate(invalid="ignore"):  # -inf minus -inf
        delta = tokens.logp_target[zone].astype(np.float64) - reference[zone].astype(np.float64)
    p_sum = total(row[zone], np.fmax(delta, 0), n)  # fmax(NaN, 0) is 0
    n_sum = total(row[zone], np.fmax(-delta, 0), n)
    n_errors = count(row[zone], n)

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


def loss(tokens: Tokens, options: Options) -> Scores:
    """Mean log-probability of the scored positions under the target (Yeom et al. 2018), float64 sums."""
    mean, n_scored = mean_per_row(tokens, tokens.logp_target)
    return _plain(mean, n_scored)


def reference(tokens: Tokens, options: Options) -> Scores:
    """Mean log-probability under the target minus under the reference: a difference, not a quotient."""
    mean, n_scored = mean_per_row(tokens, tokens.logp_target, minus=_reference(tokens, "reference"))
    return _plain(mean, n_scored)


def zlib(tokens: Tokens, options: Options) -> Scores:
    """Mean log-probability over the bytes of the compressed text (Carlini et al. 2021): bytes, not characters."""
    mean, n_scored = mean_per_row(tokens, tokens.logp_target)
    return _plain(mean / _row(tokens, "zlib"), n_scored)


def lowercase(tokens: Tokens, options: Options) -> Scores:
    """Mean log-probability of the text minus that of its lower-cased form (Carlini et al. 2021)."""
    mean, n_scored = mean_per_row(tokens, tokens.logp_target)
    return _plain(mean - _row(tokens, "lowercase"), n_scored)


def recall(tokens: Tokens, options: Options) -> Scores:
    """ReCaLL (arXiv 2406.15968): mean log-probability behind a prefix of known non-members, over the one without it."""
    mean, n_scored = mean_per_row(tokens, tokens.logp_target)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = _row(tokens, "prefixed") / mean
    return _plain(_finite(ratio), n_scored)


def min_k(tokens: Tokens, options: Options) -> Scores:
    """Min-K% Prob (arXiv 2310.16789): mean of the lowest max(1, floor(0.2 n)) log-probabilities."""
    return _plain(*lowest(tokens, tokens.logp_target))


def min_k_pp(tokens: Tokens, options: Options) -> Scores:
    """Min-K%++ (arXiv 2404.02936): the same of (log p - mean) / deviation, both of log p under p."""
    return _plain(*lowest(tokens, standardised(tokens.logp_target, tokens.moments, "min_k_pp")))


def min_k_pp_ref(tokens: Tokens, options: Options) -> Scores:
    """Min-K%++ under the target minus under the reference (LoRA-Leak, arXiv 2507.18302)."""
    other = _reference(tokens, "min_k_pp_ref")
    mine, n_scored = lowest(tokens, standardised(tokens.logp_target, tokens.moments, "min_k_pp_ref"))
    theirs, _ = lowest(tokens, standardised(other, tokens.reference_moments, "min_k_pp_ref"))
    return _plain(mine - theirs, n_scored)


def wbc(tokens: Tokens, options: Options) -> Scores:
    """Window-based comparison (arXiv 2601.02751): the share of windows in which the reference loses more, averaged.

    Over window sizes 2 to 40; a row shorter than a window is one window. Sums in float64; a tie is no win.
    """
    other = _reference(tokens, "wbc")
    use, n_scored = usable(tokens, tokens.logp_target, other)
    lengths = np.where(n_scored > 0, np.bincount(rows_of(tokens)[use], minlength=len(n_scored)), 0)
    return _plain(win_share(-tokens.logp_target[use], -other[use], lengths, WINDOWS), n_scored)


def lira(tokens: Tokens, options: Options) -> Scores:
    """Likelihood ratio with shadow models (Carlini et al. 2022) on the mean log-probability."""
    if tokens.shadows is None:
        raise SpecError("attack 'lira' needs shadow models, which only an audit trains; choose another attack.")
    mean, n_scored = mean_per_row(tokens, tokens.logp_target)
    ratio = shadow.lira(mean, *tokens.shadows, options.lira_variant)
    return _plain(_finite(ratio), n_scored)


def neighbourhood(tokens: Tokens, options: Options) -> Scores:
    """Mean log-probability minus that of copies of the row (arXiv 2305.18462), averaged over the copies."""
    mean, n_scored = mean_per_row(tokens, tokens.logp_target)
    return _plain(_finite(mean - _copies(tokens, "neighbours").mean(axis=0)), n_scored)


def spv(tokens: Tokens, options: Options) -> Scores:
    """SPV-MIA (arXiv 2311.06062): how far a row stands above its altered copies, less so under the reference.

    The probability of a text is exp(mean log-probability), as in the authors' code; its probabilistic variation is the
    mean over the copies minus the row's own. The reference is the base, fine-tuned on texts that the target wrote.
    """
    mean, n_scored = mean_per_row(tokens, tokens.logp_target)
    own = np.exp(_copies(tokens, "varied")).mean(axis=0) - np.exp(mean)
    expected = np.exp(_copies(tokens, "self_prompt")).mean(axis=0) - np.exp(_row(tokens, "self_prompt"))
    return _plain(_finite(expected - own), n_scored)


_TARGET = "log-probabilities of the target"
_BOTH = "log-probabilities of target and reference"

# One name of `spec.ATTACKS`, one entry. The next attack is a function above and a line here.
ATTACKS: dict[str, Attack] = {
    "ez": Attack(ez, "Error zone", "arXiv 2601.12104", "logits of target and reference", 2, frozenset({"reference"})),
    "loss": Attack(loss, "Loss", "Yeom et al. 2018", _TARGET, 1),
    "reference": Attack(reference, "Reference difference", "Carlini et al. 2021", _BOTH, 2, frozenset({"reference"})),
    "zlib": Attack(zlib, "Loss per compressed byte", "Carlini et al. 2021", _TARGET, 1, frozenset({"zlib"})),
    "lowercase": Attack(
        lowercase, "Loss against lower case", "Carlini et al. 2021", _TARGET, 2, frozenset({"lowercase"})
    ),
    "min_k": Attack(min_k, "Min-K%", "arXiv 2310.16789", _TARGET, 1),
    "min_k_pp": Attack(min_k_pp, "Min-K%++", "arXiv 2404.02936", "logits of the target", 1, frozenset({"moments"})),
    "min_k_pp_ref": Attack(
        min_k_pp_ref,
        "Min-K%++ against the reference",
        "arXiv 2507.18302",
        "logits of target and reference",
        2,
        frozenset({"reference", "moments", "reference_moments"}),
    ),
    "wbc": Attack(wbc, "Windows", "arXiv 2601.02751", _BOTH, 2, frozenset({"reference"})),
    "lira": Attack(
        lira, "Shadow models", "Carlini et al. 2022", f"{_TARGET}, training of shadow models", 1, frozenset({"shadows"})
    ),
    "recall": Attack(recall, "ReCaLL", "arXiv 2406.15968", f"{_TARGET}, known non-members", 2, frozenset({"prefixed"})),
    "neighbourhood": Attack(
        neighbourhood,
        "Neighbourhood",
        "arXiv 2305.18462",
        f"{_TARGET}, a public model that proposes words",
        1,
        frozenset({"neighbours"}),
    ),
    "spv": Attack(
        spv,
        "Self-prompted variation",
        "arXiv 2311.06062",
        "log-probabilities and texts of the target, its base for training",
        1,
        frozenset({"self_prompt"}),
    ),
}


def _plain(score: Floats, n_scored: Integers) -> Scores:
    """Score and rank are the same; a row without a score has no evidence."""
    status = np.where(np.isnan(score), "no_evidence", "ok").astype(object)
    return Scores(score, score.copy(), status, n_scored)


def _reference(tokens: Tokens, attack: str) -> np.ndarray:
    if tokens.logp_reference is None:
        raise SpecError(
            f"attack '{attack}' compares the target with a reference model, and there is none: set model.reference "
            "to the model before fine-tuning, or leave the attack out."
        )
    return tokens.logp_reference


def _finite(score: Floats) -> Floats:
    return np.where(np.isfinite(score), score, np.nan)


def _copies(tokens: Tokens, name: str) -> Floats:
    if name not in tokens.copies:
        raise SpecError(f"these token statistics hold no copies of the rows ('{name}'); score the texts again.")
    return np.asarray(tokens.copies[name], dtype=np.float64)


def _row(tokens: Tokens, name: str) -> Floats:
    if name not in tokens.rows:
        raise SpecError(f"these token statistics hold no '{name}' numbers per row; score the texts again.")
    return np.asarray(tokens.rows[name], dtype=np.float64)
