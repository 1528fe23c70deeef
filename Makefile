# Two commands do everything on a fresh machine: `make demo` and `make test`. Each builds .venv when it is missing.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: install demo check test lint docs clean

install: $(READY)

# Rebuilt only when what is to be installed has changed.
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "tasso needs Python 3.11 or newer (PYTHON=...)"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "installing into .venv (a few minutes the first time) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $(READY)

demo: $(READY)
	@$(BIN)/tasso demo

# The inner loop: everything but the tests marked as slow.
check: lint
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses auto --dist loadfile -m "not slow"

# One process per core, each with one thread; tests of one file stay together.
test: lint
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses auto --dist loadfile

lint: $(READY)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

# Read it from files: site/index.html.
docs: $(READY)
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "site/index.html"

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist site
