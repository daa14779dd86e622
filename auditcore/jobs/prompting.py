"""Directives in a vectors audit. In: the rows. Out: the same rows behind each directive, and their vectors."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from auditcore.jobs.context import Context
from auditcore.jobs.rows import Rows
from auditcore.spec import VectorsSpec

Extract = Callable[[Context, Rows, Any], dict[tuple[str, int], Path]]


def directives(spec: VectorsSpec) -> dict[str, str]:
    """Name of each directive among the defences -> its text; empty when `prompt` is not asked for."""
    from auditcore.leakage.prompting import PREFIX, shipped

    if "prompt" not in spec.defences:
        return {}
    texts = shipped().directives if spec.directives is None else spec.directives
    return {f"{PREFIX}{name}": text for name, text in texts.items()}


def directed_rows(context: Context, rows: Rows, tokenizer: Any) -> dict[str, Rows]:
    """The rows with each directive in front of the template; what a longer prompt cuts off is noted."""
    from auditcore.leakage.prompting import with_directive
    from auditcore.lm.encode import encode

    spec, found = context.spec, {}
    assert isinstance(spec, VectorsSpec)
    for name, text in directives(spec).items():
        template = with_directive(rows.dataset.template, text)
        encoded = encode(tokenizer, template, rows.dataset.fields, None, spec.max_length)
        more = int(encoded.truncated.sum()) - int(rows.encoded.truncated.sum())
        if more > 0:
            context.note(f"{name} takes tokens: {more:,} more rows are cut at {spec.max_length}.")
        found[name] = Rows(rows.dataset, encoded, rows.frame)
    return found


def directed_vectors(
    context: Context, directed: dict[str, Rows], extract: Extract, keep: Callable[[Path, Path], None]
) -> dict[tuple[str, str, int], np.ndarray]:
    """Vectors behind every directive: (defence, artifact, layer) -> float32 [n, width], from the run's folder."""
    from auditcore.datasets.vector_files import open_vectors

    found: dict[tuple[str, str, int], np.ndarray] = {}
    for name, rows in directed.items():
        stage = f"vectors behind {name}"
        if not context.finished(stage):
            with context.stage(stage, len(rows.frame)) as on_progress:
                for (artifact, layer), source in extract(context, rows, on_progress).items():
                    keep(_path(context, name, artifact, layer), source)
        for artifact, layer in context.run.manifest["exported"]:
            found[name, str(artifact), int(layer)] = open_vectors(_path(context, name, str(artifact), int(layer)))
    return found


def _path(context: Context, name: str, artifact: str, layer: int) -> Path:
    return context.run.vectors_path(f"{artifact} behind {name}", layer)
