"""Membership inference. In: log-probabilities per token, never a model. Out: scores, operating points, verdicts."""
