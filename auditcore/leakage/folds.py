"""What every attacker's fitting shares: folds that share no subject, threads, log-probabilities. numpy only."""

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from os import cpu_count
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

FOLDS = 3

# Results must not depend on how many threads a matrix product uses; the processors are used by fitting side by side.
one_thread = threadpool_limits.wrap(limits=1, user_api="blas")


def inner_folds(codes: np.ndarray, groups: np.ndarray, seed: int, n_folds: int = FOLDS) -> list[np.ndarray]:
    """Deal whole subjects into folds, class by class, so that no class is missing from any training part.

    codes: int [n]; groups: [n]. Returns one boolean mask [n] of held-out rows per fold: `n_folds`, or fewer where a
    class has fewer subjects. Raises ValueError when a class has a single subject.
    """
    subjects, first, where = np.unique(groups, return_index=True, return_inverse=True)
    main = codes[first]  # a subject with several classes is dealt by its first row
    n_folds = min(n_folds, int(subjects_per_class(codes, groups).min()))
    if n_folds < 2:
        raise ValueError("inner folds need at least two subjects of every class")
    rng = np.random.default_rng([seed, 0xF01D])
    fold = np.empty(len(subjects), dtype=np.int64)
    for code in range(int(main.max()) + 1):
        mine = np.flatnonzero(main == code)
        fold[rng.permutation(mine)] = (np.arange(len(mine)) + code) % n_folds
    return [fold[where] == k for k in range(n_folds)]


def subjects_per_class(codes: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Return how many subjects have a row of each class, int64 [K] (K = highest code + 1)."""
    index = np.unique(groups, return_inverse=True)[1]
    return np.bincount(np.unique(np.stack([codes, index]), axis=1)[0])


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """Return log-probabilities, float64 [n, K]."""
    logits = logits.astype(np.float64)
    shifted = logits - logits.max(axis=1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))


def in_parallel(function: Callable[[Any], Any], tasks: Iterable[Any], n_jobs: int) -> Generator[Any, None, None]:
    """Yield function(task) in order. Threads, one BLAS thread each: results do not depend on `n_jobs`.

    Close the iterator (contextlib.closing) to drop what has not begun when its results are no longer wanted.
    """
    with threadpool_limits(limits=1, user_api="blas"):
        if n_jobs == 1:
            yield from map(function, tasks)
            return
        with ThreadPoolExecutor(n_jobs) as pool:
            waiting = deque(pool.submit(function, task) for task in tasks)
            try:
                while waiting:
                    yield waiting.popleft().result()
            finally:
                for future in waiting:
                    future.cancel()


def default_jobs() -> int:
    """Return the number of processors."""
    return cpu_count() or 1
