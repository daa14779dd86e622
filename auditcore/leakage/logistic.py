"""Multinomial logistic regression in few steps. In: features, class codes, C. Out: weights, bias, steps, converged.

The optimum is that of scikit-learn's LogisticRegression (C times the log-loss plus half the squared weights, bias
free); a test compares the two. Exported vectors are badly conditioned, and hundreds of refits on permuted labels, which
scikit-learn's solver takes hundreds to thousands of steps for, are wanted: here the variables are scaled by the
curvature of each feature, exact where features are principal axes, and L-BFGS (scipy) needs some tens of steps.
"""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize

MAX_STEPS = 1000
TOLERANCE = 1e-5  # largest entry of the scaled gradient of the mean loss


@dataclass(frozen=True)
class Logistic:
    """weights: float64 [f, K]; bias: float64 [K]; steps: of L-BFGS; converged: the gradient met the tolerance."""

    weights: np.ndarray
    bias: np.ndarray
    steps: int
    converged: bool

    def logits(self, features: np.ndarray) -> np.ndarray:
        """Return logits float64 [n, K]."""
        return (features @ self.weights.astype(features.dtype)).astype(np.float64) + self.bias


def fit_logistic(
    features: np.ndarray,
    codes: np.ndarray,
    c: float,
    n_classes: int,
    tolerance: float = TOLERANCE,
    start: Logistic | None = None,
) -> Logistic:
    """Fit on features [n, f] (centred columns, best as principal axes) and codes int [n] in 0..n_classes-1.

    c: inverse strength of L2 as in scikit-learn, whose two-class form penalises half as much as the softmax form. A
    class without rows gets no logit of its own: it is named by no row. start: a fit of the same rows to begin at, such
    as that of a smaller C; the optimum is the same.
    """
    # float32 features stay so: half the memory to read at every step, for fits that only choose between settings.
    features = np.asarray(features) if features.dtype == np.float32 else np.asarray(features, dtype=np.float64)
    n, width = features.shape
    present = np.flatnonzero(np.bincount(codes, minlength=n_classes))
    k = len(present)
    wanted = (codes[:, None] == present).astype(np.float64)
    ridge = 1.0 / (n * (c / 2 if k == 2 else c))
    # Curvature of the mean loss along a feature when all classes are equally likely, plus the penalty's.
    squares = np.einsum("ij,ij->j", features, features, dtype=np.float64)
    scale = 1.0 / np.sqrt(squares / n * (1 / k) * (1 - 1 / k) + ridge)

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        theta = flat.reshape(width + 1, k)
        weights = scale[:, None] * theta[:-1]
        logits = (features @ weights.astype(features.dtype)).astype(np.float64) + theta[-1]
        logits -= logits.max(axis=1, keepdims=True)
        p = np.exp(logits)
        total = p.sum(axis=1, keepdims=True)
        value = (np.log(total).sum() - (logits * wanted).sum()) / n + 0.5 * ridge * (weights * weights).sum()
        error = (p / total - wanted) / n
        slope = scale[:, None] * (features.T @ error.astype(features.dtype) + ridge * weights)
        return float(value), np.concatenate([slope.ravel(), error.sum(axis=0)])

    begin = np.zeros((width + 1, k))
    if start is not None:
        begin[:-1], begin[-1] = start.weights[:, present] / scale[:, None], start.bias[present]
    options = {"maxiter": MAX_STEPS, "maxfun": 2 * MAX_STEPS, "gtol": tolerance, "ftol": 1e-15, "maxcor": 20}
    found = minimize(loss, begin.ravel(), jac=True, method="L-BFGS-B", options=options)
    theta = found.x.reshape(width + 1, k)
    weights, bias = np.zeros((width, n_classes)), np.full(n_classes, -1e3)
    weights[:, present], bias[present] = scale[:, None] * theta[:-1], theta[-1]
    # Rounding can stop the line search a little above the tolerance.
    return Logistic(weights, bias, int(found.nit), bool(np.abs(found.jac).max() <= 10 * tolerance))
