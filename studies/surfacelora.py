"""The reference study of SurfaceLoRA. In: surfacelora.yaml. Out: finished runs, locked choices, what their tests said.

    python -m studies.surfacelora                    # everything that is not finished yet
    python -m studies.surfacelora --only lasttok-2   # one training, its measurements, and the choice from it
    python -m studies.surfacelora --set steps=300 --out /data/runs

A training that was stopped goes on where it was. Once every run of a choice is there, the rule chooses on bal_val; the
declaration is locked and the test rows are read, once.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from auditcore import cli, decisions, store
from auditcore.errors import AuditError, SpecError, did_you_mean
from auditcore.spec import AnySpec, dump_spec, parse_spec
from studies.recipe import change

HERE = Path(__file__).resolve().parent
BEST = "best"


class Study:
    """What the YAML file asks for, and the folders of its runs."""

    def __init__(self, out: Path, changes: Sequence[str] = (), file: Path = HERE / "surfacelora.yaml") -> None:
        """changes: "steps=300", for every training; values are YAML. Raises SpecError."""
        self.file, self.out = file, out
        if not file.is_file():
            raise SpecError(f"{file}: there is no such study.")
        self.shared, self.runs, self.reveals = list(yaml.safe_load_all(file.read_text(encoding="utf-8")))
        for one in changes:
            change({"all": self.shared}, one)

    def folder(self, name: str) -> Path:
        """Folder of a run, below the folder of all runs."""
        return self.out / f"{self.file.stem}-{name}"

    def spec(self, name: str) -> AnySpec:
        """The spec of one training. Raises SpecError; RunError where its lambda depends on runs that are not there."""
        if name not in self.runs:
            raise SpecError(f"'{name}' is no training of {self.file.name}.{did_you_mean(name, self.runs)}")
        raw = {**self.shared, **self.runs[name], "name": f"{self.shared['name']}, {name}"}
        if raw.get("lambda") == BEST:
            raw["lambda"] = self.best_lambda()
        return parse_spec(raw, f"{self.file.name}, {name}")

    def best_lambda(self) -> float:
        """Lambda of the checkpoint that the first choice prefers on bal_val, of all lambdas; else the nearest."""
        runs = [name for name, own in self.runs.items() if own["lambda"] not in (0, BEST)]
        found = self.seen({**self.reveals[0], "runs": runs}, self.reveals[0]["budget"])
        if found.at is None:
            raise SpecError(f"{self.file.name}: no checkpoint of {', '.join(runs)} has been measured in full.")
        return float(found.at["lambda"])

    def seen(self, choice: dict[str, Any], budget: float) -> decisions.Frontier:
        """The checkpoints of one choice under its declaration. Raises RunError where a run is not there."""
        runs = [store.open_run(self.folder(name)) for name in choice["runs"]]
        declared = decisions.default_declaration(runs[0].manifest["spec"])
        return decisions.view(runs, decisions.merge(declared, budget=budget, artifacts=tuple(choice["artifacts"])))

    def train(self, name: str) -> int:
        """Run one training, or what is left of it; returns the exit code."""
        path = self.folder(name).with_suffix(".yaml")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(yaml.safe_dump(dump_spec(self.spec(name)), sort_keys=False), encoding="utf-8")
        return cli.main(["run", str(path), "--out", str(self.folder(name)), "--resume"])

    def reveal(self, choice: dict[str, Any]) -> int:
        """Show the choice under each budget, lock the declared one and read its test rows; returns the exit code."""
        first, *others = [str(self.folder(name)) for name in choice["runs"]]
        asked = ["reveal", first, *[word for other in others for word in ("--also", other)]]
        asked += ["--artifact", ",".join(choice["artifacts"])]
        for budget in choice.get("shown", []):
            code = cli.main([*asked, "--budget", str(budget), "--dry-run"])
            if code:
                return code
        return cli.main([*asked, "--budget", str(choice["budget"])])


def main(argv: Sequence[str] | None = None) -> int:
    """Train what is not finished, then lock and reveal; returns the exit code of the last command."""
    parser = argparse.ArgumentParser(prog="python -m studies.surfacelora", description="SurfaceLoRA, bundled notes.")
    parser.add_argument("study", nargs="?", default=str(HERE / "surfacelora.yaml"), help="default: surfacelora.yaml")
    parser.add_argument("--only", action="append", metavar="NAME", help="these trainings, and what is chosen from them")
    parser.add_argument("--out", metavar="DIR", help="folder of the runs (default: where the dashboard looks)")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="as in steps=300")
    parser.add_argument("--train-only", action="store_true", help="all trainings; nothing is revealed")
    asked = parser.parse_args(argv)
    try:
        study = Study(Path(asked.out) if asked.out else store.home(), asked.set, Path(asked.study))
        for name in asked.only or study.runs:
            code = study.train(name)
            if code:
                return code
        for choice in [] if asked.train_only else study.reveals:
            if asked.only and not set(choice["runs"]) <= set(asked.only):
                continue
            code = study.reveal(choice)
            if code:
                return code
    except AuditError as error:
        print(f"Error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
