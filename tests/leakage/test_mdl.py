"""Online code length: what nothing costs, what an easy label costs, whole subjects, a class that comes late."""

import numpy as np
import pytest

from auditcore.leakage.cells import Part
from auditcore.leakage.folds import log_softmax
from auditcore.leakage.mdl import POWERS, _bits, _blocks, code_length
from auditcore.leakage.probes import PROBES


def _part(seed: int, n: int, signal: float, n_classes: int = 4, notes: int = 1) -> Part:
    rng = np.random.default_rng(seed)
    groups = np.arange(n) // notes
    codes = groups % n_classes
    vectors = (rng.normal(size=(n, 6)) + signal * np.eye(n_classes, 6)[codes]).astype(np.float32)
    return Part(np.arange(n), vectors, codes, groups)


def _length(part: Part, probe: str = "linear", n_classes: int = 4):
    fit = PROBES[probe](part.vectors, part.codes, part.groups, n_classes, 0)
    return code_length(part, fit.transform(part.vectors), fit, n_classes, 0)


def test_labels_that_vectors_say_nothing_of_cost_what_they_cost_uncoded():
    found = _length(_part(0, 1000, 0.0))
    assert found.uniform == 2.0
    assert found.bits == pytest.approx(2.0, abs=0.05)
    assert found.compression == pytest.approx(1.0, abs=0.03)


@pytest.mark.parametrize("probe", sorted(PROBES))
def test_labels_that_are_easy_to_read_are_short(probe):
    easy, hard = _length(_part(1, 640, 6.0), probe), _length(_part(1, 640, 1.5), probe)
    assert easy.bits < hard.bits < 2.0
    assert easy.compression > 4


def test_by_hand():
    # A probe that always says 0.75 for the true class of two: 1 bit for the first block, log2 of the mixtures after.
    from dataclasses import replace

    part = _part(2, 512, 1.0, n_classes=2)
    fit = PROBES["linear"](part.vectors, part.codes, part.groups, 2, 0)
    row = {tuple(v): c for v, c in zip(part.vectors, part.codes, strict=True)}

    def refit(features, codes, seed):
        return lambda sent: np.log(
            np.where(np.array([row[tuple(v)] for v in sent])[:, None] == np.arange(2), 0.75, 0.25)
        )

    found = code_length(part, part.vectors, replace(fit, refit=refit), 2, 0)
    expected = 16.0  # 512 / 2 ** 5 rows at 1 bit each: 8 would be fewer than 8 of each class
    for begin in (16, 32, 64, 128, 256):
        said = [0.75**power / (0.75**power + 0.25**power) for power in POWERS]
        expected -= np.log2(np.mean([((begin * p + 0.5) / (begin + 1)) ** begin for p in said]))
    assert found.bits == pytest.approx(expected / 512)


@pytest.mark.parametrize("probe", sorted(PROBES))
def test_no_probe_costs_noticeably_more_than_the_labels_uncoded(probe):
    # Noise, on which small probes are sure of what is wrong; 6 blocks at most are coded.
    found = _length(_part(5, 640, 0.0), probe)
    assert found.bits <= 2.0 + 6 * np.log2(len(POWERS)) / 640
    assert found.bits == pytest.approx(2.0, abs=0.03)


@pytest.mark.parametrize("sharper", [1.0, 3.0, 30.0])
def test_a_block_costs_what_its_probabilities_are_worth_however_sure_they_sound(sharper):
    rng, n = np.random.default_rng(6), 4000
    log_p = log_softmax(rng.normal(size=(n, 4)))
    codes = (rng.random((n, 1)) > np.exp(log_p).cumsum(axis=1)).sum(axis=1)  # drawn as the probe says: calibrated
    plain = -np.log2(np.exp(log_p)[np.arange(n), codes]).sum()
    found = _bits(sharper * log_p, codes, n)
    within = np.log2(len(POWERS)) + 1 if sharper == 1 else 0.02 * plain
    assert found == pytest.approx(plain, abs=within)


def test_a_class_of_probability_0_can_still_be_sent():
    logits = np.array([[0.0, -np.inf], [0.0, -np.inf]])
    assert np.isfinite(_bits(logits, np.array([0, 1]), 10))


def test_blocks_hold_whole_subjects_and_double():
    order, ends = _blocks(_part(3, 900, 0.0, notes=3), 4, 0)
    assert sorted(order) == list(range(900))
    groups = (np.arange(900) // 3)[order]
    for end in ends[:-1]:
        assert groups[end - 1] != groups[end]
    assert ends[-1] == 900
    assert np.allclose(np.array(ends[:-1]) / np.array(ends[1:]), 0.5, atol=0.1)


def test_few_rows_are_sent_as_they_are():
    found = _length(_part(4, 40, 6.0))
    assert found.bits == 2.0
    assert found.compression == 1.0
