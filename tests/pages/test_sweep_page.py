"""The page Remembered rows on a sweep over fine-tunings, on invented numbers; its sentences."""

from collections.abc import Callable
from pathlib import Path

import pandas as pd

from auditcore import findings, store, summary, words
from auditcore.report.page import html_report
from auditcore.store import Run
from tests.pages.conftest import words_of

PAGE = "membership.py"


def sweep_run(folder: Path, matched: bool = True, low: float = 0.5) -> Run:
    """A finished sweep of two variants with two checkpoints each; every number is invented."""
    spec = {
        "kind": "sweep",
        "name": "full <b>against</b> LoRA",
        "model": {"source": "smollm2-135m", "dtype": "float32"},
        "data": {"path": "rows.csv", "roles": {"text": "text", "member": "member"}},
        "variants": [{"method": "full", "learning_rate": [5e-5]}, {"method": "lora", "learning_rate": [1e-4]}],
        "attacks": ["ez", "loss"],
    }
    run = store.create_run(spec, folder)
    lines = []
    for variant, method, values in (("full 5e-05", "full", (0.4, 0.9)), ("lora r16 1e-04", "lora", (0.02, 0.03))):
        for place, value in enumerate(values):
            about = {"variant": variant, "method": method, "rank": 16 if method == "lora" else None}
            about |= {"learning_rate": 1e-4, "step": 50 * (place + 1), "epoch": place + 1.0, "train_loss": 3.0}
            about |= {"validation_loss": 3.6 - 0.1 * place}
            for attack in ("ez", "loss"):
                for metric, rate, v in (("tpr", 0.01, value), ("auc", None, 0.5 + value / 2)):
                    interval = {"low": v - 0.01, "high": v + 0.01}
                    sizes = {"n_member": 800, "n_nonmember": 800, "n_no_evidence": 0, "realised_fpr": 0.01}
                    row = {"attack": attack, "metric": metric, "target_fpr": rate, "value": v, **interval, **sizes}
                    lines.append({**about, **row, "threshold": 1.0, "resolvable": True})
    run.write("sweep", pd.DataFrame(lines).astype({"rank": "Int64"}))
    pair = {"variant_a": "full 5e-05", "step_a": 100, "loss_a": 3.5, "variant_b": "lora r16 1e-04", "step_b": 100}
    pair |= {"loss_b": 3.5 if matched else 3.7, "matched": matched}
    rows = []
    for attack in ("ez", "loss"):
        for metric, rate in (("auc", None), ("tpr", 0.01)):
            row = {"attack": attack, "metric": metric, "target_fpr": rate, "value_a": 0.9, "value_b": 0.03}
            rows.append(
                {**pair, **row, "difference": 0.87, "low": low, "high": 0.9, "n_member": 800, "n_nonmember": 800}
            )
    run.write("matched", pd.DataFrame(rows))
    run.update(status="done", finished=store.now(), claim={"audited": "A.", "not_audited": "B."})
    return run


def test_a_sweep_is_shown_on_the_page_of_remembered_rows(home: Path, open_page: Callable) -> None:
    sweep_run(home / "sweep")
    text = words_of(open_page(PAGE, run="sweep"))
    assert "At equal validation loss (3.500 and 3.500 nats per token)" in text
    assert "EZ finds 90 of 100 under full fine-tuning and 3 of 100 under LoRA" in text
    assert "full fine-tuning gives more away" in text
    assert "full 5e-05 goes from 40 of 100 to 90 of 100 from step 50 to 100" in text
    assert "800 / 800" in text


def test_a_sweep_that_still_works_says_so(home: Path, open_page: Callable) -> None:
    run = sweep_run(home / "sweep")
    (run.path / "sweep.parquet").unlink()
    assert "No checkpoint has been measured yet" in words_of(open_page(PAGE, run="sweep"))


def test_unequal_training_is_said_first(home: Path) -> None:
    run = sweep_run(home / "sweep", matched=False)
    assert "never equally well trained" in words.plain(summary.finding(run))
    run = sweep_run(home / "other", low=-0.1)
    assert "no difference can be shown" in words.plain(summary.finding(run))


def test_without_a_pair_or_a_rate_nothing_is_claimed() -> None:
    assert "No fair comparison" in words.plain(findings.matched_finding(pd.DataFrame(), "ez", 0.01))
    sweep = pd.DataFrame({"metric": ["tpr"], "target_fpr": [0.01], "value": [None], "attack": ["ez"], "variant": ["v"]})
    assert findings.finest_rate(sweep) is None
    assert "No checkpoint has a rate yet" in words.plain(findings.checkpoints_finding(sweep, "ez", None))


def test_the_report_of_a_sweep_escapes_its_names(home: Path) -> None:
    run = sweep_run(home / "sweep")
    report = html_report(run)
    assert "leakage at the same validation loss" in report
    assert "<b>against</b>" not in report
