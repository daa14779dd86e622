"""Blind baseline `bow`. In: texts, membership, subjects; no model. Out: scores, and the AUC that they reach.

Where the words alone tell members from non-members, the two differ in distribution, and an attack on a model may only
be seeing that difference.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from auditcore.membership.bootstrap import subject_codes
from auditcore.membership.roc import attack_metrics

FOLDS = 5
# Half intervals below 0.5 before rows are called tied: fitted anew, the models spread more than resamples.
BELOW_BY = 1.5
FEWEST = 10  # subjects per class: fewer make no five folds worth a model
MOST_WORDS = 65_536


def blind_scores(
    texts: Sequence[str], member: Any, groups: Sequence[Any] | None = None, seed: int = 0
) -> npt.NDArray[np.float64]:
    """Probability of membership from a bag of words: float64 [n], cross-validated by subject; NaN where not measured.

    texts: n; member: n values true, false or missing (missing: NaN). Each row is scored by a logistic regression on
    TF-IDF weights of words and pairs of words that was fitted without the row's subject. All NaN with fewer than 10
    subjects of either class.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedGroupKFold

    labels = pd.array(member, dtype="boolean")
    known = np.flatnonzero(~labels.isna())
    truth = labels[known].to_numpy(dtype=bool)
    subjects = subject_codes(None if groups is None else [groups[i] for i in known.tolist()], len(known))
    unit = np.arange(len(known)) if subjects is None else subjects
    found = np.full(len(labels), np.nan)
    if min(len(np.unique(unit[truth])), len(np.unique(unit[~truth]))) < FEWEST:
        return found
    words = np.asarray(texts, dtype=object)[known]
    folds = StratifiedGroupKFold(FOLDS, shuffle=True, random_state=seed)
    for train, held in folds.split(words, truth, unit):
        matrix = _weights(words[train], words[held])
        if matrix is None or len(np.unique(truth[train])) < 2:  # no word occurs twice: nothing to tell them by
            found[known[held]] = 0.5
            continue
        model = LogisticRegression(max_iter=1000).fit(matrix[0], truth[train])
        found[known[held]] = model.predict_proba(matrix[1])[:, 1]
    return found


def _weights(train: np.ndarray, held: np.ndarray) -> tuple[Any, Any] | None:
    from sklearn.feature_extraction.text import TfidfVectorizer

    maker = TfidfVectorizer(ngram_range=(1, 2), min_df=2, sublinear_tf=True, max_features=MOST_WORDS)
    try:
        return maker.fit_transform(train), maker.transform(held)
    except ValueError:  # what scikit-learn says when no word is left
        return None


def blind_metrics(
    scores: np.ndarray,
    example_ids: Sequence[str],
    member: Any,
    groups: Any = None,
    target_fprs: Sequence[float] = (0.01,),
    n_boot: int = 2000,
    seed: int = 0,
) -> pd.DataFrame:
    """Table `blind`: the columns of `attack_metrics`, attack "bow"."""
    table = pd.DataFrame(
        {
            "example_id": pd.Series(list(example_ids), dtype="str"),
            "member": pd.array(member, dtype="boolean"),
            "attack": "bow",
            "rank_score": scores,
        }
    )
    return attack_metrics(table, groups, target_fprs, n_boot, seed)[0]


def warning(blind: pd.DataFrame) -> str | None:
    """What a reader must know when the words alone tell members from non-members; None when they do not."""
    auc = blind[blind["metric"] == "auc"]
    if auc.empty or not np.isfinite(auc[["value", "low", "high"]].to_numpy(dtype=float)).all():
        return None
    value, low, high = (float(auc[name].iloc[0]) for name in ("value", "low", "high"))
    measured = f"AUC {value:.3f}, 95 % interval {low:.3f} to {high:.3f}, chance 0.5"
    if low > 0.5:
        return (
            f"Members and non-members differ by themselves: a bag of words that never asks the model tells them apart "
            f"({measured}). Every attack may be seeing that difference and not memory. Take non-members from the same "
            "source as the members."
        )
    if value + BELOW_BY * (high - value) < 0.5:
        return (
            "Members and non-members are tied to each other: a bag of words ranks them the wrong way round "
            f"({measured}), as it does when the same texts stand on both sides of the line. Look for duplicates."
        )
    return None
