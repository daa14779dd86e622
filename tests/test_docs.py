"""What the documents say of a shipped study is what its tables say, rounded by the product's own rule."""

import re
from pathlib import Path

import pytest

from auditcore import words
from auditcore.store import Run

ROOT = Path(__file__).resolve().parents[1]
LINE = re.compile(r"^\| `(\w+)` \| ([\d.]+ %) \(([\d.]+ to [\d.]+)\) \| ([\d.]+) \(([\d.]+ to [\d.]+)\) \|$", re.M)


def test_the_attacks_on_the_bundled_notes_read_in_the_document_as_on_the_page() -> None:
    text = (ROOT / "docs" / "results-membership.md").read_text(encoding="utf-8")
    metrics = Run(ROOT / "data" / "studies" / "notes-membership").read("attack_metrics")
    found = metrics[(metrics["metric"] == "tpr") & (metrics["target_fpr"] == 0.01)].set_index("attack")
    area = metrics[metrics["metric"] == "auc"].set_index("attack")
    told = {m[0]: m[1:] for m in LINE.findall(text)}
    assert set(told) == set(found[found["value"].notna()].index)
    for attack, (share, ends, auc, auc_ends) in told.items():
        at, over = found.loc[attack], area.loc[attack]
        assert share == words.percent(at["value"]).replace(words.THIN, " "), attack
        assert f"{ends} %" == words.percent_interval(at["low"], at["high"]).replace(words.THIN, " "), attack
        assert (auc, auc_ends) == (words.number(over["value"]), words.interval(over["low"], over["high"])), attack


@pytest.mark.parametrize("vector", ["lasttok", "meanpool", "concat"])
def test_the_sealed_test_rows_read_in_the_document_as_in_the_run(vector: str) -> None:
    text = (ROOT / "docs" / "results-surfacelora.md").read_text(encoding="utf-8")
    table = Run(ROOT / "data" / "studies" / "surfacelora-lasttok-2").read("checkpoints")
    rows = table[(table["split"] == "bal_test") & table["seed"].isna() & (table["artifact"] == vector)]
    cells = [
        f"{words.number(r['signed_gap'])} ({words.interval(r['signed_low90'], r['signed_high90'])})".replace("−", "-")
        for r in rows.sort_values("probe").to_dict("records")
    ]
    assert len(cells) == 2
    assert f"| {' | '.join(cells)} |" in text


@pytest.mark.parametrize("defence", ["none", "pca", "pca_vectors", "inlp", "leace", "noise", "truncate"])
@pytest.mark.parametrize("vector", ["lasttok", "meanpool"])
def test_every_defence_reads_in_the_document_as_in_the_run(vector: str, defence: str) -> None:
    text = (ROOT / "docs" / "results-vectors.md").read_text(encoding="utf-8")
    run = Run(ROOT / "data" / "studies" / "notes-defences")
    table = run.read("probe_metrics")
    here = (table["artifact"] == vector) & (table["defence"] == defence) & (table["split"] == "bal_test")
    rows = table[here & table["seed"].isna()].set_index("probe").loc[["linear", "mlp", "gbt", "knn"]]
    cells = [_accuracy(row) for row in rows.to_dict("records")]
    assert f"| `{vector}` | `{defence}` | {' | '.join(cells)} |" in text


@pytest.mark.parametrize("directive", ["none", "prompt:neutral", "prompt:relevant", "prompt:blind"])
@pytest.mark.parametrize("vector", ["lasttok", "meanpool"])
def test_every_directive_reads_in_the_document_as_in_the_run(vector: str, directive: str) -> None:
    text = (ROOT / "docs" / "results-vectors.md").read_text(encoding="utf-8")
    table = Run(ROOT / "data" / "studies" / "notes-prompts").read("probe_metrics")
    here = (table["artifact"] == vector) & (table["defence"] == directive) & (table["split"] == "bal_test")
    rows = table[here & table["seed"].isna()].set_index("probe")
    table_of_it = text[text.index("(`notes-prompts`)") :].splitlines()
    line = next(line for line in table_of_it if line.startswith(f"| `{vector}` | `{directive}` | "))
    for probe in ("linear", "mlp"):
        assert f" {_accuracy(rows.loc[probe].to_dict())} |" in line


@pytest.mark.parametrize(("source", "name"), [("prompt", "the prompt"), ("generated", "what the model writes")])
def test_what_texts_tell_reads_in_the_document_as_in_the_run(source: str, name: str) -> None:
    text = (ROOT / "docs" / "results-vectors.md").read_text(encoding="utf-8")
    table = Run(ROOT / "data" / "studies" / "notes-prompts").read("output_metrics")
    rows = table[(table["source"] == source) & (table["defence"] == "none")].set_index("attacker")
    cells = [_accuracy(rows.loc[reader].to_dict()) for reader in ("tfidf", "embedding")]
    assert f"| {name} | `none` | {' | '.join(cells)} |" in text


def _accuracy(row: dict) -> str:
    told = f"{words.percent(row['accuracy'])} ({words.percent_interval(row['accuracy_low'], row['accuracy_high'])})"
    return told.replace(words.THIN, " ").replace(" %", "")
