"""The study of SurfaceLoRA: what it asks for, and all of it end to end on a tiny model."""

from pathlib import Path

import pytest
import yaml

from auditcore import decisions, records, store
from auditcore.errors import RunError, SpecError
from studies import surfacelora
from studies.surfacelora import Study
from tests.jobs.test_surfacelora_jobs import surface_spec


def test_the_study_names_what_it_must(tmp_path) -> None:
    study = Study(tmp_path)
    strengths = {}
    for name, settings in study.runs.items():
        if settings["lambda"] == "best":
            with pytest.raises(RunError, match="surfacelora-lasttok-2"):
                study.spec(name)
            continue
        spec = study.spec(name)
        strengths[name] = spec.strength
        assert len(spec.checkpoint_steps) >= 6
        assert spec.rouge_rows == 200
        assert set(spec.audit) >= {"lasttok", "meanpool", "concat"}
        assert spec.data.labels == ("recorded_race",)
        assert (Path(surfacelora.HERE).parent / spec.data.path).is_file()
    assert strengths["utility"] == 0
    assert len({v for v in strengths.values() if v > 0}) >= 3
    chosen = [name for choice in study.reveals for name in choice["runs"]]
    assert len(chosen) == len(set(chosen))  # no run's test rows are asked for twice
    assert set(study.runs) - set(chosen) == {"lasttok-1", "lasttok-4"}  # compared on bal_val only
    with pytest.raises(SpecError, match="Did you mean 'both'"):
        study.spec("bot")


def test_a_study_trains_chooses_reveals_and_does_nothing_twice(tmp_path, tiny_llama, monkeypatch, capsys) -> None:
    monkeypatch.setenv("AUDIT_HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    shared = surface_spec(tmp_path, tiny_llama, steps=2, checkpoint_every=1, name="tiny", rouge_rows=4)
    runs = {
        "weak": {"lambda": 1},
        "strong": {"lambda": 3},
        "both": {"lambda": "best", "targets": ["lasttok", "meanpool"]},
    }
    declared = [
        {"runs": ["weak", "strong"], "artifacts": ["lasttok"], "budget": 0.6, "shown": [0.001]},
        {"runs": ["both"], "artifacts": ["lasttok", "meanpool"], "budget": 0.6},
    ]
    file = tmp_path / "tiny.yaml"
    file.write_text(yaml.safe_dump_all([shared, runs, declared], sort_keys=False))
    assert surfacelora.main([str(file), "--only", "weak"]) == 0  # the choice needs `strong` too
    weak = store.open_run("tiny-weak")
    assert weak.status == "done"
    assert not decisions.locked(weak)
    assert surfacelora.main([str(file)]) == 0
    study = Study(tmp_path / "home", file=file)
    assert study.spec("both").strength in (1.0, 3.0)
    found = {name: store.open_run(study.folder(name)) for name in runs}
    assert all(decisions.locked(run) for run in found.values())
    assert decisions.revealed(found["both"])
    assert sum(bool(decisions.revealed(found[name])) for name in ("weak", "strong")) == 1
    before = {name: records.read(run) for name, run in found.items()}
    looks = (tmp_path / "home" / "ledger.jsonl").read_text()
    capsys.readouterr()
    assert surfacelora.main([str(file)]) == 0
    assert {name: records.read(run) for name, run in found.items()} == before
    assert (tmp_path / "home" / "ledger.jsonl").read_text() == looks
    assert "training:" not in capsys.readouterr().out
    assert surfacelora.main([str(file), "--set", "steps=3"]) == 2  # another spec for a folder that is there
