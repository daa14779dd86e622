"""A run on licensed notes: nothing of the rows stands outside its folder."""

from tests.clinical_files import discharge_me
from tests.job_specs import run_spec


def test_no_copy_outside_the_run_folder(home, tiny_llama, monkeypatch) -> None:
    folder = discharge_me(home / "licensed", 400)
    run = run_spec(
        {"kind": "vectors", "model": {"source": str(tiny_llama)}, "threads": 1, "max_length": 48, "n_boot": 100,
         "data": {"path": str(folder), "clinical": {"source": "discharge_me"}}, "artifacts": ["lasttok"],
         "probes": ["linear"], "seeds": [0], "permutations": 19, "defences": ["none", "leace"],
         "generate": {"rows": 20, "max_new_tokens": 4, "embed": False}}
    )  # fmt: skip
    assert run.status == "done"
    assert set(run.read("verdicts")["attribute"]) == {"recorded_race"}
    notes = "\n".join(run.manifest["data"]["notes"])
    assert "no category holds ('MARTIAN'" in notes
    assert run.read("generations")["reference"].str.len().min() > 0
    secret = b"History of Present Illness"
    others = [p for p in home.rglob("*") if p.is_file() and folder not in p.parents and run.path not in p.parents]
    assert all(secret not in p.read_bytes() and b"DS-" not in p.read_bytes() for p in others)
    assert not (home / "runs" / "cache").exists()
    assert (run.path / "cache").is_dir()
