"""Which prompts the adversaries see: folds of subjects, windows, and codes that are hidden where they would cheat."""

import numpy as np
import pandas as pd
import pytest

from auditcore.errors import DatasetError
from auditcore.spec import DiscriminatorSpec
from auditcore.training.prompts import UNKNOWN, Labels, Prompts, label_codes

N = 120


def made(n: int = N, **changes) -> Prompts:
    codes = np.stack([np.arange(n) % 3, np.where(np.arange(n) % 4 == 0, UNKNOWN, np.arange(n) % 2)], axis=1)
    codes[: n // 10] = UNKNOWN
    labels = Labels(("a", "b"), codes, (("x", "y", "z"), ("p", "q")))
    usable = np.ones(n, dtype=bool)
    usable[-3:] = False
    groups = [f"s{i // 2}" for i in range(n)]
    shape = {"bank_rows": 20, "bank_kept": 2, **changes}
    return Prompts(labels, groups, usable, DiscriminatorSpec(**shape), seed=3)


def test_rows_without_a_label_or_a_prompt_take_no_part():
    prompts = made()
    assert set(prompts.rows) == set(range(12, N - 3))
    assert prompts.n_folds == 5
    assert (prompts.fold[:12] == -1).all()


def test_a_subject_is_on_one_side_only_and_every_fold_has_its_turn():
    prompts = made()
    groups = np.array([f"s{i // 2}" for i in range(N)])
    seen = []
    for window in range(7):
        held = prompts.held(window)
        outside = np.zeros(N, dtype=bool)
        outside[prompts.rows] = True
        outside &= ~held
        assert not set(groups[held]) & set(groups[outside])
        seen.append(held)
    assert np.any(seen, axis=0)[prompts.rows].all()
    assert not np.all(seen, axis=0).any()


def test_what_is_refreshed_is_what_the_bank_then_holds():
    prompts = made()
    blocks = [set(rows) for rows in prompts.refreshed(0)]
    for window in range(6):
        if window:
            blocks = [*blocks[1:], set(prompts.refreshed(window)[0])]
        assert set.union(*blocks) == set(np.flatnonzero(prompts.held(window)))


def test_rows_of_the_bank_are_never_turned_against():
    prompts = made()
    for window in (0, 3):
        codes = prompts.turned(np.arange(N), window)
        assert (codes[prompts.held(window)] == UNKNOWN).all()
        drawn = prompts.draw(window, 5, 200)
        assert not prompts.held(window)[drawn].any()
        pool = len(prompts.rows) - prompts.held(window).sum()
        assert len(set(drawn)) == pool  # every row once before any comes again
        np.testing.assert_array_equal(prompts.draw(window, 9, 4), drawn[4:8])
    assert (made(held_out=False).turned(np.arange(N), 0) == made().codes).all()


def test_too_few_subjects_are_refused_in_words():
    with pytest.raises(DatasetError, match="too few for adversaries"):
        made(4, bank_kept=3)


def test_labels_are_coded_where_an_adversary_may_look():
    frame = pd.DataFrame({"race": ["b", "a", None, "c", "a"], "sex": ["f", "m", "f", "m", "f"]})
    labels = label_codes(frame, ["race", "sex"], np.array([0, 1, 2, 4]))
    assert labels.classes == (("a", "b"), ("f", "m"))
    assert labels.codes.tolist() == [[1, 0], [0, 1], [-1, 0], [-1, -1], [0, 0]]
    with pytest.raises(DatasetError, match="have 1 class; two or more"):
        label_codes(frame, ["race"], np.array([1, 4]))
