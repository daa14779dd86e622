"""How near generated summaries are to the references. In: two lists of texts. Out: ROUGE-1, -2 and -L, and intervals.

F-measures of the package rouge_score, no stemming, x 100; `rougeL` is on the whole text, not by lines.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

NAMES = ("rouge1", "rouge2", "rougeL")


def rouge(references: Sequence[str], generated: Sequence[str]) -> pd.DataFrame:
    """Return the columns of `NAMES`, float64, one row per pair, 0 to 100; 0 where either text has no word."""
    from rouge_score.rouge_scorer import RougeScorer

    scorer = RougeScorer(list(NAMES), use_stemmer=False)
    rows = []
    for reference, text in zip(references, generated, strict=True):
        found = scorer.score(target=reference, prediction=text)
        rows.append([100.0 * found[name].fmeasure for name in NAMES])
    return pd.DataFrame(rows, columns=list(NAMES), dtype=np.float64)


def means(scores: pd.DataFrame, groups: Sequence[str], n_boot: int, seed: int) -> dict[str, float]:
    """Mean of each score over rows with a 95 % percentile interval over subjects: name, name_low, name_high.

    groups: [n] subjects. NaN throughout without rows; the ends are NaN with a single subject.
    """
    found: dict[str, float] = {}
    subject = np.unique(np.asarray(groups, dtype=str), return_inverse=True)[1]
    n = int(subject.max(initial=-1)) + 1
    size = np.bincount(subject, minlength=n).astype(np.float64)
    rng = np.random.default_rng([seed, 0x0C6E])
    drawn = rng.multinomial(n, np.full(n, 1.0 / n), size=n_boot) if n > 1 else np.zeros((0, max(n, 1)))
    for name in NAMES:
        values = scores[name].to_numpy(dtype=np.float64)
        found[name] = float(values.mean()) if n else np.nan
        low, high = np.nan, np.nan
        if n > 1:
            total = np.bincount(subject, weights=values, minlength=n)
            low, high = np.quantile((drawn @ total) / (drawn @ size), [0.025, 0.975])
        found |= {f"{name}_low": float(low), f"{name}_high": float(high)}
    return found
