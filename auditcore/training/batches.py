"""Order and padding of training rows. In: encoded rows. Out: seeded batches, and the positions that are in the loss.

NumPy only. The order of every epoch follows from (seed, epoch) alone, so that a resumed run meets the same batches.
"""

from dataclasses import dataclass

import numpy as np

from auditcore.lm.encode import Encoded

# Rows are sorted by length inside groups of this many batches: little padding, and batches still differ each epoch.
_BATCHES_SORTED_TOGETHER = 16


@dataclass(frozen=True)
class Batch:
    """One padded forward pass. Row r of length k gives k - 1 inputs: its last token predicts nothing."""

    input_ids: np.ndarray  # int64 [rows, width], padded on the right
    positions: np.ndarray  # int64 [n]: flat positions in [rows * width] whose prediction is in the loss
    labels: np.ndarray  # int64 [n]: the token each of them should predict
    lengths: np.ndarray  # int64 [rows]: inputs of each row, padding left out


def tokens_in_loss(encoded: Encoded) -> np.ndarray:
    """Number of tokens each row adds to the loss, int64 [n]."""
    return np.array([len(encoded.places(row)) for row in range(len(encoded.ids))], dtype=np.int64)


def plan_epoch(lengths: np.ndarray, rows: np.ndarray, batch_size: int, seed: int, epoch: int) -> list[np.ndarray]:
    """Shuffle `rows` into batches of about equal length.

    lengths: tokens per row of the whole data set. Returns ceil(len(rows) / batch_size) arrays of row positions; the
    number is the same for every epoch, and one of them may be short.
    """
    rng = np.random.default_rng([seed, epoch])
    shuffled = rng.permutation(rows)
    group = batch_size * _BATCHES_SORTED_TOGETHER
    batches: list[np.ndarray] = []
    for start in range(0, len(shuffled), group):
        part = shuffled[start : start + group]
        part = part[np.argsort(lengths[part], kind="stable")]
        batches += [part[i : i + batch_size] for i in range(0, len(part), batch_size)]
    return [batches[i] for i in rng.permutation(len(batches))]


def collate(encoded: Encoded, rows: np.ndarray, *, pad_id: int = 0) -> Batch:
    """Pad the rows on the right and list what is in the loss.

    Under a causal model no real token sees a later one, so pads need no mask: they are neither read nor predicted,
    whatever `pad_id` is.
    """
    width = max(max(len(encoded.ids[i]) for i in rows) - 1, 1)
    input_ids = np.full((len(rows), width), pad_id, dtype=np.int64)
    positions, labels, lengths = [], [], []
    for place, row in enumerate(rows):
        ids = encoded.ids[row]
        inputs = max(len(ids) - 1, 0)
        input_ids[place, :inputs] = ids[:inputs]
        learnt = encoded.places(row)
        positions.append(place * width + learnt - 1)
        labels.append(ids[learnt])
        lengths.append(inputs)
    return Batch(
        input_ids,
        np.concatenate(positions).astype(np.int64),
        np.concatenate(labels).astype(np.int64),
        np.array(lengths, dtype=np.int64),
    )
