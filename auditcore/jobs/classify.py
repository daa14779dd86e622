"""Was this text trained on? In: a finished membership run and new texts. Out: one line per text, with its threshold."""

from pathlib import Path

import numpy as np
import pandas as pd

from auditcore.errors import DatasetError, RunError, SpecError
from auditcore.spec import MembershipSpec, parse_spec, parse_template
from auditcore.store import Run

TABLES = (".csv", ".tsv", ".jsonl", ".parquet", ".gz")


def classify(run: Run, text: str, attack: str = "ez", target_fpr: float = 0.01) -> pd.DataFrame:
    """Score new texts as the run's rows were scored and compare with its threshold at `target_fpr`.

    text: a text; a file with one text; or a table with the columns of the run's data. Returns one row per text:
    example_id, answer (member | not a member | no evidence), score, status, n_scored, attack, target_fpr.
    Raises RunError when the run is no finished membership run, SpecError when it has no such threshold.
    """
    from auditcore.lm.encode import encode
    from auditcore.lm.load import load_pair, load_tokenizer
    from auditcore.lm.tokens import token_statistics
    from auditcore.membership import roc
    from auditcore.membership.scores import Tokens, score_table

    spec = parse_spec(run.manifest["spec"], f"run {run.id}")
    if not isinstance(spec, MembershipSpec) or not run.has("attack_metrics"):
        raise RunError(f"Run {run.id} is no finished membership run, so it has no threshold to classify with.")
    metrics = run.read("attack_metrics")
    # Said before the models are loaded, when there is no such operating point.
    roc.classify({"rank_score": 0.0, "status": "ok"}, metrics, attack, target_fpr)
    template, fields, target, ids = _texts(spec, text)
    tokenizer = load_tokenizer(spec.model.source, spec.model.base)
    encoded = encode(tokenizer, template, fields, target, spec.max_length)
    pair = load_pair(spec.model)
    assert pair.reference is not None  # load_pair says so itself when there is none
    passes = [
        token_statistics(model, None, encoded, score=spec.score, batch_size=spec.batch_size)
        for model in (pair.target, pair.reference)
    ]
    tokens = Tokens(
        offsets=passes[0].offsets,
        position=passes[0].position,
        logp_target=passes[0].logp_target,
        logp_reference=passes[1].logp_target,
        is_error=passes[0].is_error,
        scored=passes[0].scored,
    )
    unknown = pd.Series(pd.array([pd.NA] * len(ids), dtype="boolean"))
    scores = score_table(tokens, [attack], ids, unknown, ez_policy=spec.ez_policy, skip_first=spec.skip_first)
    answers = [roc.classify(row, metrics, attack, target_fpr) for _, row in scores.iterrows()]
    point = metrics[(metrics["attack"] == attack) & np.isclose(metrics["target_fpr"].astype(float), target_fpr)]
    return pd.DataFrame(
        {
            "example_id": scores["example_id"],
            "answer": answers,
            "attack": attack,
            "score": scores["score"],
            "threshold": point["threshold"].iloc[0],
            "false_alarms_at_threshold": point["realised_fpr"].iloc[0],
            "status": scores["status"],
            "tokens_scored": scores["n_scored"],
        }
    )


def _texts(spec: MembershipSpec, text: str) -> tuple[str, dict[str, list[str]], list[str] | None, list[str]]:
    from auditcore.datasets.roles import load_dataset

    path = Path(text) if len(text) < 1024 and "\n" not in text else None
    if path is not None and path.suffix.lower() in TABLES:
        roles = {r: c for r, c in spec.data.roles.items() if r in ("text", "prompt", "target", "id")}
        data = spec.data.model_copy(update={"path": str(path), "roles": roles, "format": "auto", "max_rows": None})
        dataset = load_dataset(data, spec.prompt_template)
        return dataset.template, dataset.fields, dataset.target, dataset.frame["example_id"].tolist()
    columns = [column for _, column in parse_template(spec.prompt_template) if column]
    if "target" in spec.data.roles or len(columns) > 1:
        needed = ", ".join([*columns, *(["target"] if "target" in spec.data.roles else [])])
        raise SpecError(f"This run's rows have several parts ({needed}): give a table file with these columns.")
    if path is not None and path.is_file():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise DatasetError(f"{path}: not UTF-8 text (byte {error.start}).") from None
    return spec.prompt_template, {columns[0]: [text]}, None, ["1"]
