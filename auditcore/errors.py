"""Every message a user can meet. In: what went wrong. Out: one exception whose text says where and what to do.

AuditError              anything the user can mend (exit code 2)
├── SpecError           an audit description or a command-line option is wrong
├── DatasetError        a data file, a column, a role, a split or a label is wrong
├── ModelError          a model, an adapter or a tokenizer cannot be used
├── RunError            a run folder is missing, busy, broken or read-only
└── Cancelled           the user stopped the job (exit code 130)
"""

import difflib
from collections.abc import Iterable


class AuditError(Exception):
    """Base of all errors that are shown to the user as one message, without a traceback."""

    exit_code = 2


class SpecError(AuditError):
    """The audit description is wrong; the message names the field."""


class DatasetError(AuditError):
    """The data is wrong; the message names file, row, column or split."""


class ModelError(AuditError):
    """The model cannot be used; the message names the source and a way out."""


class RunError(AuditError):
    """The run folder cannot be used; the message names the run."""


class Cancelled(AuditError):
    """The job was cancelled; what was finished stays in the run folder."""

    exit_code = 130


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return " Did you mean 'x'?" for the nearest known name, else the list of known names."""
    names = [str(k) for k in known]
    folded = {n.casefold(): n for n in names}
    near = difflib.get_close_matches(str(name).casefold(), folded, n=1, cutoff=0.6)
    if near:
        return f" Did you mean '{folded[near[0]]}'?"
    if not names:
        return ""
    shown = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
    return f" Known: {shown}."
