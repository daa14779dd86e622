"""Rows of a file in, checked rows with roles and splits out. Knows nothing of models, leakage or membership."""

from auditcore.datasets.roles import Dataset, Guess, guess_roles, load_dataset
from auditcore.datasets.tables import Table, open_table, read_table

__all__ = ["Dataset", "Guess", "Table", "guess_roles", "load_dataset", "open_table", "read_table"]
