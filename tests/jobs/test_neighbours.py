"""The attack neighbourhood in a whole run: its copies, its cache, its cost, a new text; models that take turns."""

import numpy as np
import pandas as pd
import pytest

from auditcore import jobs, store
from auditcore.errors import AuditError, ModelError, SpecError
from auditcore.jobs import neighbours
from auditcore.jobs.classify import classify
from auditcore.jobs.evidence import Pass
from auditcore.jobs.plan import plan_here
from auditcore.lm import memory
from auditcore.spec import dump_spec, parse_spec
from tests.job_specs import membership_spec, run_spec, tables_of
from tests.tiny_models import build_adapter, build_folder


def scores_of(run, attack):
    scores = run.read("membership_scores")
    return scores[scores["attack"] == attack].reset_index(drop=True)


def test_the_score_is_the_row_against_its_copies(home, pair) -> None:
    from auditcore.jobs import evidence
    from auditcore.jobs.models import Models
    from auditcore.lm.encode import encode
    from auditcore.lm.load import load_model

    spec = parse_spec(membership_spec(home, pair, attacks=["neighbourhood", "loss"], neighbours={"count": 3}))
    run = run_spec(dump_spec(spec))
    texts = run.read("token_stats").groupby("example_id", sort=False)["token_id"].apply(list)
    found, mean = scores_of(run, "neighbourhood"), scores_of(run, "loss")
    assert (found["status"] == mean["status"]).all()
    lm = load_model(spec.model)
    encoded = encode(lm.tokenizer, "{t}", {"t": ["fever cough admitted patient stocks fell"]}, None, 32)
    models = Models(spec)
    made = neighbours.propose(spec, models, encoded, 3, None, keep=False)
    by_hand = []
    for k in range(3):
        one = evidence.Pass("copy", "target", made.apply(encoded, k), False, "target").run(spec, lm, None)
        by_hand.append(np.nanmean(one["logp_target"]))
    means = neighbours.score(spec, models, "target", neighbours.in_words(encoded, made), None, keep=False)
    np.testing.assert_allclose(means[:, 0], by_hand, rtol=1e-5)
    assert len(texts) == len(found) - 1  # the empty row has no tokens


def test_a_second_run_asks_no_model_and_another_share_does(home, pair, monkeypatch) -> None:
    spec = membership_spec(home, pair, attacks=["neighbourhood"], neighbours={"count": 2})
    expected = scores_of(run_spec(spec), "neighbourhood")
    from auditcore.jobs.models import Models

    def never(self, which):
        raise AssertionError(f"{which} was loaded")

    with monkeypatch.context() as patch:
        patch.setattr(Models, "get", never)
        again = scores_of(run_spec(spec), "neighbourhood")
        with pytest.raises(AuditError, match="was loaded"):
            run_spec({**spec, "neighbours": {"count": 2, "share": 0.9}})
    np.testing.assert_array_equal(again["score"], expected["score"])


def test_stopped_among_its_copies_it_goes_on_there(home, pair, monkeypatch) -> None:
    spec = membership_spec(home, pair, attacks=["neighbourhood"], neighbours={"count": 4})
    expected = tables_of(run_spec(spec))
    store.cache().rename(home / "old-cache")
    from auditcore.jobs import evidence

    original, seen = evidence.Pass.run, []

    def stopped(self, *arguments):
        seen.append(self.name)
        if len(seen) == 5:
            raise KeyboardInterrupt
        return original(self, *arguments)

    monkeypatch.setattr(evidence.Pass, "run", stopped)
    run = store.create_run(dump_spec(parse_spec(spec)))
    with pytest.raises(KeyboardInterrupt):
        jobs.execute(run)
    half = run.path / ".run.json.0a1b2c3d.tmp"
    half.write_text("{")  # what a kill leaves of a file that was being written
    jobs.prepare_resume(run)
    assert not half.exists()
    jobs.execute(run)
    assert seen == ["target", "reference", *["copy"] * 5]  # the third twice
    for name, table in tables_of(run).items():
        assert table.equals(expected[name]), name


def test_a_new_text_gets_its_runs_score_and_leaves_nothing_in_the_cache(home, pair) -> None:
    spec = membership_spec(home, pair, attacks=["neighbourhood"], target_fprs=[0.01, 0.5], neighbours={"count": 2})
    run = run_spec(spec)
    row = run.read("examples").iloc[20]
    text = pd.read_csv(spec["data"]["path"], dtype=str).iloc[20]["text"]
    kept = sorted(store.cache().rglob("*.safetensors"))
    answer = classify(run, text, "neighbourhood", 0.5)
    expected = scores_of(run, "neighbourhood").set_index("example_id").loc[row["example_id"], "score"]
    assert answer["score"].iloc[0] == pytest.approx(expected, abs=1e-4)
    assert sorted(store.cache().rglob("*.safetensors")) == kept


def test_passes_are_counted_as_they_are_run(home, pair, monkeypatch) -> None:
    from auditcore.jobs import evidence
    from auditcore.lm import substitute
    from auditcore.membership.cost import cost

    spec = parse_spec(membership_spec(home, pair, attacks=["neighbourhood"], neighbours={"count": 5}))
    ran = []
    run_one, propose = evidence.Pass.run, substitute.substitute
    monkeypatch.setattr(evidence.Pass, "run", lambda self, *a: ran.append(self.name) or run_one(self, *a))
    monkeypatch.setattr(substitute, "substitute", lambda *a, **k: ran.append("proposals") or propose(*a, **k))
    run_spec(dump_spec(spec))
    assert len([name for name in ran if name != "reference"]) == cost("neighbourhood", spec).passes == 7
    plan = plan_here(spec)
    assert "neighbourhood (arXiv 2305.18462)" in plan.to_text()
    assert "7 passes a row" in plan.to_text()


def test_models_that_do_not_fit_together_take_turns_with_the_same_numbers(home, pair, monkeypatch) -> None:
    spec = membership_spec(home, pair, attacks=["ez", "neighbourhood"], neighbours={"count": 2})
    expected = scores_of(run_spec(spec), "ez")
    store.cache().rename(home / "old-cache")
    one = memory.needed_bytes(parse_spec(spec).model)
    from auditcore.jobs.models import Models

    held = []
    load = Models._make_room

    def room(self, which):
        # As much memory as one model takes, less what is loaded.
        monkeypatch.setattr(memory, "free_bytes", lambda device: one if not self._loaded else 0)
        load(self, which)
        held.append(len(self._loaded))

    monkeypatch.setattr(Models, "_make_room", room)
    run = run_spec(spec)
    assert held
    assert not any(held)  # never a second one beside the first
    np.testing.assert_array_equal(scores_of(run, "ez")["score"], expected["score"])


def test_a_reference_larger_than_memory_is_refused_in_words(home, pair, monkeypatch) -> None:
    monkeypatch.setattr(memory, "free_bytes", lambda device: 1000)
    with pytest.raises(ModelError, match="of memory in float32"):
        run_spec(membership_spec(home, pair))


def test_different_tokenizers_are_refused_before_any_weights_are_read(home, pair, monkeypatch) -> None:
    from auditcore.lm import load

    other = build_folder(home / "other", "llama", vocabulary=320)
    monkeypatch.setattr(load, "load_model", lambda *a: pytest.fail("weights were read"))
    with pytest.raises(ModelError, match="use different tokenizers"):
        run_spec(membership_spec(home, (pair[0], other)))


def test_the_plan_says_what_memory_allows(home, pair, monkeypatch) -> None:
    spec = parse_spec(membership_spec(home, pair))
    one = memory.needed_bytes(spec.model)
    for free, words in ((4 * one, None), (1.5 * one, "loaded one after the other"), (one / 2, "of memory in float32")):
        monkeypatch.setattr(memory, "free_bytes", lambda device, free=free: int(free))
        notes = " ".join(plan_here(spec).notes)
        assert ("memory" in notes) == (words is not None)
        assert words is None or words in notes


def test_the_plan_refuses_what_the_run_would_refuse(home, pair) -> None:
    other = build_folder(home / "other", "llama", vocabulary=320)
    with pytest.raises(ModelError, match="use different tokenizers"):
        plan_here(parse_spec(membership_spec(home, (pair[0], other))))
    alone = membership_spec(home, pair)
    alone["model"] = {"source": alone["model"]["source"]}
    with pytest.raises(SpecError, match=r"model\.reference is missing"):
        plan_here(parse_spec(alone))
    short = membership_spec(home, pair, attacks=["spv"], self_prompt={"new_tokens": 32})
    with pytest.raises(SpecError, match="do not fit into max_length"):
        plan_here(parse_spec(short))


def test_an_adapter_and_its_base_stay_one_model(home, pair, monkeypatch) -> None:
    from auditcore.lm import load

    adapter, loaded = build_adapter(home / "adapter", pair[1]), []
    original = load.load_model
    monkeypatch.setattr(load, "load_model", lambda spec, *a: loaded.append(spec.source) or original(spec, *a))
    run = run_spec(membership_spec(home, (adapter, pair[1]), attacks=["ez", "neighbourhood"], neighbours={"count": 2}))
    assert loaded == [str(adapter)]
    assert (run.read("token_stats")["delta"].fillna(0) != 0).any()


def test_only_one_whole_model_is_in_memory(home, pair) -> None:
    from auditcore.jobs.models import Models
    from auditcore.spec import parse_spec

    models = Models(parse_spec(membership_spec(home, pair)))
    models.get("target")
    models.release_target()
    models.get("reference")
    assert list(models._loaded) == [(str(pair[1]), None)]


def test_a_prompt_with_an_empty_target_does_not_read_what_was_scored_of_plain_text(home, pair) -> None:
    from auditcore.lm.encode import Encoded

    ids, no = [np.array([5, 6, 7])], np.zeros(1, dtype=bool)
    plain, bare = (Encoded(ids, np.array([3]), no, no, has_target=has) for has in (False, True))
    spec = parse_spec(membership_spec(home, pair))
    keys = {Pass("target", "target", rows, False, "target").key(spec, "print", False) for rows in (plain, bare)}
    assert plain.in_loss().sum() == 2
    assert bare.in_loss().sum() == 0
    assert len(keys) == 2
