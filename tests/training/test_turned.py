"""The turned gradient: minus lambda times the adversaries' own, clipped apart, and from the vector that is exported."""

import numpy as np
import pytest
import torch

from auditcore.lm.encode import Encoded
from auditcore.lm.pooling import pool
from auditcore.lm.vectors import extract_vectors
from auditcore.training.batches import collate
from auditcore.training.surface_trainer import SurfaceTrainer
from auditcore.training.surfacelora import surfacelora
from tests.training.surface import N, assert_equal, flat, rows, spec, train, trainer


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
