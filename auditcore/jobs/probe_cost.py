"""How long attackers take. In: their names, sizes, the machine's speed. Out: seconds, within a factor of two or so.

Counted from what each does on the inner folds, the final fits and the refits on permuted labels; the factors beside the
floating-point operations were found by timing, on 1,600 x 576 and 25,000 x 768.
"""

from collections.abc import Sequence

from auditcore.jobs.baselines import available
from auditcore.spec import VectorsSpec

NULL_ROWS, FEW_REFITS = 2000, 16  # of the refits on permuted labels (leakage.permutation, leakage.probes)


def probe_seconds(
    spec: VectorsSpec, probes: Sequence[str], n: int, width: int, classes: int, flops: float, draws: int = 0
) -> float:
    """Seconds for these probes on one artifact, attribute and defence.

    n: training rows; flops: float32 operations per second of this machine; draws: of training rows, each tuned on; 0
    for all of them, on which only `mlp` is tuned once a seed.
    """
    cost = {"linear": _linear, "mlp": _mlp, "gbt": _gbt, "knn": _knn}
    tuned = {probe: draws or (len(spec.seeds) if probe == "mlp" else 1) for probe in probes}
    return sum(cost[probe](spec, tuned[probe], n, width, classes, flops) for probe in probes)


def curve_seconds(spec: VectorsSpec, n: int, width: int, classes: int, flops: float) -> float:
    """Seconds for the sample-size curves of one artifact and attribute; 0 where none is asked for."""
    if spec.curve is None:
        return 0.0
    fits, draws = spec.model_copy(update={"permutations": 0}), spec.curve.draws
    sizes = [int(n * share) for share in spec.curve.shares]
    return sum(probe_seconds(fits, spec.probes, size, width, classes, flops, draws) for size in sizes)


def baseline_seconds(spec: VectorsSpec, characters: int, n: int, classes: int) -> float:
    """Seconds for the baselines of one attribute. characters: of all training texts together; n: training rows."""
    cost = {"text": 1.0 + 2e-6 * characters * classes, "metadata": 1.0 + 1e-4 * n * classes}
    return sum(cost[name] for name, there in available(spec).items() if there)


def _linear(spec: VectorsSpec, tuned: int, n: int, width: int, classes: int, flops: float) -> float:
    # Reading the features is what a step costs, not multiplying them.
    step = 64.0 * width * classes / flops
    turned = 8.0 * n * width * min(width, n) / flops
    fits = tuned * (2.0 * n * 250 * step + 3 * turned)
    return fits + spec.permutations * min(n, NULL_ROWS) * 8 * step + 1.0


def _mlp(spec: VectorsSpec, tuned: int, n: int, width: int, classes: int, flops: float) -> float:
    one_pass = 2150.0 * width / flops  # of one row through 256 hidden units, there and back
    epochs = min(64.0, max(8.0, 1024 * 256 / max(n, 1)))
    refits = min(spec.permutations, FEW_REFITS) * min(n, NULL_ROWS) * epochs / 3
    return one_pass * (tuned * 8.0 * n * epochs + refits) + 1.0


def _gbt(spec: VectorsSpec, tuned: int, n: int, width: int, classes: int, flops: float) -> float:
    trees = 80 * (1 if classes == 2 else classes)
    tree, null_tree = (0.004 + rows * width * 4e-9 for rows in (n, min(n, NULL_ROWS)))
    return tuned * 5.0 * trees * tree + min(spec.permutations, FEW_REFITS) * trees * null_tree / 2 + 1.0


def _knn(spec: VectorsSpec, tuned: int, n: int, width: int, classes: int, flops: float) -> float:
    return tuned * 4.0 * n * n * (width + 100.0) / flops + spec.permutations * 0.005 + 1.0
