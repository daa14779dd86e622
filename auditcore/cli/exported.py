"""Vectors the user has already. In: arguments, a file. Out: the spec of an audit of them; what the file holds."""

import argparse
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from auditcore.cli.terminal import say
from auditcore.errors import SpecError
from auditcore.spec import AnySpec, parse_spec

ARRAYS = (".npy", ".safetensors")  # numbers alone: labels lie elsewhere
READ = 8  # sets of vectors in one file up to which each is read; more are those of a model, or layers


def add(parser: argparse.ArgumentParser) -> None:
    """Add what an audit of ready-made vectors can be told. Names are checked with the spec, which says the nearest."""
    parser.add_argument("file", metavar="FILE", help="Parquet (a column of lists), npy or safetensors")
    parser.add_argument("--label", required=True, metavar="COLUMN", help="sensitive label; several with commas")
    parser.add_argument("--rows", metavar="DATA", help="CSV, JSON Lines or Parquet with the labels (default: FILE)")
    parser.add_argument("--column", metavar="NAME", help="column or tensor that holds the vectors")
    parser.add_argument("--id", metavar="COLUMN", help="name of each row, by which a Parquet FILE is joined to DATA")
    parser.add_argument("--group", metavar="COLUMN", help="subject of each row")
    parser.add_argument("--split", metavar="COLUMN", help="bal_train, bal_val or bal_test (default: drawn here)")
    parser.add_argument("--text", metavar="COLUMN", help="the text a vector was made from, read as a baseline")
    parser.add_argument("--metadata", metavar="COLUMN,...", help="what a vector's recipient holds anyway: a baseline")
    parser.add_argument("--probe", action="append", metavar="NAME", help="attacker; default linear and mlp")
    parser.add_argument("--defence", action="append", metavar="NAME", help="try it as well; pca, inlp, leace, ...")
    parser.add_argument("--budget", type=float, metavar="GAP", help="accepted gap above chance (default 0.025)")
    parser.add_argument("--seeds", metavar="N,...", help="seeds of the attackers (default 0,1,2)")
    parser.add_argument("--permutations", type=int, metavar="N", help="of the null band (default 199)")
    parser.add_argument("--curve", action="store_true", help="accuracy against training rows, and what more would give")
    parser.add_argument("--seed", type=int)


def spec_of(arguments: argparse.Namespace) -> AnySpec:
    """The spec that `vectors` means. Raises SpecError, also for a name that is unknown ("did you mean")."""
    rows = arguments.rows or arguments.file
    if Path(rows).suffix.lower() in ARRAYS:
        raise SpecError(f"{rows}: holds no labels; name the file that does with --rows, in the order of the vectors.")
    given = {"group": arguments.group, "split": arguments.split, "id": arguments.id, "prompt": arguments.text}
    given["metadata"] = arguments.metadata.split(",") if arguments.metadata else None
    roles = {"label": arguments.label.split(","), **{k: v for k, v in given.items() if v is not None}}
    chosen: dict[str, Any] = {k: getattr(arguments, k) for k in ("budget", "seed", "permutations")}
    chosen["probes"] = arguments.probe
    if arguments.defence:  # the vectors as they are stand beside them
        chosen["defences"] = ["none", *[name for name in arguments.defence if name != "none"]]
    if arguments.seeds is not None:
        chosen["seeds"] = [int(p) if p.strip().isdigit() else p for p in arguments.seeds.split(",")]
    if arguments.curve:
        chosen["curve"] = {}
    raw = {
        "kind": "vectors",
        "vectors": {"path": arguments.file, "column": arguments.column},
        "data": {"path": rows, "roles": roles},
        **{k: v for k, v in chosen.items() if v is not None},
    }
    return parse_spec(raw, "vectors")


def describe(path: str, roles: Mapping[str, Any]) -> bool:
    """Say which vectors a file holds and which command audits them; False, and no word, where it holds none.

    roles: those guessed or named in a Parquet file. Raises DatasetError for a file that cannot be read.
    """
    from auditcore.datasets.vector_files import list_vectors

    suffix = Path(path).suffix.lower()
    found = list_vectors(path) if suffix in (*ARRAYS, ".parquet") else []
    if not found:
        return False
    say(f"{path}: {f'{found[0].rows:,} rows' if len(found) == 1 else f'{len(found):,} sets of vectors'}")
    for one in found[:READ]:
        say("  " + _told(path, one, read=len(found) <= READ))
    if len(found) > READ:
        say(f"  and {len(found) - READ:,} more; none was read")
    words = ["python -m auditcore vectors", shlex.quote(path)]
    if len(found) > 1:
        words.append(f"--column {shlex.quote(str(found[0].name))}")
    label = roles.get("label")
    label = ",".join(label) if isinstance(label, list) else label
    words += ["--rows DATA"] if suffix in ARRAYS else []
    words.append(f"--label {shlex.quote(label) if label else 'COLUMN'}")
    words += [f"--{role} {shlex.quote(str(roles[role]))}" for role in ("group", "split", "id") if role in roles]
    say(f"Audit these vectors with:\n  {' '.join(words)}")
    return True


def _told(path: str, one: Any, read: bool) -> str:
    """One set: its name, size and type, and what is wrong with its rows."""
    import pandas as pd

    from auditcore.datasets.vector_files import load_vectors, vector_notes
    from auditcore.spec import VectorFile

    name, width, notes = f"{one.name}: " if one.name else "", one.width, []
    if read:
        rows = pd.Series(range(1, one.rows + 1)).astype(str)
        array = load_vectors(VectorFile(path=path, column=one.name), rows)
        width, notes = array.shape[1], vector_notes(array, rows)
        notes = notes or ["Every number is finite and no dimension is constant."]
    size = f"{one.rows:,} vectors" + (f" of {width:,} numbers" if width else "")
    return f"{name}{size}, {one.dtype}. {' '.join(notes)}".rstrip()
