"""SurfaceLoRA on tiny models: what trains, what the vector is, what lambda 0 equals, what a kill changes: nothing."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file

from auditcore.errors import SpecError
from auditcore.lm.encode import Encoded
from auditcore.lm.pooling import pool
from auditcore.lm.vectors import extract_vectors
from auditcore.spec import SurfaceLoraSpec, dump_spec, parse_spec
from auditcore.training import surfacelora as module
from auditcore.training.batches import collate
from auditcore.training.finetune import finetune
from auditcore.training.prompts import Labels, Prompts
from auditcore.training.surface_trainer import SurfaceTrainer
from auditcore.training.surfacelora import LOG_COLUMNS, surfacelora
from auditcore.training.turned import Turned

N = 60
NONE = np.zeros(0, dtype=np.int64)


class Stop(Exception):
    """A training cut off from outside."""


def rows(n: int = N, leak: bool = True) -> tuple[Encoded, Labels, list[str]]:
    """Prompts whose last token tells the label, and targets that do not."""
    rng = np.random.default_rng(0)
    codes = np.arange(n) % 3
    ids, prompts = [], []
    for k in codes:
        prompt = rng.integers(10, 60, rng.integers(5, 14))
        if leak:
            prompt[-1] = k + 1
        target = rng.integers(10, 60, rng.integers(2, 6))
        ids.append(np.concatenate([prompt, target, [60]]).astype(np.int64))
        prompts.append(len(prompt))
    no = np.zeros(n, dtype=bool)
    encoded = Encoded(ids, np.array(prompts, dtype=np.int64), no, no, has_target=True)
    other = np.where(np.arange(n) % 5 == 0, -1, np.arange(n) % 2)
    labels = Labels(("colour", "shape"), np.stack([codes, other], axis=1), (("a", "b", "c"), ("x", "y")))
    return encoded, labels, [f"s{i}" for i in range(n)]


def spec(**changes) -> SurfaceLoraSpec:
    raw = {
        "kind": "surfacelora",
        "model": {"source": "tiny"},
        "data": {"path": "rows.csv", "roles": {"prompt": "p", "target": "t", "label": ["colour", "shape"]}},
        "steps": 12,
        "checkpoint_every": 5,
        "batch_size": 4,
        "learning_rate": 0.01,
        "lora": {"r": 4, "alpha": 8, "dropout": 0.1},
        "discriminator": {"rows": 10, "bank_rows": 12, "bank_every": 4, "hidden": 16, "start_updates": 5},
        "threads": 1,
        "autocast": "none",
        **changes,
    }
    found = parse_spec(raw)
    assert isinstance(found, SurfaceLoraSpec)
    return found


def train(lm, out: Path, wanted: SurfaceLoraSpec | None = None, **more):
    encoded, labels, groups = rows()
    return surfacelora(lm, encoded, np.arange(40), labels, groups, wanted or spec(), out, **more)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "adapter_model.safetensors")


def assert_equal(one: dict, two: dict) -> None:
    assert one.keys() == two.keys()
    for name in one:
        assert torch.equal(one[name], two[name]), name


def trainer(lm, wanted: SurfaceLoraSpec, out: Path, exported: Encoded | None = None) -> SurfaceTrainer:
    encoded, labels, groups = rows()
    task = module.make_task(lm, encoded, np.arange(40), NONE, wanted, None, None)
    usable = encoded.prompt_lengths > 0
    prompts = Prompts(labels, groups, usable, wanted.discriminator, wanted.seed)
    layer = module.resolve_layers([wanted.layer], module.depth(lm), "tiny")[0]
    return SurfaceTrainer(task, lm, out, "none", labels, prompts, layer, exported or encoded.prompts())


# --- lambda 0, and what may train ---


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


# --- the gradient ---


def flat(grads) -> torch.Tensor:
    return torch.cat([g.flatten() for g in grads])


def gradient_of_adversaries(one: SurfaceTrainer, parts: list[np.ndarray]) -> torch.Tensor:
    """The plain gradient of the discriminators' loss, the way a textbook has it: one pass per row, no reversal."""
    prompts, encoded = one.prompts, one.task.encoded
    assert prompts is not None
    lm_rows = np.concatenate(parts)
    codes = prompts.turned(lm_rows, one.window)
    extra = prompts.draw(one.window, one.drawn, one.spec.discriminator.rows - int((codes != -1).any(axis=1).sum()))
    every, known = np.concatenate([lm_rows, extra]), np.concatenate([codes, prompts.codes[extra]])
    total = torch.zeros(())
    for cell in one.cells:
        for adversary in cell.adversaries:
            for place, row in enumerate(every):
                code = known[place, cell.attribute]
                if code == -1:
                    continue
                ids = torch.from_numpy(encoded.ids[row][: encoded.prompt_lengths[row]])[None]
                hidden = one.causal.base_model(input_ids=ids).last_hidden_state
                vector = pool(hidden, torch.ones_like(ids, dtype=torch.bool), [cell.artifact])[cell.artifact]
                losses, _ = adversary.losses(vector, torch.tensor([code]))
                total = total + losses.sum() / (known[:, cell.attribute] != -1).sum() / len(cell.adversaries)
    return flat(torch.autograd.grad(total, list(one.parameters.values())))


@pytest.mark.parametrize("targets", [["lasttok"], ["meanpool"], ["lasttok", "meanpool"]])
def test_the_turned_gradient_is_minus_lambda_times_the_adversaries_own(make_lm, tmp_path, targets):
    wanted = spec(
        targets=targets,
        adversary=["mlp", "ridge", "moment"],
        lora={"r": 4, "alpha": 8, "dropout": 0.0},
        max_reversed_norm=1e9,
        max_grad_norm=1e9,
        lambda_steps=3,
        **{"lambda": 2.5},
    )
    one = trainer(make_lm(), wanted, tmp_path)
    one.causal.train()
    for step, parts in enumerate(one.task.epoch(0)[:3]):  # λ is 0 at the first step
        one._step(step, parts)
    parts = one.task.epoch(0)[3]
    step = 7  # past the warm-up, in the middle of a window
    drawn, window = one.drawn, one.window
    alone = {name: p.detach().clone() for name, p in one.parameters.items()}
    one._prepare(step)
    one.drawn = drawn if window == one.window else 0
    plain = gradient_of_adversaries(one, parts)
    state = {id(p): p.detach().clone() for cell in one.cells for a in cell.adversaries for p in a.parameters()}
    one._gradients(step, parts)
    both = flat([p.grad for p in one.parameters.values()])
    one.optimizer.zero_grad()
    # Without the adversaries: what is left is the summaries' gradient.
    prompts, one.prompts = one.prompts, None
    one._gradients(step, parts)
    utility = flat([p.grad for p in one.parameters.values()])
    one.prompts = prompts
    torch.testing.assert_close(both - utility, -2.5 * plain, rtol=1e-4, atol=1e-6)
    assert float(plain.norm()) > 1e-4
    assert_equal(alone, {name: p.detach() for name, p in one.parameters.items()})
    assert any(not torch.equal(state[id(p)], p) for c in one.cells for a in c.adversaries for p in a.parameters())


def test_the_two_parts_are_clipped_apart_and_logged_as_they_were(make_lm, tmp_path):
    wanted = spec(max_reversed_norm=1e-3, max_grad_norm=0.05, lambda_steps=1)
    one = trainer(make_lm(), wanted, tmp_path)
    one.causal.train()
    one._step(0, one.task.epoch(0)[0])
    row = one._gradients(5, one.task.epoch(0)[1])
    assert row["lora_grad_norm"] > 0.05
    assert row["reversed_grad_norm"] > 1e-3
    assert row["grad_norm"] <= 0.0511
    assert float(flat([p.grad for p in one.parameters.values()]).norm()) == pytest.approx(row["grad_norm"], rel=1e-5)


@pytest.mark.parametrize("architecture", ["llama", "gpt2", "gptj", "qwen2"])
@pytest.mark.parametrize("layer", [-1, 1])
def test_the_vector_in_training_is_the_vector_that_is_exported(make_lm, tmp_path, architecture, layer):
    lm = make_lm(architecture)
    wanted = spec(targets=["lasttok", "meanpool", "concat"], layer=layer, audit=["lasttok", "meanpool", "concat"])
    one = trainer(lm, wanted, tmp_path)
    one.causal.train()
    for step, parts in enumerate(one.task.epoch(0)[:4]):
        one._step(step, parts)
    one.causal.eval()
    some = np.array([3, 11, 0, 25, 8])
    batch = collate(one.task.encoded, some)
    with one._seeing() as seen:
        _, last = one.loss.with_hidden(batch)
    hidden = seen.get(one.layer, last)
    with_targets = pool(hidden, one._mask(some, last.shape[1]), wanted.targets)
    hidden, mask = one._prompts_only(some)
    without = pool(hidden, mask, wanted.targets)
    exported = extract_vectors(lm, one.task.encoded.select(some), wanted.targets, [layer])
    for name in wanted.targets:
        wanted_array = torch.from_numpy(exported[name, one.layer])
        torch.testing.assert_close(with_targets[name].detach(), wanted_array, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(without[name].detach(), wanted_array, rtol=1e-4, atol=1e-4)
    saved = train(make_lm(architecture), tmp_path / "saved", wanted)
    assert saved.checkpoints[12].is_dir()


def longer(encoded: Encoded, which: np.ndarray) -> Encoded:
    """Prompts as they are exported, where some were cut inside the row: these have two tokens more in the middle."""
    ids = [np.insert(p, 2, [9, 9]) if cut else p for p, cut in zip(encoded.prompts().ids, which, strict=True)]
    lengths = np.array([len(p) for p in ids], dtype=np.int64)
    return Encoded(ids, lengths, which, np.zeros(len(ids), dtype=bool))


def test_a_prompt_cut_for_its_summary_is_read_alone_as_it_is_exported(make_lm, tmp_path):
    encoded, labels, groups = rows()
    cut = np.arange(N) % 3 == 0
    lm = make_lm()
    one = trainer(lm, spec(), tmp_path, longer(encoded, cut))
    one.causal.train()
    for step, parts in enumerate(one.task.epoch(0)[:3]):
        one._step(step, parts)
    some = np.flatnonzero(cut)[:5]
    assert (one.usable_codes(some) == -1).all()
    assert (one.usable_codes(np.flatnonzero(~cut & ~one.prompts.held(one.window))) != -1).any(axis=1).all()
    one.causal.eval()
    hidden, mask = one._prompts_only(some)
    exported = extract_vectors(lm, one.exported.select(some), ["lasttok"], [-1])["lasttok", one.layer]
    inside = extract_vectors(lm, encoded.select(some), ["lasttok"], [-1])["lasttok", one.layer]
    assert np.abs(exported - inside).max() > 1e-3
    torch.testing.assert_close(
        pool(hidden, mask, ["lasttok"])["lasttok"].detach(), torch.from_numpy(exported), rtol=1e-4, atol=1e-4
    )
    bank = torch.cat([block.vectors["lasttok"] for block in one.bank.recent])
    assert 20 <= len(bank) <= 24  # as many prompts a step as asked for; at the first, lambda is 0: four at most
    found = surfacelora(
        make_lm(), encoded, np.arange(40), labels, groups, spec(), tmp_path / "run", exported=longer(encoded, cut)
    )
    assert any("14 of 40 training rows have a prompt that is cut" in note for note in found.notes)
    again = train(make_lm(), tmp_path / "run")  # other prompts are another training
    assert again.resumed_from == 0


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


# --- resuming ---


def stop_at(k: int):
    def on_step(step, total, metrics):
        if step == k:
            raise Stop

    return on_step


@pytest.mark.parametrize("stops", [(1,), (3, 6), (5,), (10, 11)])
def test_a_resumed_training_ends_with_the_bits_of_an_undisturbed_one(make_lm, tmp_path, stops):
    wanted = spec(adversary=["mlp", "ridge", "moment"], targets=["lasttok", "meanpool"])
    whole = train(make_lm(), tmp_path / "whole", wanted)
    cut = tmp_path / "cut"
    for k in stops:
        with pytest.raises(Stop):
            train(make_lm(), cut, wanted, on_step=stop_at(k), state_seconds=0)
    resumed = train(make_lm(), cut, wanted)
    assert resumed.resumed_from == stops[-1]
    for step in (5, 10, 12):
        assert_equal(weights(whole.checkpoints[step]), weights(resumed.checkpoints[step]))
    pd.testing.assert_frame_equal(whole.log, resumed.log)
    again = train(make_lm(), cut, wanted)
    assert again.resumed_from == 12


def test_a_checkpoint_is_a_state_to_resume_from_and_looking_at_it_changes_nothing(make_lm, tmp_path):
    whole = train(make_lm(), tmp_path / "whole")
    shown = []

    def look(step, folder, model):
        assert not model.causal.training
        assert (folder / "adapter_model.safetensors").is_file()
        shown.append(step)
        torch.manual_seed(step)
        torch.rand(100)
        np.random.seed(step)
        if step == 10 and len(shown) == 2:
            raise Stop

    with pytest.raises(Stop):
        train(make_lm(), tmp_path / "cut", on_checkpoint=look)
    resumed = train(make_lm(), tmp_path / "cut", on_checkpoint=look)
    assert resumed.resumed_from == 10
    assert shown == [5, 10, 12]
    assert_equal(weights(whole.checkpoints[12]), weights(resumed.checkpoints[12]))


def test_kill_minus_nine_at_random_steps(make_lm, tmp_path):
    code = f"""
import os, signal, sys
sys.path[:0] = [{str(Path(__file__).parents[2])!r}]
import torch
from pathlib import Path
from tests.training.conftest import build_lm
from tests.training.test_surfacelora import train
torch.set_num_threads(1)
stop = int(sys.argv[1])
def on_step(step, total, metrics):
    if step == stop:
        os.kill(os.getpid(), signal.SIGKILL)
train(build_lm(), Path({str(tmp_path / "cut")!r}), on_step=on_step, state_seconds=0)
"""
    whole = train(make_lm(), tmp_path / "whole")
    steps = np.sort(np.random.default_rng().choice(np.arange(1, 12), 2, replace=False))
    for step in steps:
        done = subprocess.run([sys.executable, "-c", code, str(step)], env={**os.environ, "OMP_NUM_THREADS": "1"})
        assert done.returncode == -signal.SIGKILL, steps
    resumed = train(make_lm(), tmp_path / "cut")
    assert resumed.resumed_from >= steps[-1] - 1
    assert_equal(weights(whole.checkpoints[12]), weights(resumed.checkpoints[12]))


def test_how_checkpoints_are_measured_does_not_make_another_training(make_lm, tmp_path):
    with pytest.raises(Stop):
        train(make_lm(), tmp_path, on_step=stop_at(4), state_seconds=0)
    other = parse_spec({**dump_spec(spec()), "probes": ["linear"], "rouge_rows": 10, "budget": 0.1})
    assert isinstance(other, SurfaceLoraSpec)
    assert train(make_lm(), tmp_path, other).resumed_from == 4


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
