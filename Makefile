# make demo: set up, then the whole main job on data it generates.  make test: set up, then linter, types and tests.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# a process per core, each with one thread; tests of a group share what is slow to start
PYTEST := OMP_NUM_THREADS=1 $(BIN)/pytest --numprocesses auto --maxprocesses 8 --dist loadgroup

.PHONY: demo test fast lint setup clean

demo: setup
	$(BIN)/python benchmarks/run_all.py --demo

test: lint
	$(PYTEST) -m "not slow and not slurm and not gpu and not data and not detectron2"
	$(PYTEST) -m "slow or slurm or gpu or data or detectron2" --durations=10

fast: lint
	$(PYTEST) -m "not slow and not slurm and not gpu and not data and not detectron2" --durations=10

lint: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

setup: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or later is needed, this is " + sys.version.split()[0] + "; set PYTHON=...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv==0.13.8
	$(BIN)/uv pip install --quiet --compile-bytecode --python $(BIN)/python --requirement requirements.lock
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --editable .
	touch $@

clean:
	rm -rf $(VENV) runs
