"""Data sets that attack, and real runs on them. In: a folder. Out: files, and finished runs on a tiny random model.

Everything a user can name is hostile: texts, ids, classes, columns, the run, the vectors. What a page or a file may do
with it: show it, as written.
"""

import csv
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from auditcore.store import Run
from tests.fake_parts import HOSTILE, TEXT

IMAGE = '"><img src=x onerror="window.hacked=1">'
SCRIPT = "</textarea></style><script>window.hacked=1</script>"
KATEX = r"$$\frac{1}{2}$$ and $x$"
MARKDOWN = "**b** [a](javascript:alert(1)) ![i](x) :material/home: `code` :red[r]"
TURNED = "\u2069\u2069\u202eturned\u202c \u2067away"  # closes isolates that are not its own, then turns the rest
CONTROLS = "bell\x07 \x1b[31mred\x1b[0m \x1b]0;title\x07 del\x7f nel\x85"
LONG = "<b>long</b> " * 1700  # 20,400 characters
TEXTS = (*HOSTILE, IMAGE, SCRIPT, KATEX, MARKDOWN, TURNED, CONTROLS, LONG,
         "=1+1", "+1", "-1", "@x", "\t=1", "\r=1", "\n=1", "＝1", "%{x} {text} {{}}", "&lt;b&gt; &amp;",
         "'=1", '"', "a,b;c")  # fmt: skip
NAME = f"{IMAGE} {KATEX} {MARKDOWN} \u202eeman"
LABELS = (f"{IMAGE} $x$ **b** \u202e", "=cmd() [a](javascript:alert(1)) :red[x]")
CLASSES = (
    ("<script>window.hacked=1</script> %{x}", "\u2069\u202e=1+1 $$\\frac{1}{2}$$"),
    ("**b** :material/home:", "שלום", "+1 `x`"),
)
VECTOR_COLUMN = "../../../$x$ **b** :material/home: \u202e"


@dataclass(frozen=True)
class HostileRuns:
    """Files and runs; `texts` and `labels` hold what the runs must give back."""

    rows_csv: Path
    labelled: Path
    membership: Run
    vectors: Run
    given: Run  # vectors that the user brings, in a column with a hostile name
    texts: dict[str, str]  # example_id -> text of the membership run
    labels: pd.DataFrame  # example_id and both label columns of the vectors run

    @property
    def runs(self) -> tuple[Run, Run, Run]:
        """All three."""
        return self.membership, self.vectors, self.given


def hostile_texts(n: int) -> dict[str, str]:
    """Id -> text of n rows: the attacks, each with an id like itself, then harmless rows."""
    words = TEXT.split()
    rows = {f"{text[:80]} {i}": text for i, text in enumerate(TEXTS)}
    rows[f"{'<i>' * 200}"] = "a name of 600 characters"
    rows["../../etc/passwd"] = "a name that is a path"
    for i in range(len(rows), n):
        rows[f"row {i}"] = " ".join([str(i), *(words[(3 * i + k) % len(words)] for k in range(8))])
    return rows


def write_csv(path: Path, texts: dict[str, str]) -> Path:
    """Rows for a membership audit; the text column has a hostile name too."""
    with path.open("w", encoding="utf-8", newline="") as file:
        out = csv.writer(file, quoting=csv.QUOTE_ALL, lineterminator="\n")
        out.writerow([f"id {IMAGE}", f"text {KATEX}\n{MARKDOWN}", "member"])
        out.writerows([key, text, i % 2] for i, (key, text) in enumerate(texts.items()))
    return path


def write_jsonl(path: Path, texts: dict[str, str]) -> pd.DataFrame:
    """Rows for a vectors audit. Returns their ids and labels."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"example_id": list(texts)})
    for label, classes in zip(LABELS, CLASSES, strict=True):
        frame[label] = np.array(classes)[rng.integers(0, len(classes), len(frame))]
    with path.open("w", encoding="utf-8") as file:
        for row in frame.to_dict("records"):
            labels = {label: row[label] for label in LABELS}
            line = {"id": row["example_id"], "prompt": texts[row["example_id"]], **labels}
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
    return frame


def make_runs(folder: Path) -> HostileRuns:
    """Run all three audits here, in this process; AUDIT_HOME must be set."""
    from tests.tiny_models import build_folder

    folder.mkdir(exist_ok=True)
    texts, many = hostile_texts(48), hostile_texts(240)
    # The tokenizer has seen the attacks: their characters are tokens, not halves of one.
    shape = {"vocabulary": 1500, "texts": [text[:400] for text in TEXTS]}
    target, reference = (build_folder(folder / name, seed=seed, **shape) for seed, name in enumerate("ab"))
    rows_csv, labelled = write_csv(folder / "rows.csv", texts), folder / "labelled.jsonl"
    labels = write_jsonl(labelled, many)
    vectors = np.random.default_rng(1).normal(size=(len(many), 8))
    pd.DataFrame({"id": list(many), VECTOR_COLUMN: list(vectors)}).to_parquet(folder / "vectors.parquet")
    small = {"seeds": [0], "permutations": 19, "n_boot": 100, "probes": ["linear"], "name": NAME}
    roles = {"prompt": "prompt", "label": list(LABELS), "id": "id"}
    return HostileRuns(
        rows_csv,
        labelled,
        _run(
            folder / "real-hostile-membership",
            kind="membership",
            name=NAME,
            model={"source": str(target), "reference": str(reference)},
            data={
                "path": str(rows_csv),
                "roles": {"text": f"text {KATEX}\n{MARKDOWN}", "member": "member", "id": f"id {IMAGE}"},
            },
            max_length=200,
            n_boot=100,
        ),
        _run(
            folder / "real-hostile-vectors",
            kind="vectors",
            model={"source": str(target)},
            data={"path": str(labelled), "roles": roles},
            template="{prompt}",
            max_length=64,
            artifacts=["lasttok", "meanpool"],
            **small,
        ),
        _run(
            folder / "real-hostile-given",
            kind="vectors",
            vectors={"path": str(folder / "vectors.parquet"), "column": VECTOR_COLUMN},
            data={"path": str(labelled), "roles": {"label": LABELS[0], "id": "id"}},
            **small,
        ),
        texts,
        labels,
    )


def _run(out: Path, **spec: object) -> Run:
    from auditcore import jobs, store
    from auditcore.spec import dump_spec, parse_spec

    run = store.create_run(dump_spec(parse_spec({**spec, "threads": 1})), out)
    jobs.execute(run)
    # Older than every run of the other tests, so that none of them meets it as the newest.
    run.update(created="2026-11-01T00:00:00+00:00")
    return run
