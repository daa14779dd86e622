"""Token statistics: golden values, padding, splitting, edge cases."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from auditcore.errors import ModelError
from auditcore.lm.encode import Encoded, encode
from auditcore.lm.forward import can_split, in_blocks
from auditcore.lm.load import LM, load_model, load_pair
from auditcore.lm.tokens import measure, token_frame, token_statistics
from auditcore.spec import ModelSpec
from tests.tiny_models import ARCHITECTURES, TEXTS, build_adapter

GOLDEN = Path(__file__).parents[1] / "golden"


class FakeCausal(torch.nn.Module):
    """A causal LM that answers with given logits: its body returns them, its head is the identity matrix."""

    def __init__(self, rows: list[list[int]], logits: list[np.ndarray]) -> None:
        super().__init__()
        vocabulary = logits[0].shape[1]
        self.config = SimpleNamespace(vocab_size=vocabulary)
        self.rows, self.given = rows, [torch.from_numpy(array) for array in logits]
        self.head = torch.nn.Linear(vocabulary, vocabulary, bias=False)
        self.head.weight.data = torch.eye(vocabulary)
        self.base_model = FakeBody(self)

    def get_output_embeddings(self):
        return self.head

    def get_input_embeddings(self):
        return None

    def forward(self, input_ids, attention_mask):
        hidden = self.base_model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        return SimpleNamespace(logits=self.head(hidden))


class FakeBody:
    def __init__(self, owner: FakeCausal) -> None:
        self.owner = owner

    def __call__(self, input_ids, attention_mask):
        out = torch.full((*input_ids.shape, self.owner.head.in_features), 7.0)
        for i, (ids, mask) in enumerate(zip(input_ids.tolist(), attention_mask.tolist(), strict=True)):
            real = [token for token, known in zip(ids, mask, strict=True) if known]
            row = next(k for k, known in enumerate(self.owner.rows) if known[: len(real)] == real)
            given = self.owner.given[row][: len(real)]
            out[i, [k for k, known in enumerate(mask) if known][: len(given)]] = given
        return SimpleNamespace(last_hidden_state=out)

    def forward(self, input_ids, attention_mask):
        raise NotImplementedError


def fake_lm(rows, logits) -> LM:
    return LM(FakeCausal(rows, logits), None, "fake", "fake", "folder", "float32", "cpu")


def as_encoded(rows) -> Encoded:
    n = len(rows)
    lengths = np.array([len(row) for row in rows])
    return Encoded([np.array(row, dtype=np.int64) for row in rows], lengths, np.zeros(n, bool), np.zeros(n, bool))


def real_rows(inputs, key):
    mask = np.array(inputs["attention_mask"], dtype=bool)
    rows = [np.array(ids)[keep].tolist() for ids, keep in zip(inputs["token_ids"], mask, strict=True)]
    # logits column t predicts column t + 1; the last one is not given
    logits = []
    for given, keep in zip(inputs[key], mask, strict=True):
        columns = np.flatnonzero(keep)[:-1]
        logits.append(np.array(given, dtype=np.float32)[columns])
    return rows, logits


def golden(name):
    return json.loads((GOLDEN / name).read_text())["cases"]


@pytest.mark.parametrize("case", golden("ez_pipeline_from_logits.json"), ids=lambda case: case["name"])
@pytest.mark.parametrize("side", ["right", "left"])
def test_log_probs_and_errors_of_the_authors_pipeline(case, side):
    rows, target = real_rows(case["inputs"], "target_logits")
    _, reference = real_rows(case["inputs"], "reference_logits")
    stats = token_statistics(
        fake_lm(rows, target), fake_lm(rows, reference), as_encoded(rows), batch_size=2, padding_side=side
    )
    expected = case["expected"]["ez"]
    for i in range(len(rows)):
        keep = np.array(expected["mask"][i], dtype=bool) & np.array(
            case["inputs"]["attention_mask"][i][:-1], dtype=bool
        )
        part = slice(stats.offsets[i] + 1, stats.offsets[i + 1])
        np.testing.assert_allclose(stats.logp_target[part], np.array(expected["target_logp"][i])[keep], rtol=1e-5)
        wrong = np.array(expected["top1_ids"][i]) != np.array(expected["target_ids"][i])
        np.testing.assert_array_equal(stats.is_error[part], wrong[keep])
        assert stats.scored[part].all()
        assert not stats.scored[stats.offsets[i]]
        assert np.isnan(stats.logp_target[stats.offsets[i]])


@pytest.mark.parametrize("case", golden("loss_padding.json"), ids=lambda case: case["name"])
def test_loss_of_rows_scored_alone(case):
    rows, logits = real_rows(case["inputs"], "logits")
    stats = token_statistics(fake_lm(rows, logits), None, as_encoded(rows), batch_size=8)
    means = [
        stats.logp_target[stats.offsets[i] : stats.offsets[i + 1]][
            stats.scored[stats.offsets[i] : stats.offsets[i + 1]]
        ]
        for i in range(len(rows))
    ]
    np.testing.assert_allclose([m.mean() for m in means], case["expected"]["fast"]["mean_logp"], rtol=1e-5)


def test_measure_against_log_softmax_and_ties_go_to_the_lowest_id():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(50, 9001, generator=generator) * 5  # three blocks over the vocabulary
    ids = torch.randint(0, 9001, (50,), generator=generator)
    ids[:10] = logits[:10].argmax(dim=1)
    logits[10, :] = 0.0
    ids[10] = 0  # a tie that the lowest id wins
    logits[11, :] = 0.0
    ids[11] = 1  # and one that it loses, within a block
    logits[12, :] = 0.0
    ids[12] = 9000  # and across blocks
    logits[13, 4096:8192] = -torch.inf  # a whole block without probability
    logits[14, ids[14]] = -torch.inf
    expected = logits.double().log_softmax(dim=1)
    wrong = logits.argmax(dim=1) != ids
    logp, error, mean, deviation = measure(in_blocks(logits.clone()), ids, moments=True)
    plain, plain_error = measure(in_blocks(logits.clone()), ids)
    torch.testing.assert_close(logp.double(), expected.gather(1, ids[:, None])[:, 0], rtol=1e-6, atol=1e-5)
    torch.testing.assert_close(plain, logp, rtol=1e-6, atol=1e-5)
    assert torch.equal(error, wrong)
    assert torch.equal(plain_error, wrong)
    log_p = expected.clamp_min(-1e4)
    mu = (log_p.exp() * log_p).sum(dim=1)
    sigma = ((log_p.exp() * log_p.square()).sum(dim=1) - mu.square()).sqrt()
    torch.testing.assert_close(mean.double(), mu, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(deviation.double(), sigma, rtol=1e-3, atol=1e-3)


TEXT_ROWS = [*TEXTS, "", "a", "ab", TEXTS[0][:20], TEXTS[1] + TEXTS[2], "z " * 40]


def naive(lm, encoded):
    """One row at a time, the whole model, log_softmax in float64."""
    values = []
    with torch.inference_mode(), lm.active():
        for ids in encoded.ids:
            row = np.full(len(ids), np.nan)
            if len(ids) > 1:
                logits = lm.model(input_ids=torch.from_numpy(ids)[None]).logits[0, :-1].double()
                row[1:] = logits.log_softmax(dim=1).gather(1, torch.from_numpy(ids)[1:, None])[:, 0].numpy()
            values.append(row)
    return np.concatenate(values)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_alone_in_a_batch_left_and_right_padded(tiny_folders, architecture):
    lm = load_model(ModelSpec(source=str(tiny_folders[architecture])))
    encoded = encode(lm.tokenizer, "{t}", {"t": TEXT_ROWS}, None, 64)
    expected = naive(lm, encoded)
    assert np.nanstd(expected) > 0.5
    assert can_split(lm, encoded.ids[0])
    for batch_size, side in ((1, "right"), (4, "right"), (16, "right"), (4, "left"), (16, "left")):
        stats = token_statistics(lm, lm, encoded, batch_size=batch_size, padding_side=side)
        np.testing.assert_allclose(stats.logp_target, expected, atol=1e-4, rtol=0)
        np.testing.assert_array_equal(stats.logp_target, stats.logp_reference)
        assert stats.scored.sum() == sum(max(len(row) - 1, 0) for row in encoded.ids)
        np.testing.assert_array_equal(np.isnan(stats.logp_target), ~stats.scored)
        np.testing.assert_array_equal(np.concatenate(encoded.ids), stats.token_id)


def test_rows_of_no_and_one_token_only(tiny_llama):
    lm = load_model(ModelSpec(source=str(tiny_llama)))
    called = []
    stats = token_statistics(lm, lm, as_encoded([[], [5]]), on_batch=lambda *seen: called.append(seen))
    assert stats.offsets.tolist() == [0, 0, 1]
    assert not stats.scored.any()
    assert called == []
    assert token_statistics(lm, None, as_encoded([])).offsets.tolist() == [0]


def test_target_positions_only_unless_all_are_asked_for(tiny_llama):
    lm = load_model(ModelSpec(source=str(tiny_llama)))
    encoded = encode(lm.tokenizer, "{p}", {"p": ["Fever and", "", "cough"]}, ["cough.", "a dog", ""], 64)
    stats = token_statistics(lm, None, encoded)
    every = token_statistics(lm, None, encoded, score="all")
    for i, start in enumerate(encoded.prompt_lengths):
        row = stats.scored[stats.offsets[i] : stats.offsets[i + 1]]
        assert not row[: max(start, 1)].any()
        assert row[max(start, 1) :].all()
    assert every.scored.sum() == sum(max(n - 1, 0) for n in encoded.lengths)
    np.testing.assert_allclose(stats.logp_target[stats.scored], every.logp_target[stats.scored], atol=1e-4)


def test_adapter_on_the_reference_shares_one_base(tiny_llama, tiny_adapter):
    pair = load_pair(ModelSpec(source=str(tiny_adapter), reference=str(tiny_llama)))
    assert pair.shared
    assert pair.reference.model is pair.target.model
    base = load_model(ModelSpec(source=str(tiny_llama)))
    assert pair.reference.fingerprint == base.fingerprint
    assert pair.target.fingerprint != base.fingerprint
    encoded = encode(base.tokenizer, "{t}", {"t": TEXT_ROWS}, None, 48)
    stats = token_statistics(pair.target, pair.reference, encoded, batch_size=3)
    np.testing.assert_allclose(stats.logp_reference, naive(base, encoded), atol=1e-4)
    np.testing.assert_allclose(stats.logp_target, naive(pair.target, encoded), atol=1e-4)
    assert np.nanmax(np.abs(stats.logp_target - stats.logp_reference)) > 0.1


@pytest.mark.parametrize("bias", ["lora_only", "all"])
def test_an_adapter_that_changes_biases_does_not_stand_in_for_its_base(bias, tmp_path, tiny_folders):
    base = tiny_folders["gpt2"]
    adapter = build_adapter(tmp_path / "adapter", base, bias=bias)
    pair = load_pair(ModelSpec(source=str(adapter), reference=str(base)))
    assert not pair.shared
    encoded = encode(pair.target.tokenizer, "{t}", {"t": TEXT_ROWS}, None, 48)
    stats = token_statistics(pair.target, pair.reference, encoded, batch_size=3)
    before = token_statistics(load_model(ModelSpec(source=str(base))), None, encoded, batch_size=3)
    np.testing.assert_allclose(stats.logp_reference, before.logp_target, atol=1e-4)


def test_scaled_or_capped_logits_take_the_whole_model(tmp_path, tiny_llama, one_thread):
    from transformers import CohereConfig, CohereForCausalLM, Gemma2Config, Gemma2ForCausalLM

    small = {
        "vocab_size": 384,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "initializer_range": 0.5,
    }
    tokenizer = load_model(ModelSpec(source=str(tiny_llama))).tokenizer
    capped = Gemma2ForCausalLM(Gemma2Config(**small, head_dim=16, final_logit_softcapping=2.0)).eval()
    scaled = CohereForCausalLM(CohereConfig(**small, logit_scale=0.3)).eval()
    encoded = encode(tokenizer, "{t}", {"t": TEXT_ROWS}, None, 32)
    for model in (capped, scaled):
        lm = LM(model, tokenizer, "tiny", "tiny", "folder", "float32", "cpu")
        assert not can_split(lm, encoded.ids[0])
        for side in ("right", "left"):
            stats = token_statistics(lm, None, encoded, batch_size=4, padding_side=side)
            np.testing.assert_allclose(stats.logp_target, naive(lm, encoded), atol=1e-4)


def test_low_precision_keeps_logits_in_float32(tiny_folders):
    for architecture in ARCHITECTURES:
        source = str(tiny_folders[architecture])
        full = load_model(ModelSpec(source=source))
        encoded = encode(full.tokenizer, "{t}", {"t": TEXT_ROWS}, None, 48)
        exact = token_statistics(full, None, encoded).logp_target
        for spec in (ModelSpec(source=source, precision="bf16"), ModelSpec(source=source, dtype="bfloat16")):
            lm = load_model(spec)
            assert lm.causal.base_model.get_input_embeddings().weight.dtype == (
                torch.float32 if spec.precision == "bf16" else torch.bfloat16
            )
            assert can_split(lm, encoded.ids[0])
            found = token_statistics(lm, None, encoded).logp_target
            np.testing.assert_allclose(found, exact, atol=0.4)
            # bfloat16 log-probs near -6 would lie on a grid of 1/32
            on_grid = np.nanmean(np.isclose(found * 32, np.round(found * 32), atol=1e-4))
            assert on_grid < 0.1


def test_identical_token_ids_or_an_error(tiny_llama, tmp_path):
    from tests.tiny_models import build_model, build_tokenizer

    other = build_tokenizer(300)
    build_model("llama", len(other)).save_pretrained(tmp_path)
    other.save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="different tokenizers"):
        load_pair(ModelSpec(source=str(tiny_llama), reference=str(tmp_path)))
    lm = load_model(ModelSpec(source=str(tmp_path)))
    with pytest.raises(ModelError, match="embeds 300 tokens"):
        token_statistics(lm, None, as_encoded([[1, 350]]))


def test_rows_beyond_the_positions_are_an_error(tiny_llama):
    lm = load_model(ModelSpec(source=str(tiny_llama)))
    with pytest.raises(ModelError, match="257 tokens, but it has 256 positions"):
        token_statistics(lm, None, as_encoded([[1] * 257]))


def test_progress_and_order(tiny_llama):
    lm = load_model(ModelSpec(source=str(tiny_llama)))
    seen = []
    token_statistics(lm, None, as_encoded([[1, 2], [3], [4, 5, 6]]), batch_size=1, on_batch=lambda *x: seen.append(x))
    assert seen == [(1, 2), (2, 2)]


def test_token_frame(tiny_llama):
    lm = load_model(ModelSpec(source=str(tiny_llama)))
    texts = ["the quick <b>fox</b>\n 東京 🙂", "", "=cmd()  two  blanks"]
    encoded = encode(lm.tokenizer, "{t}", {"t": texts}, None, 64)
    stats = token_statistics(lm, None, encoded)
    frame = token_frame(stats, ["a", "b", "c"], lm.tokenizer, "full")
    assert list(frame.columns) == [
        "example_id",
        "position",
        "token_id",
        "token",
        "logp_target",
        "logp_reference",
        "delta",
        "is_error",
        "scored",
    ]
    assert "".join(frame[frame.example_id == "c"].token) == texts[2]
    assert "".join(frame[frame.example_id == "a"].token).startswith("the quick <b>fox</b>\n ")
    assert set(frame.example_id) == {"a", "c"}
    assert frame.logp_reference.isna().all()
    assert frame.delta.isna().all()
    hidden = token_frame(stats, ["a", "b", "c"], lm.tokenizer, "none")
    assert set(hidden.token) == {""}
