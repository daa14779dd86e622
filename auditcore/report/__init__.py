"""A run in; one file out: an HTML report, or its tables as CSV, Parquet or DuckDB. No streamlit, no torch."""

from auditcore.report.files import FORMATS, export, safe_csv

__all__ = ["FORMATS", "export", "safe_csv"]
