"""ROUGE as rouge_score gives it, times 100; means with intervals over subjects."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from auditcore.rouge import NAMES, means, rouge

PAIRS = json.loads((Path(__file__).parent / "golden" / "rouge.json").read_text())["pairs"]


@pytest.mark.parametrize("pair", PAIRS, ids=lambda p: p["name"])
def test_scores_agree_with_rouge_score_without_stemming(pair):
    found = rouge([pair["reference"]], [pair["prediction"]])
    for name in NAMES:
        assert found[name].iloc[0] == pytest.approx(100 * pair["use_stemmer_false"][name]["fmeasure"], abs=1e-10)


def test_means_resample_subjects_not_rows():
    scores = pd.DataFrame({name: np.repeat([10.0, 30.0, 50.0, 70.0], 25) for name in NAMES})
    rows = means(scores, [str(i) for i in range(100)], 1000, 0)
    subjects = means(scores, np.repeat(["a", "b", "c", "d"], 25).tolist(), 1000, 0)
    assert rows["rougeL"] == subjects["rougeL"] == 40.0
    assert subjects["rougeL_high"] - subjects["rougeL_low"] > 2 * (rows["rougeL_high"] - rows["rougeL_low"])
    assert np.isnan(means(scores[:3], ["a", "a", "a"], 100, 0)["rougeL_low"])
    assert np.isnan(means(scores[:0], [], 100, 0)["rougeL"])
