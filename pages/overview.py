"""Stub."""

from pages import _ui as ui

ui.head("What this model gives away", "")
