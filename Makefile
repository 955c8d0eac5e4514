# 'make run' trains the default job, 'make test' is the gate ('make test-slow' its longer proofs), 'make docs' builds the site. Each sets itself up.
PYTHON ?= python3
BIN := .venv/bin
OUT ?=

.PHONY: run test test-slow format docs clean

run: .venv/.run
	$(BIN)/ifca run $(if $(OUT),--out $(OUT))

test: .venv/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/pytest -n 2 --dist loadgroup

# Proofs that take long: more kills, more variants of what the gate tries once.
test-slow: .venv/.dev
	$(BIN)/pytest -n 2 --dist loadgroup -m slow

format: .venv/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: .venv/.dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit("ifca needs Python 3.10 or newer") if sys.version_info < (3, 10) else None'
	$(PYTHON) -m venv .venv

# The stamp files say what is installed; a change of the requirements installs again.
.venv/.run: $(BIN)/python pyproject.toml constraints.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable .
	touch $@

.venv/.dev: $(BIN)/python pyproject.toml constraints.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev,flower,track,parquet,hf,export,private,docs]'
	touch $@ .venv/.run

clean:
	rm -rf .venv build dist site src/*.egg-info .mypy_cache .ruff_cache .pytest_cache
