"""The part "Beside another run" of the page Remembered rows, on fake runs; and its sentence."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pandas as pd

from auditcore import findings, words
from auditcore.store import Run
from tests.fake_runs import membership_run
from tests.pages.conftest import words_of

PAGE = "membership.py"


def test_two_runs_side_by_side(home: Path, open_page: Callable) -> None:
    membership_run(home / "full", rows=1600, tokens=12)
    membership_run(home / "lora", rows=1600, tokens=12, seed=5)
    at = open_page(PAGE, run="full")
    assert "Beside another run" in words_of(at)
    assert "Differences are paired by row" not in words_of(at)
    text = words_of(open_page(PAGE, run="full", **{"with": "lora"}))
    assert "Differences are paired by row" in text
    assert "not chance" in text or "may be chance" in text
    assert "AUC: full" in text


def test_the_same_tokens_stand_under_both_runs(home: Path, open_page: Callable) -> None:
    run = membership_run(home / "full", rows=200, tokens=12)
    shutil.copytree(run.path, home / "lora")
    other = Run(home / "lora")
    tokens = other.read("token_stats")
    other.write("token_stats", tokens.assign(logp_target=tokens["logp_target"] - 0.5))
    other.update(id="lora", spec={**other.manifest["spec"], "name": "<b>lora</b>"})
    text = words_of(open_page(PAGE, run="full", row="42", **{"with": "lora"}))
    n = int((tokens.loc[tokens["example_id"] == "42", "scored"]).sum())
    assert "The same tokens under &lt;b&gt;lora&lt;/b&gt;: EZ" in text
    assert f"{n} of {n} tokens are likelier under full" in text
    assert "on average +0.50 nats a token" in text
    assert text.count('class="tk-map"') == 2
    other.write("token_stats", tokens.assign(token_id=tokens["token_id"] + 1))
    assert "holds other tokens" in words_of(open_page(PAGE, run="full", row="42", **{"with": "lora"}))
    assert "The same tokens" not in words_of(open_page(PAGE, run="full", row="42"))


def test_numbered_rows_of_two_files_are_not_paired(home: Path, open_page: Callable) -> None:
    membership_run(home / "full", rows=200, tokens=12)
    other = membership_run(home / "lora", rows=200, tokens=12, seed=5)
    other.update(data={**other.manifest["data"], "sha256": "1" * 64})
    text = words_of(open_page(PAGE, run="full", **{"with": "lora"}))
    assert "cannot be paired" in text
    assert "Differences are paired by row" not in text


def test_a_run_that_is_gone_or_of_another_kind_is_not_compared(home: Path, open_page: Callable) -> None:
    membership_run(home / "full", rows=200, tokens=12)
    assert "Differences are paired by row" not in words_of(open_page(PAGE, run="full", **{"with": "no such run"}))


def line(**changes):
    row = {"attack": "ez", "metric": "tpr", "target_fpr": 0.01, "value_a": 0.9, "value_b": 0.1}
    row |= {"difference": 0.8, "low": 0.7, "high": 0.85, "p_value": 0.001, "n_member": 800, "n_nonmember": 798}
    return pd.DataFrame([{**row, **changes}])


def test_the_sentence_says_which_difference_is_chance() -> None:
    def told(frame, left_out=0):
        return words.plain(findings.comparison_finding(frame, "A", "B", 1600, left_out))

    assert "EZ finds 90 of 100 training rows in A and 10 of 100 in B" in told(line())
    assert "not chance" in told(line())
    assert "may be chance" in told(line(low=-0.1, p_value=0.2))
    assert "no interval" in told(line(low=None, high=None, p_value=None))
    assert "AUC 0.9" in told(line(metric="auc", target_fpr=None))
    assert "accusing 5 rows in 100 falsely" in told(line(target_fpr=0.05))
    # The largest of ten at p = 0.02 is what ten guesses give.
    ten = pd.concat([line(attack=f"a{i}", difference=0.5 + 0.01 * i, p_value=0.02) for i in range(10)])
    assert "may be chance, the largest of 10 attacks" in told(ten)
    assert "3 rows left out" in told(line(), 3)
    assert "2 of these hold no evidence in one of the runs." in told(line())
    assert "no evidence" not in told(line(n_member=802))
    assert "share no attack" in told(line().iloc[:0])


def test_settings_that_differ_are_said_where_a_shared_attack_reads_them() -> None:
    one = {"attacks": ["ez", "loss"], "max_length": 128, "ez_policy": "paper", "shadows": {"count": 8}}
    assert findings.settings_finding(one, {**one, "shadows": {"count": 4}}) == ""
    told = findings.settings_finding(one, {**one, "max_length": 64, "ez_policy": "official"})
    assert "max_length (128 and 64) and ez_policy (paper and official)" in told
    assert "ez_policy" not in findings.settings_finding(one, {**one, "attacks": ["loss"], "ez_policy": "official"})
    lira = {**one, "attacks": ["lira"]}
    assert ": shadows." in findings.settings_finding(lira, {**lira, "shadows": {"count": 4}})


def test_where_the_evidence_lies(home: Path, open_page: Callable) -> None:
    membership_run(home / "full", rows=400, tokens=12)
    at = open_page(PAGE, run="full")
    assert "Where the evidence lies" not in words_of(at)
    next(t for t in at.toggle if t.key == "where").set_value(True).run()
    assert not at.exception
    text = words_of(at)
    assert "Where the evidence lies" in text
    assert "surprise of the reference" in text
    assert "kind of token" in text


def test_where_the_evidence_lies_without_text(home: Path, open_page: Callable) -> None:
    membership_run(home / "full", rows=400, tokens=12, store_text="none")
    at = open_page(PAGE, run="full")
    next(t for t in at.toggle if t.key == "where").set_value(True).run()
    assert not at.exception
    assert "kind of token" not in words_of(at)
    assert "position in the row" in words_of(at)
