"""Train and audit one corpus of the paper with one model. In: a recipe, the data, a model. Out: two finished runs.

    python -m studies.recipe wikitext --data wiki.train.raw --model gpt2
    python -m studies.recipe ag_news --data train.csv --model models/llama-2-7b --like llama2 --out runs/ag-llama

A recipe is the YAML file of that name: a finetune and a membership spec for GPT-2; models.yaml changes it for others.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from auditcore import cli
from auditcore.errors import AuditError, SpecError, did_you_mean
from auditcore.spec import CORPORA, AnySpec, dump_spec, parse_spec

HERE = Path(__file__).resolve().parent
PARTS = ("finetune", "membership")


def specs(
    corpus: str,
    data: str | None = None,
    model: str = "gpt2",
    like: str | None = None,
    out: Path = Path("runs"),
    changes: Sequence[str] = (),
) -> dict[str, AnySpec]:
    """The two specs of a recipe: "finetune" and "membership".

    data: path of the corpus (default: the recipe's). model: gpt2, gptj, llama2, or a model source; like: whose training
    settings to use for a source of one's own. out: folder of both runs. changes: "finetune.epochs=1" for one of the
    specs, "max_length=64" for both; values are YAML. Raises SpecError.
    """
    models = yaml.safe_load((HERE / "models.yaml").read_text(encoding="utf-8"))
    style = like or (model if model in models else "gpt2")
    if style not in models:
        raise SpecError(f"--like {style}: is none of the recipes' models.{did_you_mean(style, models)}")
    settings = dict(models[style])
    theirs = settings.pop("source")
    source = theirs if model in models else model
    documents = yaml.safe_load_all((HERE / f"{corpus}.yaml").read_text(encoding="utf-8"))
    raw = {part: dict(document) for part, document in zip(PARTS, documents, strict=True)}
    raw["finetune"] |= {**settings, "model": {**raw["finetune"]["model"], "source": source}}
    checkpoint = out / "finetune" / "checkpoints" / "best"
    raw["membership"]["model"] = {"source": str(checkpoint), "reference": source}
    for part in PARTS:
        raw[part]["name"] = f"{raw[part]['name']}, {Path(source).name}"
        if data is not None:
            raw[part]["data"]["path"] = data
    for asked in changes:
        change(raw, asked)
    return {part: parse_spec(raw[part], f"{corpus}.yaml, {part}") for part in PARTS}


def change(raw: dict[str, Any], asked: str) -> None:
    """Lay one "finetune.epochs=1" over the mapping of a part, or "epochs=1" over all of them. Raises SpecError."""
    key, separator, text = asked.partition("=")
    path = key.strip().split(".")
    if not separator or not all(path):
        raise SpecError(f"--set {asked}: write it as key=value, as in finetune.epochs=1.")
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError:
        raise SpecError(f"--set {asked}: the value is not YAML.") from None
    parts, path = ([path[0]], path[1:]) if path[0] in raw else (list(raw), path)
    for part in parts:
        here = raw[part]
        for name in path[:-1]:
            here = here.setdefault(name, {})
            if not isinstance(here, dict):
                raise SpecError(f"--set {asked}: '{name}' has no parts.")
        here[path[-1]] = value


def main(argv: Sequence[str] | None = None) -> int:
    """Write both specs into the folder, run what is not finished, and return the exit code of the last command."""
    parser = argparse.ArgumentParser(prog="python -m studies.recipe", description="One corpus of the paper, one model.")
    parser.add_argument("corpus", choices=list(CORPORA))
    parser.add_argument("--data", metavar="PATH", help="file, folder or hub:owner/name of the corpus")
    parser.add_argument("--model", default="gpt2", help="gpt2, gptj, llama2, or a model source (default gpt2)")
    parser.add_argument("--like", metavar="MODEL", help="training settings for a source of your own (default gpt2)")
    parser.add_argument("--out", metavar="DIR", help="folder of both runs (default runs/CORPUS-MODEL)")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="as in finetune.epochs=1")
    parser.add_argument("--dry-run", action="store_true", help="the plan of the training; nothing is run")
    asked = parser.parse_args(argv)
    out = Path(asked.out or f"runs/{asked.corpus}-{Path(asked.model).name}")
    try:
        made = specs(asked.corpus, asked.data, asked.model, asked.like, out, asked.set)
    except AuditError as error:
        print(f"Error: {error}", file=sys.stderr)
        return error.exit_code
    out.mkdir(parents=True, exist_ok=True)
    for part, spec in made.items():
        (out / f"{part}.yaml").write_text(yaml.safe_dump(dump_spec(spec), sort_keys=False), encoding="utf-8")
    if asked.dry_run:
        return cli.main(["run", str(out / "finetune.yaml"), "--dry-run"])
    for part in PARTS:
        code = cli.main(["run", str(out / f"{part}.yaml"), "--out", str(out / part), "--resume"])
        if code:
            return code
    return 0


if __name__ == "__main__":
    sys.exit(main())
