"""Whole audits on tiny models: the right tables, nothing computed twice."""

import numpy as np
import pandas as pd
import pytest

from auditcore import jobs, store
from auditcore.errors import DatasetError, RunError, SpecError
from auditcore.spec import dump_spec, parse_spec
from tests.job_specs import HOSTILE, make_rows, membership_spec, run_spec, tables_of, vectors_spec


def test_membership_writes_every_table(home, pair) -> None:
    run = run_spec(membership_spec(home, pair))
    assert run.status == "done"
    assert run.tables() == [
        "attack_metrics", "blind", "duplicates", "examples", "membership_scores", "roc", "token_stats", "verdicts",
    ]  # fmt: skip
    scores = run.read("membership_scores")
    assert len(scores) == 3 * 40
    ez = scores[scores["attack"] == "ez"].set_index("example_id")
    assert ez.loc["r6", "status"] == "no_evidence"  # the empty text
    assert ez["member"].isna().sum() == len(HOSTILE)
    tokens = run.read("token_stats")
    scored = tokens[tokens["scored"]]
    np.testing.assert_allclose(scored["delta"], scored["logp_target"] - scored["logp_reference"], atol=1e-6)
    # Text comes back exactly: hostile rows are data, nothing else.
    for i in (0, 1, 2):
        assert "".join(tokens.loc[tokens["example_id"] == f"r{i}", "token"]) == HOSTILE[i]
    verdicts = run.read("verdicts").set_index("attacker")
    assert set(verdicts["verdict"]) == {"not resolved"}  # 16 non-members cannot resolve 1 %
    manifest = run.manifest
    assert {"audited", "not_audited"} <= manifest["claim"].keys()
    assert manifest["counts"]["members"] == manifest["counts"]["nonmembers"] == 16
    assert manifest["dtype"] == "float32"
    assert manifest["device"]


def test_store_text_none_keeps_text_out_of_every_file(home, pair) -> None:
    run = run_spec(membership_spec(home, pair, store_text="none"))
    assert set(run.read("token_stats")["token"]) == {""}
    for path in [*run.path.rglob("*"), *store.cache().rglob("*")]:
        if path.is_file():
            content = path.read_bytes()
            assert b"alert(1)" not in content, path
            assert b"stocks" not in content, path


def test_a_second_audit_of_the_same_model_runs_no_model(home, pair, monkeypatch) -> None:
    first = run_spec(membership_spec(home, pair))
    import auditcore.lm.tokens as tokens

    def refuse(*_, **__):
        raise AssertionError("the model ran again")

    monkeypatch.setattr(tokens, "token_statistics", refuse)
    second = run_spec(membership_spec(home, pair, ez_policy="official", attacks=["ez", "reference"]))
    assert second.read("token_stats").equals(first.read("token_stats"))


def test_equal_models_are_said_to_be_equal(home, pair) -> None:
    run = run_spec(membership_spec(home, (pair[1], pair[1])))
    assert any("No difference between target and reference" in w for w in run.manifest["warnings"])


def test_an_adapter_needs_no_reference(home, tiny_adapter) -> None:
    spec = membership_spec(home, (tiny_adapter, ""))
    spec["model"] = {"source": str(tiny_adapter)}
    assert run_spec(spec).status == "done"


def test_a_member_column_that_disagrees_with_the_checkpoint_is_refused_or_warned(home, tiny_llama) -> None:
    rows = make_rows(home / "rows.csv")
    data = {"path": str(rows), "roles": {"text": "text", "member": "member", "id": "id"}}
    tuned = run_spec(
        {"kind": "finetune", "model": {"source": str(tiny_llama)}, "data": data, "validation": 0.2, "max_length": 32,
         "epochs": 1, "threads": 1, "autocast": "none"}
    )  # fmt: skip
    source = tuned.path / "checkpoints" / "last"
    good = run_spec(membership_spec(home, (source, tiny_llama)))
    assert any("chose the checkpoint" in note for note in good.manifest["data"]["notes"])
    assert good.manifest["counts"]["members"] + good.manifest["counts"]["validation_rows"] == 16

    frame = pd.read_csv(rows, dtype=str, keep_default_na=False)
    frame["member"] = frame["member"].map({"1": "0", "0": "1", "": ""})
    frame.to_csv(home / "wrong.csv", index=False)
    spec = membership_spec(home, (source, tiny_llama))
    spec["data"] = {**spec["data"], "path": str(home / "wrong.csv")}
    with pytest.raises(DatasetError, match="member column disagrees"):
        run_spec(spec)
    warned = run_spec({**spec, "on_mismatch": "warn"})
    assert any("member column disagrees" in w for w in warned.manifest["warnings"])


def test_vectors_writes_every_table(home, tiny_llama) -> None:
    run = run_spec(vectors_spec(home, tiny_llama))
    assert run.status == "done"
    assert {"examples", "predictions", "probe_metrics", "projection", "verdicts"} <= set(run.tables())
    metrics = run.read("probe_metrics")
    assert set(metrics["layer"]) == {1, 3}
    averaged = metrics[metrics["seed"].isna()]
    assert len(averaged) == 2 * 2 * 2  # artifacts x layers x splits
    assert (averaged["gap"] == averaged["signed_gap"].abs()).all()
    from safetensors.numpy import load_file

    array = load_file(run.path / "vectors" / "lasttok-layer3.safetensors")["vectors"]
    assert array.dtype == np.float32
    assert array.shape == (len(run.read("examples")), 32)
    assert any("split" in note for note in run.manifest["data"]["notes"])
    assert run.manifest["test_split"]["earlier_looks"] == 0
    again = run_spec(vectors_spec(home, tiny_llama))
    assert again.manifest["test_split"]["earlier_looks"] == 1
    for name, table in tables_of(run).items():
        pd.testing.assert_frame_equal(table, again.read(name))


def test_a_sweep_over_layers_runs_the_model_once_and_keeps_what_it_has(home, tiny_llama, monkeypatch) -> None:
    import auditcore.lm.vectors as exporting

    seen = []
    original = exporting.extract_vectors

    def count(lm, encoded, artifacts, layers, **options):
        seen.append((list(artifacts), list(layers)))
        return original(lm, encoded, artifacts, layers, **options)

    monkeypatch.setattr(exporting, "extract_vectors", count)
    sweep = run_spec(vectors_spec(home, tiny_llama, layers="all", artifacts=["lasttok", "last_k_mean"]))
    assert seen == [(["lasttok", "last_k_mean"], [0, 1, 2, 3])]
    assert set(sweep.read("probe_metrics")["layer"]) == {0, 1, 2, 3}
    planned = jobs.plan(parse_spec(sweep.manifest["spec"]))
    assert planned.bytes == 4 * 32 * planned.rows * 8
    assert any("8 tests are declared: 1 label × 8 vectors" in note for note in planned.notes)
    # Another artifact and another k are new; the rest is there already.
    more = ["lasttok", "maxpool", "last_k_mean"]
    run = run_spec(vectors_spec(home, tiny_llama, layers=[-1, 0], artifacts=more, last_k=2))
    assert seen[1:] == [(["maxpool", "last_k_mean"], [0, 3])]
    assert list(run.read("verdicts")["artifact"].drop_duplicates().dropna()) == more
    from auditcore.datasets.vector_files import open_vectors

    one, two = (open_vectors(r.vectors_path("lasttok", 3)) for r in (sweep, run))
    np.testing.assert_array_equal(one, two)
    one, two = (open_vectors(r.vectors_path("last_k_mean", 3)) for r in (sweep, run))
    assert np.abs(one - two).max() > 0.01
    with pytest.raises(SpecError, match="no layer 7"):
        run_spec(vectors_spec(home, tiny_llama, layers=[7], artifacts=["lasttok"]))


def test_a_sweep_over_layers_holds_one_batch_in_memory(home, tiny_llama, monkeypatch) -> None:
    """Every layer x seven artifacts: the model runs once, and what it makes goes to the disk as it comes."""
    import tracemalloc

    import auditcore.jobs.vectors as audit
    import auditcore.lm.vectors as exporting
    from auditcore.spec import ARTIFACTS

    peaks = []
    original = exporting.extract_vectors

    def traced(lm, encoded, artifacts, layers, *, allocate, **options):
        def peak(allocate) -> int:
            tracemalloc.start()
            found = original(lm, encoded, artifacts, layers, allocate=allocate, **options)
            peaks.append((tracemalloc.get_traced_memory()[1], sum(array.nbytes for array in found.values())))
            tracemalloc.stop()
            return found

        peak(None)  # the same without files: what the test would see if they were not used
        return peak(allocate)

    monkeypatch.setattr(exporting, "extract_vectors", traced)
    monkeypatch.setattr(audit, "_probe", lambda *_: None)
    spec = vectors_spec(home, tiny_llama, layers="all", artifacts=list(ARTIFACTS), max_length=12, baselines=[])
    frame = pd.concat([pd.read_csv(home / "labels.csv")] * 10, ignore_index=True)
    frame["prompt"] += [f" {i}" for i in range(len(frame))]
    frame.to_csv(home / "labels.csv", index=False)
    run = store.create_run(dump_spec(parse_spec(spec)))
    with pytest.raises(RunError, match="no table 'probe_metrics'"):  # no probe was fitted
        jobs.execute(run)
    (in_memory, size), (on_disk, _) = peaks
    assert size == 4 * (4 * 8 * 32) * len(run.read("examples"))  # layers x artifacts (concat twice) x width
    assert in_memory > size
    assert on_disk < size / 5
    assert len(list((run.path / "vectors").iterdir())) == 4 * 7


def test_vectors_the_user_has_are_audited_without_a_model(home, monkeypatch) -> None:
    rng = np.random.default_rng(0)
    sex = np.array(["f", "m"])[rng.integers(0, 2, 300)]
    vectors = rng.normal(size=(300, 8)) + 2.0 * (sex == "m")[:, None]
    ids = [f"s{i}" for i in range(300)]
    pd.DataFrame({"id": ids[::-1], "embedding": list(vectors[::-1])}).to_parquet(home / "v.parquet")
    pd.DataFrame({"id": ids, "sex": sex}).to_csv(home / "labels.csv", index=False)
    spec = {
        "kind": "vectors",
        "vectors": {"path": str(home / "v.parquet"), "column": "embedding"},
        "data": {"path": str(home / "labels.csv"), "roles": {"label": "sex", "id": "id"}},
        "probes": ["linear"],
        "seeds": [0],
        "permutations": 19,
        "n_boot": 200,
    }
    assert 200 < jobs.plan(parse_spec(spec)).rows <= 300  # balancing leaves some out
    run = run_spec(spec)
    verdicts = run.read("verdicts")
    assert set(verdicts["verdict"]) == {"over budget"}
    assert set(verdicts["artifact"]) == {"embedding"}


def test_vectors_of_one_number_are_audited(home) -> None:
    rng = np.random.default_rng(0)
    sex = np.array(["f", "m"])[rng.integers(0, 2, 200)]
    pd.DataFrame({"sex": sex}).to_csv(home / "labels.csv", index=False)
    np.save(home / "v.npy", rng.normal(size=(200, 1)) + 9 * (sex == "m")[:, None])
    data = {"path": str(home / "labels.csv"), "roles": {"label": "sex"}}
    spec = {"kind": "vectors", "vectors": {"path": str(home / "v.npy")}, "data": data, "probes": ["linear"],
            "seeds": [0], "permutations": 19, "n_boot": 100}  # fmt: skip
    run = run_spec(spec)
    assert set(run.read("verdicts")["verdict"]) == {"over budget"}
    assert run.read("projection").empty
