"""auditcore: how much does a language model give away? Rows in, verdicts out; nothing here draws a page."""

__version__ = "0.1.0"
