"""The paper's recipes: right for each architecture, and run end to end on tiny ones with made-up rows."""

import json
from pathlib import Path

import numpy as np
import pytest
import yaml

from auditcore import store
from auditcore.errors import SpecError
from auditcore.spec import CORPORA
from studies import recipe

LIKE = {"gpt2": "gpt2", "gptj": "gptj", "llama": "llama2"}
SMALL = [
    *("data.corpus.length=14", "data.corpus.members=10", "data.corpus.nonmembers=10", "data.corpus.validation=3"),
    *("max_length=24", "threads=1", "finetune.epochs=1", "finetune.batch_size=4", "finetune.learning_rate=0.01"),
    *("membership.n_boot=100", "membership.target_fprs=[0.01, 0.4]"),
]


def write(corpus: str, folder: Path) -> Path:
    """A few made-up documents in the form that this corpus has."""
    rng = np.random.default_rng(5)
    vocabulary = "fever cough stocks fell on Monday oil prices rose home Naïve café record patient".split()  # noqa: SIM905
    texts = [" ".join(rng.choice(vocabulary, 40)) for _ in range(60)]
    if corpus == "ag_news":
        path = folder / "train.csv"
        path.write_text("\n".join(f'"{1 + k % 4}","{t[:20]}","{t}"' for k, t in enumerate(texts)) + "\n")
    elif corpus == "xsum":
        path = folder / "train.jsonl"
        rows = [{"document": t, "summary": "s", "id": str(k)} for k, t in enumerate(texts)]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif corpus == "wikitext":
        path = folder / "wiki.train.raw"
        path.write_text(
            "".join(f" \n = Title {k} = \n \n {t} \n = = Part = = \n {t[::-1]} \n" for k, t in enumerate(texts))
        )
    else:
        path = folder / "source"
        path.mkdir()
        for k, t in enumerate(texts):
            (path / f"m{k}.py").write_text(f"def f{k}():\n    return '{t}'\n")
    return path


def test_there_is_a_recipe_for_every_corpus_and_model() -> None:
    models = yaml.safe_load((recipe.HERE / "models.yaml").read_text())
    assert set(models) == set(LIKE.values())
    for corpus in CORPORA:
        for name in models:
            made = recipe.specs(corpus, model=name)
            train, audit = made["finetune"], made["membership"]
            assert train.data == audit.data
            assert train.data.corpus.name == corpus
            assert (train.data.corpus.length, train.max_length, audit.max_length) == (128, 128, 128)
            assert (train.data.corpus.members, train.data.corpus.nonmembers) == (10_000, 10_000)
            assert (train.epochs, train.learning_rate, train.schedule) == (3, 1e-4, "linear")
            assert train.method == ("full" if name == "gpt2" else "lora")
            assert audit.model.reference == train.model.source == models[name]["source"]
            assert audit.ez_policy == "official"


def test_changes_reach_one_spec_or_both() -> None:
    made = recipe.specs("code", "x.jsonl", changes=["finetune.lora.r=2", "max_length=64", "data.corpus.clean=false"])
    assert made["finetune"].lora.r == 2
    assert {spec.max_length for spec in made.values()} == {64}
    assert {spec.data.path for spec in made.values()} == {"x.jsonl"}
    assert made["finetune"].lora.alpha == 16


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"changes": ["epochs"]}, "write it as key=value"),
        ({"changes": ["finetune.epoch=1"]}, "Did you mean 'epochs'"),
        ({"changes": ["finetune.epochs.x=1"]}, "'epochs' has no parts"),
        ({"changes": ["finetune.lora=[1"]}, "is not YAML"),
        ({"model": "some/model", "like": "llama"}, "Did you mean 'llama2'"),
    ],
)
def test_what_cannot_be_meant_is_said(asked, message) -> None:
    with pytest.raises(SpecError, match=message):
        recipe.specs("xsum", **asked)


@pytest.mark.parametrize("architecture", list(LIKE))
def test_lora_adapts_what_the_recipe_names_in_each_architecture(architecture, tiny_folders) -> None:
    """Every attention and feed-forward map of every layer, with the layout that its kind of weight has."""
    from auditcore.lm.load import load_model
    from auditcore.training.lora import add_adapter

    spec = recipe.specs("xsum", model=str(tiny_folders[architecture]), like=LIKE[architecture])["finetune"]
    wrapped = add_adapter(load_model(spec.model).causal, spec.lora, "base")
    adapted = [name for name, _ in wrapped.named_parameters() if "lora_A" in name]
    assert len(adapted) == 3 * {"gpt2": 4, "gptj": 6, "llama": 7}[architecture]  # c_proj stands in both blocks of GPT-2
    assert wrapped.peft_config["default"].fan_in_fan_out == (architecture == "gpt2")
    for module in wrapped.modules():
        if hasattr(module, "lora_A"):
            inner = module.base_layer
            wide = inner.weight.shape if architecture == "gpt2" else inner.weight.shape[::-1]
            assert (module.lora_A["default"].in_features, module.lora_B["default"].out_features) == tuple(wide)


def run(corpus: str, architecture: str, folder: Path, home: Path, more: list[str]) -> dict[str, store.Run]:
    data, out = write(corpus, home), home / "out"
    asked = [corpus, "--data", str(data), "--model", str(folder), "--like", LIKE[architecture], "--out", str(out)]
    for change in [*SMALL, *more]:
        asked += ["--set", change]
    assert recipe.main(asked) == 0
    return {part: store.open_run(out / part) for part in recipe.PARTS}


def check(runs: dict[str, store.Run], method: str) -> None:
    train, audit = runs["finetune"].manifest, runs["membership"].manifest
    assert (train["counts"]["train_rows"], train["counts"]["validation_rows"]) == (10, 3)
    assert train["spec"]["method"] == method
    assert (audit["counts"]["members"], audit["counts"]["nonmembers"]) == (10, 10)
    assert any("no document stands on two sides" in note for note in audit["data"]["notes"])
    scores = runs["membership"].read("membership_scores")
    assert scores.groupby("attack")["example_id"].nunique().eq(23).all()
    stats = runs["membership"].read("token_stats", ["delta", "scored"])
    assert stats.loc[stats["scored"], "delta"].abs().max() > 1e-3  # it was trained: target and reference differ
    assert stats.groupby("scored").size()[True] >= 23 * 13


@pytest.fixture
def home(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("AUDIT_HOME", str(tmp_path / "runs"))
    return tmp_path


@pytest.mark.slow
def test_a_recipe_runs_end_to_end_and_goes_on_where_it_stopped(home, tiny_folders, capsys) -> None:
    runs = run("ag_news", "gpt2", tiny_folders["gpt2"], home, [])
    check(runs, "full")
    before = (home / "out" / "membership" / "run.json").read_text()
    capsys.readouterr()
    assert recipe.main(["ag_news", "--data", "x", "--set", "epochs"]) == 2
    assert "write it as key=value" in capsys.readouterr().err
    again = [x for change in SMALL for x in ("--set", change)]
    asked = ["ag_news", "--data", str(home / "train.csv"), "--model", str(tiny_folders["gpt2"]), "--like", "gpt2"]
    asked += ["--out", str(home / "out"), *again]
    assert recipe.main([*asked, "--dry-run"]) == 0
    assert "10 rows to train on, 3 to choose the best checkpoint" in capsys.readouterr().out
    assert recipe.main(asked) == 0
    assert (home / "out" / "membership" / "run.json").read_text() == before  # nothing was run twice


@pytest.mark.slow
@pytest.mark.parametrize("architecture", list(LIKE))
@pytest.mark.parametrize("corpus", list(CORPORA))
def test_every_recipe_runs_on_every_architecture(corpus, architecture, home, tiny_folders) -> None:
    method = "lora" if architecture != "gpt2" or corpus == "code" else "full"
    runs = run(corpus, architecture, tiny_folders[architecture], home, [f"finetune.method={method}"])
    check(runs, method)
