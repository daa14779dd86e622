"""The README's specs run as they stand: their fields, their rows, and the model that its own command makes."""

import re
from pathlib import Path

import yaml

from auditcore.datasets.roles import plan_columns
from auditcore.spec import SHORT_NAMES, load_spec, parse_spec

ROOT = Path(__file__).resolve().parents[1]


def test_specs_name_bundled_rows_and_models(monkeypatch) -> None:
    monkeypatch.chdir(ROOT)
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    assert len(blocks) >= 2
    makes = dict(re.findall(r"run (studies/\S+\.yaml) --out (\S+?)`", text))
    made = {f"{out}/checkpoints/last" for spec, out in makes.items() if load_spec(spec).kind == "finetune"}
    for block in blocks:
        spec = parse_spec(yaml.safe_load(block), "README")
        plan_columns(spec.data, spec.prompt_template)  # the file is there, and so is every column
        assert spec.model is not None
        assert {spec.model.source, spec.model.reference} - {None} <= {*SHORT_NAMES, *made}
