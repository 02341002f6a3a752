# Every target sets itself up: a virtual environment in .venv, filled once, and again whenever
# pyproject.toml changes. Needed beforehand: Python 3.11 or newer, git, make; Java 17 for Spark.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test lint types proof spark41 soak bench clean

# The first interpreter that is new enough; `make PYTHON=/path/to/python …` names another one.
PYTHON ?= $(firstword $(foreach name,python3 python3.13 python3.12 python3.11,$(shell \
	$(name) -c 'import sys; sys.version_info >= (3, 11) and print("$(name)")' 2>/dev/null)))
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip install --quiet --disable-pip-version-check --no-compile
DEMO_READY := $(VENV)/.demo-ready
DEV_READY := $(VENV)/.dev-ready
BENCH_READY := $(VENV)/.bench-ready
# s3fs takes one exact botocore, and so does each boto3: naming the boto3 that fits spares pip a
# search through dozens of releases.
FITTING_BOTO3 := $(BIN)/python -c \
	'from importlib.metadata import version; print("boto3==" + version("botocore"))'
# Workers take whole files, in the order of tests/conftest.py; Spark starts in one of them only.
PYTEST := $(BIN)/python -m pytest --numprocesses 2 --dist loadgroup --no-loadscope-reorder
TYPECHECK := build/typecheck
# Tests start hundreds of processes; without compiled modules each would compile all it imports.
unexport PYTHONDONTWRITEBYTECODE
SPARK41 := $(CURDIR)/build/spark41

help:
	@echo "make demo    append events to a local lake and query them with Spark SQL"
	@echo "make test    the tests"
	@echo "make lint    ruff: rules and formatting"
	@echo "make types   mypy, strict"
	@echo "make proof   the long suites: every fault at every storage operation"
	@echo "make spark41 the Spark tests on the oldest PySpark we support"
	@echo "make soak    longer still: a producer is killed 2,000 times"
	@echo "make bench   the benchmarks, with other table formats in the same run"
	@echo "make clean   remove everything that these targets made"

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "Strandline needs Python 3.11 or newer, and none was found \
	on PATH. Install one, or name it: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(DEMO_READY): pyproject.toml | $(BIN)/python
	@echo "Installing what the demo needs; Spark is large, so the first time takes minutes."
	$(PIP) -e '.[spark,cli]'
	@touch $@

$(DEV_READY): pyproject.toml | $(BIN)/python
	@echo "Installing the development tools; Spark is large, so the first time takes minutes."
	$(PIP) -e '.[s3]'
	$(PIP) -e '.[dev]' "$$($(FITTING_BOTO3))"
	@touch $@ $(DEMO_READY)

$(BENCH_READY): pyproject.toml $(DEV_READY)
	$(PIP) -e '.[dev,bench]' "$$($(FITTING_BOTO3))"
	@touch $@

demo: $(DEMO_READY)
	$(BIN)/python examples/demo.py

test: $(DEV_READY)
	$(PYTEST) --durations 20

lint: $(DEV_READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# Static tools do not see how pyproject.toml maps the folders into one package, so mypy looks at
# an installed copy.
types: $(DEV_READY)
	rm -rf $(TYPECHECK) build/lib build/bdist.*
	$(PIP) --no-deps --no-build-isolation --target $(TYPECHECK) .
	$(BIN)/mypy --config-file pyproject.toml $(TYPECHECK)/strandline $(TYPECHECK)/pyspark_strandline

proof: $(DEV_READY)
	$(PYTEST) -m proof
	$(MAKE) spark41

# The oldest PySpark we support, in an environment of its own that borrows everything else.
spark41: $(DEV_READY)
	test -d $(SPARK41)/pyspark || $(PIP) --target $(SPARK41) 'pyspark>=4.1,<4.2'
	PYTHONPATH=$(SPARK41) $(PYTEST) tests/spark -m "not soak"

soak: $(DEV_READY)
	$(PYTEST) -m soak

bench: $(BENCH_READY)
	$(BIN)/python benchmarks/run.py

clean:
	rm -rf $(VENV) build dist lake strandline.egg-info spark-warehouse metastore_db derby.log \
		.mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
