# Two commands do everything on a fresh machine: `make demo` and `make test`. Each installs what it needs into .venv.
PYTHON ?= python3
BIN := .venv/bin
export PYTHON

.PHONY: install demo check test lint docs clean

install: .venv/.base

# One file per level that is installed: tasso alone, tasso[dev], tasso[docs]. Each has the base, too.
.venv/.base .venv/.dev .venv/.docs: pyproject.toml constraints.txt tools/install.sh
	@tools/install.sh $(filter-out base,$(@:.venv/.%=%))
	@touch .venv/.base $@

demo: .venv/.base
	@$(BIN)/tasso demo

# The inner loop: everything but the tests marked as slow.
check: lint
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses auto --dist loadfile -m "not slow"

# One process per core, each with one thread; tests of one file stay together.
test: lint
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses auto --dist loadfile

lint: .venv/.dev
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

# Read it from files: site/index.html.
docs: .venv/.docs
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "site/index.html"

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist site
