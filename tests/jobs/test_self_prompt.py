"""SPV-MIA in a whole run: what the target writes, the reference trained on it, the score, kills, the plan."""

import signal

import numpy as np
import pandas as pd
import pytest

from auditcore import jobs, store
from auditcore.errors import DatasetError, SpecError
from auditcore.jobs import self_prompt
from auditcore.jobs.classify import classify
from auditcore.jobs.plan import plan_here
from auditcore.membership.cost import cost
from auditcore.spec import SelfPromptSpec, dump_spec, parse_spec
from tests.job_specs import membership_spec, run_spec, tables_of
from tests.jobs.test_interrupted_jobs import worker

WRITTEN = {"texts": 70, "new_tokens": 10}
SPV = {"pairs": 2, "epochs": 2, "learning_rate": 5e-3, "batch_size": 8}


def spv_spec(home, pair, **changes):
    spec = {"attacks": ["spv"], "self_prompt": WRITTEN, "spv": SPV, **changes}
    return membership_spec(home, pair, **spec)


def test_the_target_writes_behind_the_prompts_and_the_base_is_trained_on_it(home, pair) -> None:
    prompts = ["fever and cough", "stocks fell"]
    run = run_spec(spv_spec(home, pair, self_prompt={**WRITTEN, "prompts": prompts}))
    texts = run.read("self_prompt_texts")
    assert len(texts) == WRITTEN["texts"]
    assert texts["prompt"].tolist() == prompts * (WRITTEN["texts"] // 2)
    assert texts["n_tokens"].max() == WRITTEN["new_tokens"]
    assert texts["text"].nunique() > WRITTEN["texts"] // 2  # drawn, not the likeliest each time
    scores = run.read("membership_scores")
    assert (scores["status"] == "ok").sum() >= 32
    assert np.isfinite(scores.loc[scores["status"] == "ok", "score"]).all()
    adapter = run.path / "self_prompt" / "checkpoints" / "last" / "adapter_model.safetensors"
    assert adapter.exists()
    assert any(note.startswith("spv: the target wrote 70 texts") for note in run.manifest["data"]["notes"])


def test_the_score_is_what_the_paper_says(home, pair) -> None:
    from auditcore.jobs import neighbours
    from auditcore.jobs.models import Models
    from auditcore.jobs.recipes import trained_model
    from auditcore.lm.encode import encode
    from auditcore.lm.load import load_model
    from auditcore.lm.tokens import token_statistics

    spec = parse_spec(spv_spec(home, pair))
    run = run_spec(dump_spec(spec))
    text = pd.read_csv(spec.data.path, dtype=str).iloc[20]
    target = load_model(spec.model)
    last = run.path / "self_prompt" / "checkpoints" / "last"
    other = load_model(trained_model(spec, spec.spv, last, str(pair[1])))
    encoded = encode(target.tokenizer, "{t}", {"t": [text["text"]]}, None, 32)
    made = neighbours.propose(spec, Models(spec), encoded, 4, None, keep=False)

    def probability(lm, rows):
        return float(np.exp(np.nanmean(token_statistics(lm, None, rows).logp_target)))

    by_model = []
    for lm in (target, other):
        copies = [probability(lm, made.apply(encoded, k)) for k in range(4)]
        by_model.append(np.mean(copies) - probability(lm, encoded))
    scores = run.read("membership_scores").set_index("example_id")
    assert scores.loc[text["id"], "score"] == pytest.approx(by_model[1] - by_model[0], rel=1e-3)


def test_noise_on_embeddings_takes_the_papers_42_passes_and_no_proposals(home, pair, monkeypatch) -> None:
    from auditcore.jobs import evidence
    from auditcore.lm import substitute
    from auditcore.lm.load import load_model
    from auditcore.lm.noise import Noise, noisy

    spec = parse_spec(spv_spec(home, pair, spv={**SPV, "domain": "embeddings"}))
    assert cost("spv", parse_spec(spv_spec(home, pair, spv={"domain": "embeddings"}))).passes == 42
    assert "weights" in cost("spv", spec).access
    ran, run_one = [], evidence.Pass.run
    monkeypatch.setattr(evidence.Pass, "run", lambda self, *a: ran.append(self) or run_one(self, *a))
    monkeypatch.setattr(substitute, "substitute", lambda *a, **k: pytest.fail("words were proposed"))
    run = run_spec(dump_spec(spec))
    assert len([one for one in ran if one.name != "reference"]) == cost("spv", spec).passes == 10
    scores = run.read("membership_scores").set_index("example_id")
    assert (scores["status"] == "ok").sum() >= 32
    target = load_model(spec.model)
    one = next(one for one in ran if one.noise == Noise(spec.seed, 1, -1, spec.spv.noise) and one.model == "target")
    with noisy(target, one.noise):
        by_hand = run_one(evidence.Pass("by hand", "target", one.encoded, False, "target"), spec, target, None)
    found = run_one(one, spec, target, None)
    np.testing.assert_allclose(found["logp_target"], by_hand["logp_target"], atol=1e-5)
    assert one.key(spec, "x", False) != evidence.Pass("", "target", one.encoded, False, "target").key(spec, "x", False)


def test_a_full_reference_leaves_no_weights(home, pair) -> None:
    run = run_spec(spv_spec(home, pair, spv={**SPV, "method": "full"}))
    assert not (run.path / "self_prompt").exists()
    assert (run.read("membership_scores")["status"] == "ok").sum() >= 32


def test_no_text_is_written_when_none_may_be_kept(home, pair) -> None:
    run = run_spec(spv_spec(home, pair, store_text="none"))
    texts = run.read("self_prompt_texts")
    assert set(texts["text"]) | set(texts["prompt"]) == {""}
    assert texts["n_tokens"].sum() > 0


def test_prompts_come_from_a_file_a_list_or_from_us(home) -> None:
    path = home / "prompts.txt"
    path.write_text("one\n\n  two \n", encoding="utf-8")
    assert self_prompt.prompts(SelfPromptSpec(prompts=str(path))) == ["one", "two"]
    assert self_prompt.prompts(SelfPromptSpec(prompts=[" three"])) == ["three"]
    ours = self_prompt.prompts(SelfPromptSpec())
    assert len(set(ours)) == len(ours) >= 20
    path.write_bytes(b"\xff\xfe")
    for bad, words in ((path, "not UTF-8"), (home / "none.txt", "cannot be read"), (home, "cannot be read")):
        with pytest.raises(DatasetError, match=words):
            self_prompt.prompts(SelfPromptSpec(prompts=str(bad)))
    path.write_text("\n \n", encoding="utf-8")
    with pytest.raises(DatasetError, match="holds no prompt"):
        self_prompt.prompts(SelfPromptSpec(prompts=str(path)))


def test_what_cannot_work_is_said_before_any_model_runs(home, pair) -> None:
    for changes, error, words in (
        ({"self_prompt": {"new_tokens": 64}}, SpecError, "do not fit into max_length 32"),
        ({"self_prompt": {**WRITTEN, "prompts": "nowhere.txt"}}, DatasetError, "nowhere.txt cannot be read"),
    ):
        run = store.create_run(dump_spec(parse_spec(spv_spec(home, pair, **changes))))
        with pytest.raises(error, match=words):
            jobs.execute(run)
        assert not run.has("token_stats")


def test_a_new_text_cannot_be_judged(home, pair) -> None:
    run = run_spec(spv_spec(home, pair, target_fprs=[0.01, 0.5]))
    with pytest.raises(SpecError, match="cannot judge a new text"):
        classify(run, "fever and cough", "spv", 0.5)


def test_texts_are_written_in_parts_and_kept(home, pair, monkeypatch) -> None:
    """Cancelled in the second part, a resumed run writes only that one again."""
    from auditcore.lm import generate

    written, sample = [], generate.sample

    def counted(*arguments, **named):
        written.append(named["seed"])
        if len(written) == 2:
            raise KeyboardInterrupt
        return sample(*arguments, **named)

    monkeypatch.setattr(generate, "sample", counted)
    run = store.create_run(dump_spec(parse_spec(spv_spec(home, pair))))
    with pytest.raises(KeyboardInterrupt):
        jobs.execute(run)
    jobs.prepare_resume(run)
    jobs.execute(run)
    assert len(written) == 3  # the part of 64, the part of 6 twice
    assert written[1] == written[2] != written[0]


@pytest.mark.slow
def test_killed_in_each_of_its_stages_it_ends_with_the_same_tables(home, pair) -> None:
    spec = spv_spec(home, pair)
    undisturbed = run_spec(spec)
    expected = tables_of(undisturbed)
    store.cache().rename(home / "old-cache")
    run = store.create_run(dump_spec(parse_spec(spec)))
    for stage in ("neighbours", "self-prompt texts", "self-prompt reference", "self-prompt scores", "scores"):
        for when in ("start", "end") if stage == "scores" else ("start", "middle", "end"):
            assert worker(run, stage, when) == -signal.SIGKILL, (stage, when)
            jobs.prepare_resume(run)
    assert worker(run, "none", "never") == 0
    assert run.manifest["finished_stages"] == undisturbed.manifest["finished_stages"]
    for name, table in tables_of(run).items():
        pd.testing.assert_frame_equal(table, expected[name], obj=name)


def test_the_plan_says_what_is_trained_and_how_long_each_attack_takes(home, pair, monkeypatch) -> None:
    monkeypatch.setitem(plan_here.__globals__, "_flops_per_second", lambda: 1e9)  # a busy machine must not decide
    spec = parse_spec(spv_spec(home, pair, attacks=["ez", "spv"]))
    plan = plan_here(spec)
    text = plan.to_text()
    assert cost("spv", spec).passes == 3 + 4 * 2
    assert "11 passes a row; trains a reference (lora) on 70 texts that the target writes; about" in text
    assert "The target writes 70 texts of up to 10 tokens" in text
    alone = {one["attack"]: one["seconds"] for one in plan.attacks}
    assert alone["spv"] > 5 * alone["ez"]
    assert plan.seconds > alone["spv"]
    more = plan_here(parse_spec(spv_spec(home, pair, attacks=["ez", "spv"], spv={**SPV, "epochs": 20})))
    assert {o["attack"]: o["seconds"] for o in more.attacks}["spv"] > alone["spv"]


def test_default_passes_are_one_more_than_the_papers_42(home, pair) -> None:
    assert cost("spv", parse_spec(membership_spec(home, pair, attacks=["spv"]))).passes == 43
