"""SurfaceLoRA on tiny models: what trains and what stays, what lambda 0 equals, that a vector comes to tell less."""

import numpy as np
import pytest
import torch

from auditcore.errors import SpecError
from auditcore.lm.vectors import extract_vectors
from auditcore.training.finetune import finetune
from auditcore.training.prompts import Labels
from auditcore.training.surfacelora import LOG_COLUMNS, surfacelora
from auditcore.training.turned import Turned
from tests.training.surface import NONE, assert_equal, rows, spec, train, weights


@pytest.mark.parametrize("architecture", ["llama", "gpt2", "qwen2"])
def test_lambda_0_is_plain_lora_bit_for_bit(make_lm, make_spec, tmp_path, architecture):
    ours = train(make_lm(architecture), tmp_path / "ours", spec(**{"lambda": 0}, gradient_accumulation=2))
    plain = make_spec(
        method="lora",
        max_steps=12,
        epochs=99,
        learning_rate=0.01,
        warmup_ratio=0.05,
        gradient_accumulation=2,
        lora={"r": 4, "alpha": 8, "dropout": 0.1, "target_modules": "all-linear"},
        validation=0,
    )
    encoded, _, _ = rows()
    theirs = finetune(make_lm(architecture), encoded, np.arange(40), NONE, plain, tmp_path / "plain")
    assert_equal(weights(ours.checkpoints[12]), weights(theirs.last))
    assert ours.log["lm_loss"].tolist() == theirs.log["lm_loss"].tolist()
    assert (ours.log["lambda"] == 0).all()
    assert ours.log["reversed_grad_norm"].isna().all()


def test_adversaries_that_only_watch_leave_every_bit_as_it_is(make_lm, tmp_path, monkeypatch):
    """Discriminators at work, the turned gradient left out: they have random streams and optimisers of their own."""
    plain = train(make_lm(), tmp_path / "plain", spec(**{"lambda": 0}))
    monkeypatch.setattr(Turned, "join", lambda self, step: {})
    watched = train(make_lm(), tmp_path / "watched", spec(**{"lambda": 3}))
    assert_equal(weights(plain.checkpoints[12]), weights(watched.checkpoints[12]))
    assert (watched.log["lambda"] > 0).any()


@pytest.mark.parametrize("adversary", [["mlp"], ["ridge"], ["moment"], ["mlp", "ridge", "moment"]])
def test_base_weights_stay_and_adapters_move(make_lm, tmp_path, adversary):
    lm = make_lm()
    before = {name: p.clone() for name, p in lm.model.named_parameters()}
    found = train(lm, tmp_path, spec(adversary=adversary))
    assert_equal(before, dict(lm.model.named_parameters()))
    assert not hasattr(lm.model, "peft_config")
    moved = [t.abs().max() > 0 for name, t in weights(found.checkpoints[12]).items() if "lora_B" in name]
    assert all(moved)
    assert list(found.checkpoints) == [5, 10, 12]
    assert tuple(found.log.columns) == LOG_COLUMNS
    assert found.log["step"].tolist() == list(range(1, 13))
    assert found.log["reversed_grad_norm"].iloc[1:].notna().all()
    assert found.log["lambda"].is_monotonic_increasing
    assert not (tmp_path / "state").exists()
    assert sorted(p.name for p in (tmp_path / "checkpoints").iterdir()) == [
        "last", "step-000005", "step-000010", "step-000012",
    ]  # fmt: skip


def test_embeddings_cannot_be_mitigated(make_lm, tmp_path):
    with pytest.raises(SpecError, match="no adapter changes"):
        train(make_lm(), tmp_path, spec(layer=0))


@pytest.mark.parametrize("change", [{"activation_checkpointing": True}, {"gradient_accumulation": 2, "batch_size": 2}])
def test_how_a_step_is_computed_changes_nothing_but_rounding(make_lm, tmp_path, change):
    lora = {"r": 4, "alpha": 8, "dropout": 0.0}
    # One epoch of ten steps: a step of two batches of two rows has the rows of one batch of four.
    usual = train(make_lm(), tmp_path / "usual", spec(lora=lora, steps=3, checkpoint_every=3, learning_rate=1e-4))
    other = train(
        make_lm(), tmp_path / "other", spec(lora=lora, steps=3, checkpoint_every=3, learning_rate=1e-4, **change)
    )
    if "activation_checkpointing" in change:
        for name, tensor in weights(usual.checkpoints[3]).items():
            torch.testing.assert_close(weights(other.checkpoints[3])[name], tensor, rtol=1e-4, atol=1e-6, msg=name)
    else:
        assert other.log["lm_loss"].iloc[0] == pytest.approx(usual.log["lm_loss"].iloc[0], rel=0.5)


def test_bf16_autocast_trains(make_lm, tmp_path):
    found = train(make_lm(), tmp_path, spec(autocast="bf16"))
    assert found.autocast == "bf16"
    assert np.isfinite(found.log["lm_loss"]).all()
    assert np.isfinite(found.log["reversed_grad_norm"].iloc[1:]).all()


def test_a_targeted_vector_comes_to_tell_less(make_lm, tmp_path):
    """The point of it all, on a leak that one token makes: a fresh ridge finds less in the trained vector."""
    from auditcore.spec import DiscriminatorSpec
    from auditcore.training.adversaries import Ridge

    encoded, labels, groups = rows(240)
    x_codes = torch.from_numpy(labels.codes[:, 0])
    seen = np.where(np.arange(240) < 160, labels.codes[:, 0], -1)[:, None]
    found: dict[int, list[float]] = {0: [], 4: []}
    for strength, accuracy in found.items():
        wanted = spec(
            steps=80, checkpoint_every=20, learning_rate=5e-3, batch_size=8, lambda_steps=10,
            data={"path": "x", "roles": {"prompt": "p", "target": "t", "label": "colour"}}, **{"lambda": strength},
            discriminator={"rows": 48, "bank_rows": 60, "bank_every": 5, "hidden": 32}, lora={"r": 8, "alpha": 16},
        )  # fmt: skip

        def probe(step, folder, model, accuracy=accuracy):
            x = torch.from_numpy(extract_vectors(model, encoded, ["lasttok"], [-1])["lasttok", 2])
            fresh = Ridge(16, 3, DiscriminatorSpec(ridge=0.01), 0, torch.device("cpu"))
            fresh.refit(x[:160], x_codes[:160], False)
            right = fresh.losses(x[160:], x_codes[160:])[1]
            assert right is not None
            accuracy.append(float(right.float().mean()))

        one = Labels(("colour",), seen, labels.classes[:1])
        out = tmp_path / str(strength)
        surfacelora(make_lm(), encoded, np.arange(160), one, groups, wanted, out, on_checkpoint=probe)
    assert min(found[0]) > 0.9
    assert np.mean(found[4][1:]) < 0.7


def test_checkpoints_come_every_so_many_steps_and_at_the_end():
    assert spec(steps=12, checkpoint_every=5).checkpoint_steps == [5, 10, 12]
    assert spec(steps=10, checkpoint_every=5).checkpoint_steps == [5, 10]
    assert spec(steps=5, checkpoint_every=5).checkpoint_steps == [5]


def test_lambda_can_wait(make_lm, tmp_path):
    found = train(make_lm(), tmp_path, spec(lambda_begin=6, lambda_steps=2))
    strength = found.log["lambda"].to_numpy()
    assert (strength[:7] == 0).all()
    assert strength[8] == pytest.approx(2, rel=1e-3)
    assert found.log["adversary_loss"].notna().tolist() == [False] * 6 + [True] * 6
