"""Conversations from end to end: trained, audited by every cheap attack, and told to the reader."""

import json
from pathlib import Path

import numpy as np
import pytest

from auditcore.errors import RunError, SpecError
from auditcore.jobs.classify import classify
from auditcore.jobs.plan import plan_here
from auditcore.spec import ATTACKS, parse_spec
from tests.job_specs import WORDS, run_spec
from tests.lm.test_chat import MARKED, PLAIN


@pytest.fixture
def chat_model(tmp_path, one_thread) -> Path:
    from auditcore.lm.load import quiet
    from tests.tiny_models import build_model

    with quiet():
        build_model("llama", len(PLAIN)).save_pretrained(tmp_path / "base")
        PLAIN.save_pretrained(tmp_path / "base")
    return tmp_path / "base"


@pytest.fixture
def chats(home) -> Path:
    rng = np.random.default_rng(0)
    rows = []
    for k in range(48):
        ask, answer = (" ".join(rng.choice(WORDS, 5)) for _ in range(2))
        chat = [{"role": "user", "content": f"{ask} {k}"}, {"role": "assistant", "content": answer}]
        rows.append({"id": f"c{k}", "messages": chat[:1] if k == 0 else chat, "member": ["1", "0", ""][min(k % 4, 2)]})
    path = home / "chats.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def spec(chats: Path, **more) -> dict:
    roles = {"messages": "messages", "member": "member", "id": "id"}
    return {"data": {"path": str(chats), "roles": roles}, "max_length": 120, "threads": 1, **more}


def test_training_and_audit_of_conversations(chats, home, chat_model) -> None:
    train = spec(chats, kind="finetune", model={"source": str(chat_model)}, validation="unknown", epochs=1)
    tuned = run_spec(train, home / "ft")
    notes = " ".join(tuned.manifest["data"]["notes"])
    assert "no generation marks" in notes
    assert "1 of 48 conversations hold no token that the assistant writes" in notes
    assert "1 of 12 training rows have no token in the loss" in notes
    attacks = [name for name in ATTACKS if name not in ("lira", "spv")]
    model = {"source": str(home / "ft" / "checkpoints" / "last"), "reference": str(chat_model)}
    audit = spec(chats, kind="membership", model=model, attacks=attacks, n_boot=100, recall_shots=2)
    audit["target_fprs"] = [0.01, 0.5]
    assert plan_here(parse_spec(audit)).rows == 48
    run = run_spec(audit, home / "audit")
    stats = run.read("token_stats")
    scored = stats[stats["scored"]].groupby("example_id")["token"].agg("".join)
    rows = [json.loads(line) for line in chats.read_text().splitlines()]
    expected = {r["id"]: r["messages"][1]["content"] + "<|im_end|>\n" for r in rows if len(r["messages"]) > 1}
    assert scored.to_dict() == expected  # exactly what the loss saw
    scores = run.read("membership_scores")
    assert set(scores["attack"]) == set(attacks)
    silent = scores[scores["example_id"] == "c0"]
    assert set(silent["status"]) == {"no_evidence"}
    assert (
        scores[(scores["attack"].isin(["loss", "neighbourhood"])) & (scores["example_id"] != "c0")]["score"]
        .notna()
        .all()
    )
    template = run.manifest["fingerprints"]["template"]
    (chat_model / "chat_template.jinja").write_text(MARKED)
    marked = run_spec({**audit, "model": {**model, "source": str(chat_model)}, "on_mismatch": "warn"}, home / "marked")
    assert marked.manifest["fingerprints"]["template"] != template
    assert marked.manifest["fingerprints"]["tokens"] == run.manifest["fingerprints"]["tokens"]
    with pytest.raises(SpecError, match="conversations: give a table file with the column 'messages'"):
        classify(run, "a new text", "loss", 0.5)


def test_new_conversations_are_classified_from_a_table(chats, home, chat_model) -> None:
    model = {"source": str(chat_model), "reference": str(chat_model)}
    audit = spec(chats, kind="membership", model=model, attacks=["loss"], n_boot=100, target_fprs=[0.01, 0.5])
    run = run_spec(audit, home / "audit")
    found = classify(run, str(chats), "loss", 0.5)
    assert len(found) == 48
    before = run.read("membership_scores").set_index("example_id")["score"]
    np.testing.assert_allclose(found.set_index("example_id")["score"], before, atol=1e-4)
    (chat_model / "chat_template.jinja").write_text(MARKED)
    with pytest.raises(RunError, match="chat template has changed"):
        classify(run, str(chats), "loss", 0.5)
