"""Which browser the browser tests drive. In: CHROMIUM, or the usual places. Out: its path, or why there is none."""

import os
import shutil

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def find_browser() -> str | None:
    """Path of a Chromium, or None."""
    named = os.environ.get("CHROMIUM")
    if named:
        return shutil.which(named)
    return next((path for name in NAMES if (path := shutil.which(name))), None)


WHY_NOT = "The browser tests did not run: no Chromium was found (install it, or set CHROMIUM to its path)."

if __name__ == "__main__":
    if find_browser() is None:
        print(WHY_NOT)
