# make run: everything a fresh clone needs, then the dashboard on http://127.0.0.1:8501
# make study: the reference study of SurfaceLoRA, hours on two cores; stopped, it goes on where it was
# make test: the whole test suite; make test-fast: without real models and browser
PYTHON ?= python3
PORT ?= 8501
WORKERS ?= 2
BIN := .venv/bin

.PHONY: run study test test-fast lint format model clean

run: .venv/installed model
	$(BIN)/streamlit run app.py --server.port $(PORT)

study: .venv/installed model
	$(BIN)/python -m studies.surfacelora

test: .venv/installed-dev model lint
	@$(BIN)/python -m tests.browser.which || true
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile

test-fast: .venv/installed-dev
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile -m "not slow and not browser"

lint: .venv/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: .venv/installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The bundled model, fetched and converted once. The dashboard works without it, so a failure here only speaks.
model: .venv/installed
	@$(BIN)/python -m auditcore.lm.bundled || true

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed: make PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv .venv

.venv/installed: requirements.txt | .venv/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.txt
	@touch $@

.venv/installed-dev: requirements-dev.txt .venv/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-dev.txt
	@touch $@

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache
