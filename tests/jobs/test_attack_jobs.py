"""Membership audits with every attack on tiny models: what each needs, what is left out, what is warned of."""

import numpy as np
import pandas as pd
import pytest

from auditcore import jobs, store
from auditcore.errors import DatasetError, ModelError
from auditcore.spec import ATTACKS, dump_spec, parse_spec
from tests.job_specs import HOSTILE, WORDS, membership_spec, run_spec


def test_every_attack_in_one_run_equals_its_own_run(home, pair) -> None:
    small = {
        "shadows": {"count": 4, "max_steps": 2},
        "neighbours": {"count": 3},
        "spv": {"pairs": 2, "max_steps": 2},
        "self_prompt": {"texts": 8},
    }
    together = run_spec(membership_spec(home, pair, attacks=list(ATTACKS), recall_shots=3, **small))
    together = together.read("membership_scores")
    assert list(together["attack"].unique()) == list(ATTACKS)
    for attack in ("min_k_pp_ref", "lowercase", "zlib", "wbc", "neighbourhood", "spv"):
        alone = run_spec(membership_spec(home, pair, attacks=[attack], **small)).read("membership_scores")
        both = together[together["attack"] == attack].reset_index(drop=True)
        np.testing.assert_allclose(both["score"], alone["score"], rtol=1e-5, atol=1e-6)
        assert (alone["status"] == "ok").sum() >= 32
    # The rows of ReCaLL's prefix are left out of every metric, and counted.
    assert together.loc[together["attack"] == "ez", "member"].isna().sum() == len(HOSTILE) + 3


def test_recall_scores_the_same_tokens_behind_a_prefix(home, pair) -> None:
    from auditcore.jobs import evidence
    from auditcore.lm.encode import Encoded
    from auditcore.lm.load import load_model
    from auditcore.lm.tokens import token_statistics
    from auditcore.spec import ModelSpec

    model = load_model(ModelSpec(source=str(pair[0])))
    ids = [np.array(row, dtype=np.int64) for row in ([5, 6, 7], [8, 9, 10, 11], [12], [], [13, 14])]
    no = np.zeros(5, dtype=bool)
    encoded = Encoded(ids, np.array([len(r) for r in ids]), no, no)
    spec = parse_spec(membership_spec(home, pair))
    (one,) = [p for p in evidence.plan(spec, None, encoded, None, frozenset({"prefixed"}), [4]) if p.name == "prefixed"]
    found = one.run(spec, model, None)
    scored = np.split(found["scored"], found["offsets"][1:-1])
    assert [int(row.sum()) for row in scored] == [2, 3, 0, 0, 1]
    by_hand = token_statistics(
        model, None, Encoded([np.array([13, 14, 5, 6, 7])], np.array([5]), no[:1], no[:1])
    ).logp_target[3:]
    np.testing.assert_allclose(found["logp_target"][: found["offsets"][1]][found["scored"][:5]], by_hand, atol=1e-5)


def test_lira_with_too_few_rows_is_refused_before_any_model_runs(home, pair) -> None:
    spec = membership_spec(home, pair, attacks=["lira"])
    rows = pd.read_csv(spec["data"]["path"], dtype=str)
    rows.assign(member="").to_csv(spec["data"]["path"], index=False)
    run = store.create_run(dump_spec(parse_spec(spec)))
    with pytest.raises(DatasetError, match="0 rows are too few"):
        jobs.execute(run)
    assert not run.has("token_stats")


def test_recall_says_that_its_prefix_is_too_long(home, pair) -> None:
    spec = membership_spec(home, pair, attacks=["recall"], recall_shots=8)
    rows = pd.read_csv(spec["data"]["path"], dtype=str)
    rows["text"] = rows["text"].where(rows.index < len(HOSTILE), rows["text"] + " " + " ".join(WORDS * 3))
    rows.to_csv(spec["data"]["path"], index=False)
    with pytest.raises(ModelError, match="lower recall_shots"):
        run_spec({**spec, "max_length": 64})


def test_recall_needs_enough_nonmembers(home, pair) -> None:
    with pytest.raises(DatasetError, match="as many again"):
        run_spec(membership_spec(home, pair, attacks=["recall"], recall_shots=9))


@pytest.mark.parametrize("method", ["lora", "full"])
def test_shadows_are_trained_on_their_halves(method, home, pair) -> None:
    shadows = {"count": 4, "epochs": 8, "learning_rate": 5e-3, "batch_size": 4, "method": method}
    run = run_spec(membership_spec(home, pair, attacks=["lira", "loss"], shadows=shadows))
    tables = [run.read(f"shadow_{k:02d}") for k in (1, 2, 3, 4)]
    known = tables[0]["trained"] | tables[1]["trained"]
    assert known.sum() == 32  # every row of known membership is in one of a pair, the unknown ones in none
    assert not (tables[0]["trained"] & tables[1]["trained"]).any()
    # What a shadow was trained on, it finds more likely than its twin does.
    gain = (tables[0]["mean_logp"] - tables[1]["mean_logp"])[known]
    seen = tables[0]["trained"][known]
    assert gain[seen].mean() > gain[~seen].mean()
    scores = run.read("membership_scores")
    lira = scores[scores["attack"] == "lira"]
    assert (lira["status"] == "ok").sum() == 32
    assert (run.path / "shadows").exists() == (method == "lora") or not list((run.path / "shadows").iterdir())


@pytest.mark.parametrize("policy", ["warn", "exclude"])
def test_texts_on_both_sides_are_counted_and_can_be_left_out(policy, home, pair) -> None:
    spec = membership_spec(home, pair, on_duplicates=policy)
    rows = pd.read_csv(spec["data"]["path"], dtype=str)
    rows.loc[[20, 21], "text"] = "fever and cough at home"  # a non-member and a member
    rows.to_csv(spec["data"]["path"], index=False)
    run = run_spec(spec)
    assert run.read("duplicates")["example_id"].tolist() == ["r20", "r21"]
    assert any("1 members and 1 non-members have the same text" in w for w in run.manifest["warnings"])
    metrics = run.read("attack_metrics")
    assert set(metrics["n_nonmember"]) == {16 if policy == "warn" else 15}


def test_words_that_give_membership_away_are_a_warning(home, pair) -> None:
    spec = membership_spec(home, pair)
    rows = pd.read_csv(spec["data"]["path"], dtype=str)
    rows["text"] = np.where(rows["member"] == "1", "members say this " + rows["text"].fillna(""), rows["text"])
    rows.to_csv(spec["data"]["path"], index=False)
    run = run_spec(spec)
    assert any("differ by themselves" in w for w in run.manifest["warnings"])
    assert run.read("blind").set_index("metric").loc["auc", "low"] > 0.5
