"""Directives on vectors and on what the model writes: own artifacts, ROUGE, meta-terms, readers of texts."""

import numpy as np
import pandas as pd
import pytest
import yaml

from auditcore import store
from auditcore.cli import main
from auditcore.errors import SpecError
from auditcore.jobs.outputs import sample
from auditcore.jobs.plan import plan_here
from auditcore.leakage.prompting import shipped
from auditcore.spec import parse_spec
from tests.job_specs import run_spec, tables_of, vectors_spec

DIRECTIVES = {"plain": "Say {nothing} of race.", "short": "Be brief."}


def prompt_spec(home, model, **changes) -> dict:
    mine = {"layers": [-1], "artifacts": ["meanpool"], "defences": ["none", "prompt"], "max_length": 64,
            "directives": DIRECTIVES, "generate": {"rows": 40, "max_new_tokens": 6}}  # fmt: skip
    spec = vectors_spec(home, model, **{**mine, **changes})
    frame = pd.read_csv(home / "labels.csv")
    frame["target"] = ["she went home" if s == "female" else "he went home" for s in frame["sex"]]
    frame.to_csv(home / "labels.csv", index=False)
    spec["data"]["roles"]["target"] = "target"
    return spec


def test_every_directive_is_an_artifact_and_every_text_is_read(home, tiny_llama) -> None:
    run = run_spec(prompt_spec(home, tiny_llama))
    assert run.status == "done"
    averaged = run.read("probe_metrics").query("seed.isna() and split == 'bal_test'")
    assert list(averaged["defence"]) == ["none", "prompt:plain", "prompt:short"]
    assert not (run.read("examples")["split"] == "defence_fit").any()  # nothing is fitted
    costs = run.read("defence_costs")
    assert set(costs["defence"]) == {"prompt:plain", "prompt:short"}
    assert set(costs["measure"]) == {"retrieval_overlap_at_10"}
    assert set(run.read("defence_effects")["defence"]) == {"prompt:plain", "prompt:short"}

    texts = run.read("generations")
    assert list(texts["defence"].unique()) == ["none", "prompt:plain", "prompt:short"]
    assert texts["example_id"].nunique() * 3 == len(texts)
    assert texts["example_id"].nunique() <= 40
    one = texts[texts["defence"] == "prompt:plain"]
    assert one["prompt"].str.startswith("Say {nothing} of race.\n\n").all()
    assert one["reference"].isin(["she went home", "he went home"]).all()
    assert one[["rouge1", "rouge2", "rougeL"]].notna().all(axis=None)

    read = run.read("output_metrics")
    kinds = read[["source", "defence", "attacker"]].apply(tuple, axis=1).tolist()
    assert len(kinds) == len(set(kinds)) == 2 * (1 + 1 + 3) + 3
    beside = read[read["source"] == "vector:meanpool"]  # on the same rows and folds as the texts
    assert beside["defence"].tolist() == ["none", "prompt:plain", "prompt:short"]
    assert set(beside["n_rows"]) == set(read["n_rows"]) == {40}
    assert beside["change"].notna().tolist() == [False, True, True]
    reference = read[(read["source"] == "reference") & (read["attacker"] == "tfidf")].iloc[0]
    assert reference["accuracy"] == 1.0  # she, he
    changes = read.set_index(["source", "defence", "attacker"])
    accuracy = changes.xs("tfidf", level="attacker")["accuracy"]
    assert changes.loc[("generated", "prompt:plain", "tfidf"), "change"] == pytest.approx(
        accuracy["generated", "prompt:plain"] - accuracy["generated", "none"]
    )
    assert np.isnan(changes.loc[("prompt", "none", "tfidf"), "change"])
    scores = run.read("generation_metrics").set_index("defence")
    assert (scores["rougeL_low"] <= scores["rougeL"]).all()
    assert np.isnan(scores.loc["none", "contaminated_change"])
    claim = run.manifest["claim"]
    assert "what it writes from 40 test rows was read too" in claim["audited"]
    assert "generated text by tfidf behind prompt:plain" in claim["audited"]
    assert "the generated text;" not in claim["not_audited"]
    again = run_spec(prompt_spec(home, tiny_llama))
    for name, table in tables_of(run).items():
        pd.testing.assert_frame_equal(table, again.read(name))


def test_meta_terms_are_those_of_the_spec_and_summaries_that_hold_one_are_named(home, tiny_llama) -> None:
    first = run_spec(prompt_spec(home, tiny_llama)).read("generations")
    word = first.loc[first["defence"] == "prompt:short", "generated"].str.split().explode().mode().iloc[0]
    run = run_spec(prompt_spec(home, tiny_llama, meta_terms=[word.strip(".,;:").lower() or "a"]))
    texts, scores = run.read("generations"), run.read("generation_metrics").set_index("defence")
    for name in ("none", "prompt:short"):
        hit = texts.loc[texts["defence"] == name, "meta_terms"] != ""
        assert scores.loc[name, "contaminated"] == pytest.approx(hit.mean())
        assert scores.loc[name, "contaminated_low"] <= hit.mean() <= scores.loc[name, "contaminated_high"]
    assert scores.loc["prompt:short", "contaminated"] > 0


def test_summaries_are_written_once(home, tiny_llama, monkeypatch) -> None:
    spec = prompt_spec(home, tiny_llama)
    run_spec(spec)
    import auditcore.lm.generate as module

    monkeypatch.setattr(module, "generate", lambda *a, **b: pytest.fail("the model wrote again"))
    run_spec({**spec, "meta_terms": ["x"]})


def test_text_stays_out_of_every_file_when_asked(home, tiny_llama) -> None:
    run = run_spec(prompt_spec(home, tiny_llama, store_text="none"))
    texts = run.read("generations")
    assert (texts[["prompt", "reference", "generated"]] == "").all(axis=None)
    for path in [*run.path.rglob("*"), *store.cache().rglob("*")]:
        if path.is_file():
            assert b"went home" not in path.read_bytes(), path
    assert run.read("output_metrics")["accuracy"].notna().all()


def test_without_references_there_is_no_rouge_and_it_is_said(home, tiny_llama) -> None:
    spec = prompt_spec(home, tiny_llama, defences=["none"])
    del spec["data"]["roles"]["target"]
    run = run_spec({**spec, "generate": {"rows": 40, "max_new_tokens": 4, "embed": False}})
    assert run.read("generations")["rougeL"].isna().all()
    assert "rougeL" not in run.read("generation_metrics")
    assert set(run.read("output_metrics")["source"]) == {"prompt", "generated", "vector:meanpool"}
    assert any("No column plays the role target" in note for note in run.manifest["data"]["notes"])


def test_the_target_takes_no_tokens_of_the_prompt(home, tiny_llama) -> None:
    spec = prompt_spec(home, tiny_llama, defences=["none"], generate=None, max_length=12)
    with_target = run_spec(spec)
    del spec["data"]["roles"]["target"]
    without = run_spec(spec)
    pd.testing.assert_series_equal(with_target.read("examples")["n_tokens"], without.read("examples")["n_tokens"])


def test_shipped_directives_are_taken_by_default_and_the_command_line_tells_them(home, tiny_llama, capsys) -> None:
    spec = prompt_spec(home, tiny_llama, generate=None, max_length=192)
    del spec["directives"]
    run = run_spec(spec)
    names = [f"prompt:{name}" for name in shipped().directives]
    assert list(run.read("probe_metrics")["defence"].unique()) == ["none", *names]
    assert all(name in run.manifest["claim"]["audited"] for name in names)
    assert main(["show", str(run.path)]) == 0
    assert "prompt:" in capsys.readouterr().out


def test_a_plan_counts_directives_and_summaries(home, tiny_llama, monkeypatch) -> None:
    monkeypatch.setitem(plan_here.__globals__, "_flops_per_second", lambda: 1e9)  # a busy machine must not decide
    spec = prompt_spec(home, tiny_llama)
    plan = plan_here(parse_spec(spec))
    less = plan_here(parse_spec({**spec, "defences": ["none"], "generate": None}))
    start = 15  # seconds that every plan grants to what is read and written around the work
    assert plan.seconds - start > 2 * (less.seconds - start)
    assert any("tokens of summaries" in note for note in plan.notes)


def test_sampled_rows_are_whole_subjects_with_classes_equally_frequent() -> None:
    frame = pd.DataFrame({"group": np.repeat([f"s{i}" for i in range(60)], 2), "sex": np.repeat(["f", "m"] * 30, 2)})
    found = sample(frame, "sex", np.arange(20, 120), 40, 0)
    part = frame.iloc[found]
    assert len(found) == 40
    assert found.min() >= 20
    assert (part.groupby("sex")["group"].nunique() == 10).all()
    assert (part["group"].value_counts() == 2).all()
    assert list(found) == sorted(found)
    assert len(sample(frame, "sex", np.arange(120), 1000, 0)) == 120


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"directives": {"Bad Name": "x"}}, "names are lower-case"),
        ({"directives": {"a": "  "}}, "is empty"),
        ({"directives": {}}, "leave directives out"),
        ({"model": None, "vectors": {"path": "v.npy"}, "defences": ["prompt"]}, "needs a model"),
        ({"model": None, "vectors": {"path": "v.npy"}, "generate": {}}, "written by a model"),
        ({"generate": {"rows": 2}}, "generate.rows"),
    ],
)
def test_mistakes_are_named(changes, words) -> None:
    raw = {"kind": "vectors", "model": {"source": "a"}, "data": {"path": "x.csv", "roles": {"label": "sex"}}}
    with pytest.raises(SpecError, match=words):
        parse_spec({k: v for k, v in {**raw, **changes}.items() if v is not None})


def test_a_spec_with_directives_survives_yaml(home, tiny_llama) -> None:
    from auditcore.spec import dump_spec

    spec = parse_spec(prompt_spec(home, tiny_llama))
    assert parse_spec(yaml.safe_load(yaml.safe_dump(dump_spec(spec)))) == spec
