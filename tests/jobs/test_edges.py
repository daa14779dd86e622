"""Audits at their edges: one model under two names, rows of one token, one group only, every score the same."""

import numpy as np
import pandas as pd
import pytest

from auditcore import cards, findings, jobs
from auditcore.cli import main
from auditcore.errors import DatasetError
from auditcore.jobs import evidence
from auditcore.report import export
from auditcore.spec import ATTACKS
from auditcore.words import plain
from tests.job_specs import membership_spec, run_spec
from tests.tiny_models import build_adapter

CHEAP = ["ez", "loss", "reference", "zlib", "lowercase", "min_k", "min_k_pp", "min_k_pp_ref", "wbc", "neighbourhood"]
SMALL = {
    "neighbours": {"count": 2},
    "spv": {"pairs": 1, "max_steps": 2},
    "self_prompt": {"texts": 8},
    "shadows": {"count": 4, "max_steps": 2},
    "recall_shots": 3,
}


def rewritten(spec, change):
    path = spec["data"]["path"]
    rows = pd.read_csv(path, dtype=str, keep_default_na=False)
    change(rows).to_csv(path, index=False)
    return spec


def test_an_adapter_of_zeros_is_its_reference_and_no_attack_reports_a_signal(home, pair, tmp_path) -> None:
    adapter = build_adapter(tmp_path / "zeros", pair[1], scale=0.0)
    spec = membership_spec(home, (adapter, pair[1]), attacks=list(ATTACKS), **SMALL)
    run = run_spec(spec)
    comparing = evidence.comparing(ATTACKS)
    assert comparing == ["ez", "reference", "min_k_pp_ref", "wbc", "spv"]
    assert run.manifest["no_difference"] == comparing
    (warning,) = [w for w in run.manifest["warnings"] if w.startswith("No difference between target and reference")]
    assert "(ez, reference, min_k_pp_ref, wbc, spv)" in warning
    scores = run.read("membership_scores")
    silent = scores["attack"].isin(comparing)
    assert set(scores.loc[silent, "status"]) == {"no_evidence"}
    assert scores.loc[silent, ["score", "rank_score"]].isna().all(axis=None)
    assert (scores.loc[~silent, "status"] == "ok").any()
    assert not run.has("self_prompt_texts")  # nothing was trained for a comparison that cannot be
    metrics = run.read("attack_metrics").set_index("attack")
    assert metrics.loc[comparing, "value"].isna().all()
    assert set(run.read("verdicts")["verdict"]) == {"not resolved"}
    said = findings.no_difference(run.manifest)
    assert said == dict.fromkeys(comparing, "no difference between target and reference")
    report = export(run, "html", tmp_path / "report.html").read_text(encoding="utf-8")
    rates = len(spec.get("target_fprs", [1, 2, 3, 4]))
    assert report.count("no difference between target and reference") >= rates * len(comparing)
    assert "nan" not in report.lower().split("<h2>")[1]


def test_a_gate_does_not_open_for_a_model_compared_with_itself(home, pair, capsys) -> None:
    import yaml

    spec = membership_spec(home, (pair[1], pair[1]), attacks=["ez", "wbc"])
    path = home / "audit.yaml"
    path.write_text(yaml.safe_dump(spec))
    assert main(["run", str(path), "--require-within-budget"]) == 4
    told = capsys.readouterr().out
    assert "No difference between target and reference" in told
    assert "no row of known membership holds evidence" in told


def test_rows_of_one_token_are_no_evidence_and_the_run_says_so(home, pair) -> None:
    spec = rewritten(membership_spec(home, pair, attacks=CHEAP, **SMALL), lambda rows: rows.assign(text="a"))
    run = run_spec(spec)
    scores = run.read("membership_scores")
    assert set(scores["status"]) == {"no_evidence"}
    assert set(scores["n_scored"]) == {0}
    assert "no_difference" not in run.manifest  # nothing was compared, so nothing is said of it
    finding = plain(findings.membership_finding(run.read("attack_metrics")))
    assert "no row of known membership holds evidence" in finding
    (card,) = cards.of_run(run)
    assert card.verdict == "not resolved"
    assert "no row holds evidence for it" in card.details
    assert any("fewer than two tokens" in note for note in run.manifest["data"]["notes"])


@pytest.mark.parametrize(("attack", "words"), [("lira", "0 rows are too few"), ("recall", "there are 0")])
def test_attacks_that_need_rows_to_learn_from_refuse_rows_of_one_token(attack, words, home, pair) -> None:
    spec = membership_spec(home, pair, attacks=[attack], **SMALL)
    with pytest.raises(DatasetError, match=words):
        run_spec(rewritten(spec, lambda rows: rows.assign(text="a")))


@pytest.mark.parametrize(
    ("member", "words"),
    [
        ("1", "no rows known not to be members"),
        ("0", "no rows known to be members"),
        ("", "no rows known to be members"),
    ],
)
def test_one_group_alone_is_scored_and_not_judged(member, words, home, pair) -> None:
    spec = membership_spec(home, pair, attacks=["ez", "loss", "neighbourhood"], **SMALL)
    run = run_spec(rewritten(spec, lambda rows: rows.assign(member=member)))
    assert (run.read("membership_scores")["status"] == "ok").sum() >= 64
    assert words in plain(findings.membership_finding(run.read("attack_metrics")))
    assert set(run.read("verdicts")["verdict"]) == {"not resolved"}
    if member:
        assert any("without both, rows are scored" in w for w in run.manifest["warnings"])


def test_one_member_is_measured_without_an_interval(home, pair) -> None:
    def one(rows):
        return rows.assign(member=np.where(rows.index == 21, "1", np.where(rows["member"] == "", "", "0")))

    run = run_spec(rewritten(membership_spec(home, pair, attacks=["ez", "loss"]), one))
    area = run.read("attack_metrics").query("metric == 'auc'")
    assert set(area["n_member"]) == {1}
    assert area["value"].between(0, 1).all()
    assert area[["low", "high"]].isna().all(axis=None)
    assert set(run.read("verdicts")["verdict"]) == {"not resolved"}
    assert any("whether the words alone tell them apart was not measured" in n for n in run.manifest["data"]["notes"])


def test_scores_that_are_all_tied_are_chance(home, pair) -> None:
    def same(rows):
        return rows.assign(text="fever and cough at home", member=[str(i % 2) for i in range(len(rows))])

    spec = membership_spec(home, pair, attacks=CHEAP, target_fprs=[0.01, 0.5], **SMALL)
    run = run_spec(rewritten(spec, same))
    metrics = run.read("attack_metrics")
    for attack in CHEAP:
        area = metrics[(metrics["attack"] == attack) & (metrics["metric"] == "auc")].iloc[0]
        assert area["value"] == 0.5, attack
    found = metrics[(metrics["metric"] == "tpr") & metrics["resolvable"].eq(True).fillna(False)]
    assert len(found)
    assert found["value"].isna().all()  # no threshold lies inside a tie: nothing is found and nothing cleared
    curve = run.read("roc")
    assert set(zip(curve["fpr"], curve["tpr"], strict=True)) == {(0.0, 0.0), (1.0, 1.0)}
    assert set(run.read("verdicts")["verdict"]) == {"not resolved"}


def test_a_finished_run_of_equal_models_is_not_asked_again(home, pair) -> None:
    run = run_spec(membership_spec(home, (pair[1], pair[1]), attacks=["ez", "loss"]))
    jobs.require_unchanged(run)
    assert run.manifest["no_difference"] == ["ez"]
