"""A claim has both halves, names what was audited exactly, and leaves no verdict out."""

import pandas as pd

from auditcore.claims import claim
from auditcore.spec import dump_spec, parse_spec
from tests.fake_runs import membership_run, vectors_run


def test_vectors_claim_names_label_artifact_layer_template_data_subjects_attackers_and_every_verdict(tmp_path):
    run = vectors_run(tmp_path / "v", rows=300)
    verdicts = run.read("verdicts")
    text = claim(run.manifest, verdicts)
    n = int(verdicts["n_subjects"].max())
    for part in ("recorded_race", "lasttok and meanpool at layer 30", "smollm2-135m", "template", "notes.parquet",
                 f"{n} test subjects", "linear and mlp (3 seeds)", "90 % interval", "all together"):  # fmt: skip
        assert part in text["audited"]
    assert text["audited"].count("90 % interval") == 4
    assert "the artifacts concat" in text["not_audited"]
    assert "other layers, checkpoints, templates and attributes" in text["not_audited"]


def test_of_many_attackers_the_claim_names_the_strongest_of_each_place_and_counts_the_rest(tmp_path):
    run = vectors_run(tmp_path / "v", rows=300, layers=tuple(range(8)), attributes=("race", "sex"))
    verdicts = run.read("verdicts")
    text = claim(run.manifest, verdicts)["audited"]
    assert text.startswith("Sensitive labels race and sex, read from")
    assert text.count("90 % interval") == 4  # labels x artifacts
    best = verdicts[verdicts["attacker"] != "all"].sort_values("value").iloc[-1]
    assert (
        f"{best['attribute']} {best['artifact']} layer {best['layer']} {best['attacker']} +{best['value']:.3f}" in text
    )
    assert "these are the strongest of 64 attackers, of which are" in text
    assert "all together" in text


def test_membership_claim_names_attacks_rows_and_what_was_not_audited(tmp_path):
    run = membership_run(tmp_path / "m", rows=300)
    run.update(counts={"members": 150, "nonmembers": 147})
    text = claim(run.manifest, run.read("verdicts"))
    for part in (
        "150 members, 147 non-members",
        "ez, loss and reference",
        "at most 128 tokens",
        "smollm2-135m",
        "not resolved",
    ):
        assert part in text["audited"]
    for part in ("shadow models", "error rates for one person", "unknown membership"):
        assert part in text["not_audited"]


def test_an_attack_without_a_threshold_says_which_ties_left_it_none(tmp_path):
    run = membership_run(tmp_path / "m", rows=300)
    verdicts = run.read("verdicts")
    verdicts["defence"] = None
    verdicts.loc[verdicts["attacker"] == "loss", ["value", "low", "high"]] = float("nan")
    text = claim(run.manifest, verdicts, {"loss": "tied scores: so many"})["audited"]
    assert "loss not measurable, not resolved (tied scores: so many)" in text
    assert text.count("tied scores") == 1


def test_the_base_of_an_adapter_is_named_as_the_reference(tmp_path):
    run = membership_run(tmp_path / "m", rows=300)
    spec = run.manifest["spec"]
    run.update(spec={**spec, "model": {**spec["model"], "reference": None}}, fingerprints={"reference": "abc123"})
    assert "against its reference [abc123]" in claim(run.manifest, run.read("verdicts"))["audited"]


def test_rows_of_a_corpus_and_conversations_are_named_as_what_they_are():
    data = {"path": "wiki.raw", "corpus": {"name": "wikitext"}}
    spec = dump_spec(parse_spec({"kind": "membership", "model": {"source": "a"}, "data": data}))
    nothing = pd.DataFrame(columns=["attacker", "verdict"])
    said = claim({"spec": spec, "data": {"path": "wiki.raw", "sha256": "abc"}}, nothing)["audited"]
    assert "on rows made from wiki.raw as wikitext (sha256 abc)" in said
    data = {"path": "c.jsonl", "roles": {"messages": "messages", "member": "member"}}
    spec = dump_spec(parse_spec({"kind": "membership", "model": {"source": "a"}, "data": data}))
    said = claim({"spec": spec, "fingerprints": {"template": "f00d"}}, nothing)["audited"]
    assert "the assistant's tokens under the chat template [f00d], at most 512 tokens" in said


def test_shadow_models_that_were_trained_are_not_called_unaudited():
    spec = {"kind": "membership", "model": {"source": "a"}, "data": {"path": "r.csv", "roles": {"text": "t"}}}
    manifest = {"spec": dump_spec(parse_spec({**spec, "attacks": ["lira"], "shadows": {"count": 4}}))}
    text = claim(manifest, pd.DataFrame(columns=["attacker", "verdict"]))
    assert "attackers with more or other shadow models than 4, gradients" in text["not_audited"]


def test_a_claim_can_be_made_from_an_early_manifest_without_verdicts():
    spec = {"kind": "membership", "model": {"source": "a"}, "data": {"path": "r.csv", "roles": {"text": "t"}}}
    manifest = {"spec": dump_spec(parse_spec(spec))}
    text = claim(manifest, pd.DataFrame(columns=["attacker", "verdict"]))
    assert "no verdict, since no rate could be measured" in text["audited"]


def test_given_vectors_and_fine_tuning_have_their_own_words():
    data = {"path": "r.csv", "roles": {"label": "sex", "id": "id"}}
    vectors = {"kind": "vectors", "vectors": {"path": "v.parquet"}, "data": data}
    empty = pd.DataFrame(columns=["attacker", "verdict"])
    assert "the given vectors (v.parquet)" in claim({"spec": dump_spec(parse_spec(vectors))}, empty)["audited"]
    finetune = {"kind": "finetune", "model": {"source": "a"}, "data": {"path": "r.csv", "roles": {"text": "t"}}}
    assert "audits none" in claim({"spec": dump_spec(parse_spec(finetune))}, empty)["audited"]
