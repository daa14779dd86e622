"""Words as an attacker reads them. In: texts, class codes, subjects. Out: a reader that names the class of new texts.

Words and pairs of words weighted by TF-IDF under multinomial logistic regression, both scikit-learn's; C is chosen on
inner folds that share no subject.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from auditcore.leakage.folds import inner_folds, subjects_per_class

C_GRID = (0.1, 1.0, 10.0, 100.0)
MOST = 131_072  # words and pairs of words, the most frequent; more are needed from some ten thousand notes on


@dataclass(frozen=True)
class TextReader:
    """A fitted reader; weights and model None: no text held a word, and the commonest class is named."""

    c: float
    n_features: int
    commonest: int
    weights: Any = None
    model: Any = None

    def name(self, texts: Sequence[str]) -> np.ndarray:
        """Return the class code of each text, int64 [n]."""
        if self.model is None:
            return np.full(len(texts), self.commonest)
        return self.model.predict(self.weights.transform(texts))


def fit_texts(texts: Sequence[str], codes: np.ndarray, groups: np.ndarray, seed: int) -> TextReader:
    """Choose C on inner folds, then fit on all texts. texts, codes (int), groups: [n]."""
    c = _choose_c(texts, codes, groups, seed)
    weights, features = _weigh(texts)
    commonest = int(np.bincount(codes).argmax())
    if features is None:
        return TextReader(c, 0, commonest)
    return TextReader(c, features.shape[1], commonest, weights, _regress(features, codes, c))


def _weigh(texts: Sequence[str]) -> tuple[Any, Any]:
    """The weighting and the texts' own features, sparse [n, f]; None where no text holds a word."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    # Every run of letters or digits is a word: a text of stop words or of one letter is still a text.
    weights = TfidfVectorizer(
        ngram_range=(1, 2), token_pattern=r"(?u)\b\w+\b", sublinear_tf=True, min_df=1, max_features=MOST
    )
    try:
        return weights, weights.fit_transform(texts)
    except ValueError:  # no word in any text: nothing to tell rows apart by
        return weights, None


def _regress(features: Any, codes: np.ndarray, c: float) -> Any:
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(C=c, class_weight="balanced", max_iter=1000).fit(features, codes)


def _choose_c(texts: Sequence[str], codes: np.ndarray, groups: np.ndarray, seed: int) -> float:
    """The C that names most held-out texts correctly, mean over classes; the smallest of equal ones."""
    if int(subjects_per_class(codes, groups).min()) < 2:
        return 1.0
    right = np.zeros((len(C_GRID), len(codes)))
    for held in inner_folds(codes, groups, seed):
        train, test = np.flatnonzero(~held), np.flatnonzero(held)
        weights, features = _weigh([texts[int(i)] for i in train])
        if features is None:
            right[:, test] = np.bincount(codes[train]).argmax() == codes[test]
            continue
        new = weights.transform([texts[int(i)] for i in test])
        for place, c in enumerate(C_GRID):
            right[place, test] = _regress(features, codes[train], c).predict(new) == codes[test]
    recall = np.mean([right[:, codes == k].mean(axis=1) for k in np.unique(codes)], axis=0)
    return C_GRID[int(recall.round(12).argmax())]
