"""Baselines in a vectors audit: their tables, that no verdict counts them, killed and resumed, told everywhere."""

import numpy as np
import pandas as pd
import pytest

from auditcore import jobs, store
from auditcore.cli import main
from auditcore.errors import AuditError, SpecError
from auditcore.report.page import html_report
from auditcore.spec import dump_spec, parse_data, parse_spec
from tests.job_specs import run_spec, tables_of, vectors_spec


def given_spec(home, n=400, **changes) -> dict:
    """Vectors that tell the class; a note that tells it half of the time; a ward that tells nothing."""
    rng = np.random.default_rng(0)
    sex = np.array(["f", "m"])[np.arange(n) % 2]
    vectors = rng.normal(size=(n, 4)).astype(np.float32)
    vectors[:, 0] += 3 * (sex == "m")
    told = np.where(rng.random(n) < 0.5, np.where(sex == "f", "she", "he"), "they")
    note = [f"{w} came with {rng.choice(['fever', 'pain', 'cough'])} number {i}" for i, w in enumerate(told)]
    frame = pd.DataFrame({"sex": sex, "note": note, "ward": rng.choice(["a", "b", "c"], n), "v": list(vectors)})
    frame.to_parquet(home / "v.parquet")
    roles = {"label": "sex", "prompt": "note", "metadata": ["ward"]}
    return {
        "kind": "vectors",
        "vectors": {"path": str(home / "v.parquet")},
        "data": {"path": str(home / "v.parquet"), "roles": roles},
        "probes": ["linear"],
        "seeds": [0],
        "permutations": 19,
        "n_boot": 200,
        "threads": 1,
        **changes,
    }


def test_vectors_are_compared_with_words_and_columns_and_no_verdict_counts_them(home, capsys) -> None:
    run = run_spec(given_spec(home))
    read = run.read("baseline_metrics").query("split == 'bal_test'").set_index("baseline")
    assert read.loc["text", "accuracy"] == pytest.approx(0.75, abs=0.1)
    assert read.loc["metadata", "accuracy_low"] < 0.5 < read.loc["metadata", "accuracy_high"]
    probe = run.read("probe_metrics").query("split == 'bal_test' and seed.isna()").iloc[0]
    moved = run.read("baseline_differences").query("split == 'bal_test'").set_index("baseline")
    for name in ("text", "metadata"):
        assert moved.loc[name, "change"] == pytest.approx(probe["accuracy"] - read.loc[name, "accuracy"])
        assert moved.loc[name, "low"] > 0
        assert moved.loc[name, "n_rows"] == probe["n_eval"]
    assert set(run.read("verdicts")["attacker"]) == {"linear", "all"}
    without = run_spec(given_spec(home, baselines=[]))
    assert not without.has("baseline_metrics")
    for name in ("verdicts", "predictions", "probe_metrics"):
        pd.testing.assert_frame_equal(run.read(name), without.read(name))
    assert "ward" not in run.read("examples").columns  # what the recipient holds is kept in no table
    assert main(["show", str(run.path)]) == 0
    told = capsys.readouterr().out
    assert "Without any vector the prompt's own words name sex correctly for" in told
    assert "more than the metadata alone" in told
    report = html_report(run)
    assert "Does a vector tell more or less of sex than what its recipient already holds?" in report
    assert "over the metadata alone, points" in report


def test_a_model_audit_reads_its_prompt_and_says_when_there_is_no_metadata(home, tiny_llama) -> None:
    run = run_spec(vectors_spec(home, tiny_llama, layers=[-1]))
    read = run.read("baseline_metrics")
    assert set(read["baseline"]) == {"text"}
    assert (read["accuracy"] > 0.6).all()  # one word more of its own in each class
    moved = run.read("baseline_differences")
    assert set(moved["artifact"]) == {"lasttok", "meanpool"}
    assert len(moved) == 4  # two artifacts, two splits


def test_killed_before_and_after_the_baselines_it_ends_with_the_same_tables(home) -> None:
    spec = given_spec(home)
    undisturbed = run_spec(spec)
    for stage in ("baselines", "baselines compared"):
        run = store.create_run(dump_spec(parse_spec(spec)))
        jobs.execute(run)
        done = run.manifest["finished_stages"]
        run.update(status="failed", finished_stages=done[: done.index(stage)])
        jobs.prepare_resume(run)
        jobs.execute(run)
        assert run.status == "done"
        for name, table in tables_of(undisturbed).items():
            pd.testing.assert_frame_equal(run.read(name), table)


def test_the_command_line_names_both(home, capsys) -> None:
    given_spec(home)
    file = str(home / "v.parquet")
    small = ["--probe", "linear", "--label", "sex", "--text", "note", "--metadata", "ward"]
    assert main(["vectors", file, *small, "--out", str(home / "run")]) == 0
    assert "the metadata alone" in capsys.readouterr().out
    assert store.Run(home / "run").manifest["spec"]["data"]["roles"]["metadata"] == ["ward"]


def test_what_cannot_be_metadata_is_refused(home) -> None:
    spec = given_spec(home)
    for column, role in (("sex", "label"), ("note", "prompt")):
        spec["data"]["roles"]["metadata"] = [column]
        with pytest.raises(SpecError, match=f"'{column}' plays the role {role}; it cannot be metadata as well"):
            parse_spec(spec)
    spec["data"]["roles"]["metadata"] = "wards"
    with pytest.raises(AuditError, match="Did you mean 'ward'"):
        jobs.plan(parse_spec(spec))
    with pytest.raises(SpecError, match=r"baseline 'metdata' is unknown\. Did you mean 'metadata'"):
        parse_spec({**spec, "baselines": ["metdata"]})
    with pytest.raises(SpecError, match="compared with exported vectors only"):
        parse_spec({"kind": "membership", "model": {"source": "x", "reference": "y"},
                    "data": {"path": "x", "roles": {"text": "t", "member": "m", "metadata": "a"}}})  # fmt: skip
    assert parse_data({"path": "x", "roles": {"metadata": "a"}}).metadata == ("a",)
