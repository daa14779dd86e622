"""Was this text trained on? In: a finished membership run and new texts. Out: one line per text, with its threshold."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from auditcore.errors import DatasetError, ModelError, RunError, SpecError
from auditcore.jobs import evidence, neighbours, references
from auditcore.jobs.queue import require_unchanged
from auditcore.jobs.rows import require_same_template, tokenise
from auditcore.spec import DataSpec, MembershipSpec, parse_spec, parse_template
from auditcore.store import Run

OF_ONE_AUDIT = frozenset({"prefixed", "shadows", "self_prompt"})  # what a new text alone does not bring
TABLES = (".csv", ".tsv", ".jsonl", ".parquet", ".gz")


def classify(run: Run, text: str, attack: str | None = None, target_fpr: float = 0.01) -> pd.DataFrame:
    """Score new texts as the run's rows were scored and compare with its threshold at `target_fpr`.

    attack: its name; None takes the run's strongest at this rate that can judge a new text (`strongest`).
    text: a text; a file with one text; or a table with the columns of the run's data. Returns one row per text:
    example_id, answer (member | not a member | no evidence), attack, score, threshold, false_alarms_at_threshold,
    status, tokens_scored, and cut: the text was longer than the run's max_length, and its end was not looked at.
    Raises RunError when the run is no finished membership run, SpecError when it has no such threshold.
    """
    from auditcore.lm.load import load_tokenizer
    from auditcore.membership import roc
    from auditcore.membership.scores import score_table

    spec = parse_spec(run.manifest["spec"], f"run {run.id}")
    if not isinstance(spec, MembershipSpec) or not run.has("attack_metrics"):
        raise RunError(f"Run {run.id} is no finished membership run, so it has no threshold to classify with.")
    metrics = run.read("attack_metrics")
    attack = attack or strongest(spec, metrics, target_fpr)
    # Said before the models are loaded, when there is no such operating point.
    roc.classify({"rank_score": 0.0, "status": "ok"}, metrics, attack, target_fpr)
    needed = evidence.needs([attack])
    if needed & OF_ONE_AUDIT:
        why = "compares rows of one audit or keeps no model of its own"
        raise SpecError(f"attack '{attack}' {why}, so it cannot judge a new text; choose another.")
    _require_models(run, spec)
    require_unchanged(run, ("model", "reference"))  # the threshold is that of the models it was found with
    dataset = _texts(spec, text)
    ids = dataset.frame["example_id"].tolist()
    tokenizer = load_tokenizer(spec.model.source, spec.model.base)
    require_same_template(run.manifest, dataset, tokenizer, run.id)
    encoded = tokenise(tokenizer, dataset, spec.max_length)
    models = references.of_run(spec, run)
    passes = evidence.plan(spec, dataset, encoded, tokenizer, needed)
    if not needed & {"reference", "reference_moments"}:
        passes = [one for one in passes if one.model != "reference"]
    found = {one.name: one.run(spec, models.get(one.model), None) for one in passes}
    copies: dict[str, np.ndarray] = {}
    count = neighbours.copies_needed(spec, needed)
    if count:  # kept in no cache, as everything about a new text
        made = neighbours.propose(spec, models, encoded, count, None, keep=False)
        altered = neighbours.in_words(encoded, made)
        copies["neighbours"] = neighbours.score(spec, models, "target", altered, None, keep=False)
    tokens = evidence.tokens(spec, dataset, encoded, tokenizer, needed, found, copies=copies)
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
            "cut": encoded.truncated | encoded.target_truncated,
        }
    )


def strongest(spec: MembershipSpec, metrics: pd.DataFrame, target_fpr: float = 0.01) -> str:
    """The attack that found most at this rate among those that can judge a new text; the first of the run's when none
    has a rate there. metrics: table `attack_metrics`. Raises SpecError when none can judge a new text."""
    able = [name for name in spec.attacks if not evidence.needs([name]) & OF_ONE_AUDIT]
    if not able:
        raise SpecError(f"none of this run's attacks ({', '.join(spec.attacks)}) can judge a new text.")
    at = metrics[metrics["attack"].isin(able) & np.isclose(metrics["target_fpr"].astype(float), target_fpr)]
    at = at[at["threshold"].notna()].sort_values("value", ascending=False, kind="stable")
    return able[0] if at.empty else str(at["attack"].iloc[0])


def _require_models(run: Run, spec: MembershipSpec) -> None:
    """Raise RunError when a model that the run measured is not there: a new text cannot be scored without it."""
    from auditcore.lm.sources import making, resolve

    for source, base in ((spec.model.source, spec.model.base), (spec.model.reference, None)):
        try:
            resolve(source, base) if source else None
        except ModelError as error:
            if not run.readonly:
                raise RunError(f"Run {run.id}: a model that it measured is gone. {error}") from None
            trained = Path(source).parts[-3:-2] if source else ()  # runs/NAME/checkpoints/last
            commands = "; ".join(filter(None, (making(Path("runs") / name) for name in (*trained, run.id))))
            raise RunError(
                f"Run {run.id} is a study that was shipped without its fine-tuned model ({source}), and without it no "
                f"new text can be scored. Make both again in the project's folder: {commands}. Then classify with the "
                f"new run, named by its folder: python -m auditcore classify runs/{run.id} TEXT."
            ) from None


def _texts(spec: MembershipSpec, text: str) -> Any:
    """The new texts as a `datasets.roles.Dataset`."""
    from auditcore.datasets.roles import Dataset, load_dataset

    path = Path(text) if len(text) < 1024 and "\n" not in text else None
    if path is not None and path.suffix.lower() in TABLES:
        roles = {r: c for r, c in spec.data.roles.items() if r in ("text", "prompt", "target", "messages", "id")}
        if spec.data.corpus is not None:  # whose rows bring roles of their own; the new file is no corpus
            roles = {"text": "text"}
        data = DataSpec(path=str(path), roles=roles)
        return load_dataset(data, spec.prompt_template)
    if path is not None and path.suffix.lower() in (".txt", ".md") and len(text.split()) == 1 and not _is_file(path):
        raise DatasetError(f"{path}: no such file.")  # nobody asks whether a file's name was trained on
    if (chats := spec.data.column("messages")) is not None:
        raise SpecError(f"This run's rows are conversations: give a table file with the column '{chats}'.")
    columns = [column for _, column in parse_template(spec.prompt_template) if column]
    if "target" in spec.data.roles or len(columns) > 1:
        needed = ", ".join([*columns, *(["target"] if "target" in spec.data.roles else [])])
        raise SpecError(f"This run's rows have several parts ({needed}): give a table file with these columns.")
    if path is not None and _is_file(path):
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise DatasetError(f"{path}: not UTF-8 text (byte {error.start}).") from None
        except OSError as error:
            raise DatasetError(f"{path}: cannot be read ({error.strerror or error}).") from None
    frame = pd.DataFrame({"example_id": pd.Series(["1"], dtype="str")})
    return Dataset(frame, {columns[0]: [text]}, None, spec.prompt_template, (), "", "", [])


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a text too long to be a file's name
        return False
