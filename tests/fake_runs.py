"""Complete run folders for tests of pages, reports and speed. In: sizes and a seed. Out: runs with invented numbers.

Nothing here was measured: every number is drawn from a seeded generator, in the exact schemas of the product's tables,
and every manifest says so. The folders are written through `auditcore.store`, like real ones. From the shell:
`python -m tests.fake_runs FOLDER membership '{"rows": 20000, "tokens": 100}'`.
"""

import json
import sys
from pathlib import Path

from tests.fake_membership import membership_run
from tests.fake_parts import HOSTILE, NOTE, Recipe
from tests.fake_vectors import vectors_run

__all__ = ["HOSTILE", "NOTE", "Recipe", "membership_run", "vectors_run"]

if __name__ == "__main__":
    folder, kind = Path(sys.argv[1]), sys.argv[2]
    changes = json.loads(sys.argv[3]) if len(sys.argv) > 3 else {}
    print({"membership": membership_run, "vectors": vectors_run}[kind](folder, **changes).path)
