"""A spec that names a corpus: trained and audited rows are made once, and the run says where they are from."""

import pandas as pd
import pytest

from auditcore import jobs, store
from auditcore.errors import RunError, SpecError
from auditcore.jobs.classify import classify
from auditcore.jobs.corpus import plain_data, tokens_of
from auditcore.jobs.models import Models
from auditcore.jobs.plan import plan_here
from auditcore.spec import dump_spec, parse_spec
from tests.job_specs import WORDS, run_spec


@pytest.fixture
def corpus(home) -> dict:
    lines = [" ".join(WORDS[(k * step) % len(WORDS)] for step in (1, 5, 7, 11)) for k in range(80)]
    lines = [f"{k} {line} {k}" for k, line in enumerate(lines)]
    (home / "news.txt").write_text("\n".join(lines))
    how = {"name": "ag_news", "length": 10, "members": 14, "nonmembers": 14, "validation": 4, "seed": 1}
    return {"path": str(home / "news.txt"), "corpus": how}


@pytest.mark.parametrize("unit", ["words", "tokens"])
def test_fine_tuning_and_audit_of_one_corpus(unit, corpus, home, tiny_llama, monkeypatch) -> None:
    data = {**corpus, "corpus": {**corpus["corpus"], "unit": unit}}
    common = {"data": data, "max_length": 64, "threads": 1}
    train = {"kind": "finetune", "model": {"source": str(tiny_llama)}, "validation": "unknown", "epochs": 1, **common}
    tuned = run_spec(train, home / "ft")
    assert tuned.manifest["counts"]["train_rows"] == 14
    assert tuned.manifest["counts"]["validation_rows"] == 4
    model = {"source": str(home / "ft" / "checkpoints" / "best"), "reference": str(tiny_llama)}
    more = {"n_boot": 100, "target_fprs": [0.01, 0.5]}
    audit = {"kind": "membership", "model": model, **more, **common}
    planned = plan_here(parse_spec(audit))
    assert planned.rows == 32
    assert any("no document stands on two sides" in note for note in planned.notes)
    run = run_spec(audit, home / "audit")
    manifest = run.manifest
    # The checkpoint knows what it was trained on: had the audit made other rows, the run would have failed here.
    assert manifest["counts"]["members"] == manifest["counts"]["nonmembers"] == 14
    assert manifest["data"]["path"] == corpus["path"]
    assert manifest["spec"]["data"]["corpus"]["unit"] == unit
    assert any(f"32 sequences of 10 {unit} (joined)" in note for note in manifest["data"]["notes"])
    assert len(list((store.cache() / "corpora").glob("*.parquet"))) == 1
    jobs.require_unchanged(run)
    pd.DataFrame({"text": ["a new text of some words", "word " * 200]}).to_csv(home / "new.csv", index=False)
    asked, get = [], Models.get
    monkeypatch.setattr(Models, "get", lambda self, which: asked.append(which) or get(self, which))
    found = classify(run, str(home / "new.csv"), "loss", 0.5)
    assert asked == ["target"]  # nothing compares the text with the reference
    assert found["answer"].isin(["member", "not a member"]).all()
    assert found["cut"].tolist() == [False, True]
    path = home / "news.txt"
    path.write_text(path.read_text().replace("fever", "cough"))
    with pytest.raises(RunError, match="data changed since it was finished"):
        jobs.require_unchanged(run)


def test_a_plain_spec_stays_as_it_is(home, tiny_llama) -> None:
    spec = parse_spec(
        {"kind": "membership", "model": {"source": "m"}, "data": {"path": "a.csv", "roles": {"text": "t"}}}
    )
    assert plain_data(spec) is spec
    assert dump_spec(spec)["data"]["corpus"] is None


def test_vectors_have_no_corpus(corpus) -> None:
    with pytest.raises(SpecError, match="label is missing"):
        parse_spec({"kind": "vectors", "model": {"source": "m"}, "data": corpus})


def test_a_copy_of_the_tokenizer_cuts_the_same(tiny_llama, tmp_path) -> None:
    from auditcore.lm.load import load_tokenizer

    load_tokenizer(str(tiny_llama)).save_pretrained(tmp_path / "copy")
    (tmp_path / "copy" / "config.json").write_text((tiny_llama / "config.json").read_text())
    (tmp_path / "copy" / "model.safetensors").write_bytes((tiny_llama / "model.safetensors").read_bytes())
    one, two = tokens_of(str(tiny_llama)), tokens_of(str(tmp_path / "copy"))
    assert one.name == two.name
    text = "The patient was admitted 🙂 home"
    assert one.spans(text) == two.spans(text)
    assert "".join(text[a:b] for a, b in one.spans("The patient")) == "The patient"
