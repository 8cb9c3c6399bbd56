# make demo: set up, then the whole main job on data it generates.
# make test: set up, then linter, types and the tests that a commit needs; ten minutes on two cores.
# make test-all: the long ones, which a landing needs too: whole cells, two processes, signals, damaged files,
# a campaign of kills, a cluster, a browser, the commands of the READMEs; 25 minutes more.
# Both print what they skip, with the reason.
# make docs: set up, then build the documentation site into docs/_build; its index.html opens from the disk.
# make gpu-check: set up, then test that this machine's GPU computes what the CPU does, and measure its rates.
# make detectron2: set up, then build detectron2 from source, and test that both engines of detectors agree.
# DETECTRON2=PATH takes a checkout that is there, for a machine without internet.
# make test-oldest: the wheel beside a user's packages, then tests with the oldest supported versions.
# make test-processors: set up, then what compares numbers, as if on two older processors and on this one.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# a process per core, each with one thread; tests of a group share what is slow to start
WORKERS := --numprocesses auto --maxprocesses 8 --dist loadgroup
PYTEST := OMP_NUM_THREADS=1 $(BIN)/pytest $(WORKERS)
LONG := slow or slurm or browser

# test-processors: as which processor torch, oneDNN and MKL compute; own: as the machine's
sse4 := ATEN_CPU_CAPABILITY=default ONEDNN_MAX_CPU_ISA=SSE41 MKL_ENABLE_INSTRUCTIONS=SSE4_2
avx2 := ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 MKL_ENABLE_INSTRUCTIONS=AVX2
own :=
# folders whose slow tests compare numbers: contracts, two processes, overfitting, resume
NUMERIC := tests/contracts tests/pretrain \
	tests/transfer/detection tests/transfer/segmentation tests/transfer/finetuning tests/transfer/frozen \
	tests/transfer/tasks tests/transfer/cells
ELSEWHERE := slurm or browser or gpu or data or detectron2
REPORT := $(VENV)/processors.txt

.PHONY: demo test test-all test-oldest test-processors docs gpu-check detectron2 lint setup clean

demo: setup
	$(BIN)/python benchmarks/run_all.py --demo

test: lint
	$(PYTEST) -m "not ($(LONG))" --durations=10

test-all: setup
	$(PYTEST) -m "$(LONG)" --durations=10

test-oldest: setup
	$(BIN)/python -m tests.oldest

docs: setup
	$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going docs docs/_build

# $(call on_processor,NAME,THREADS): goes on after a failure, and notes it
define on_processor
	@echo; echo "=== processor $(1), threads $(2)"
	@export OMP_NUM_THREADS=$(2) $($(1)); status=passed; \
	$(BIN)/pytest $(WORKERS) -m "not (slow or $(ELSEWHERE))" || status=failed; \
	$(BIN)/pytest $(WORKERS) -m "slow and not ($(ELSEWHERE))" $(NUMERIC) || status=failed; \
	echo "$$status: processor $(1), threads $(2)" >> $(REPORT)
endef

test-processors: setup
	@rm -f $(REPORT)
	$(call on_processor,sse4,1)
	$(call on_processor,sse4,2)
	$(call on_processor,avx2,1)
	$(call on_processor,avx2,2)
	$(call on_processor,own,1)
	$(call on_processor,own,2)
	@echo; cat $(REPORT); ! grep -q failed $(REPORT)

gpu-check: setup
	@status=0; $(BIN)/pytest -m gpu --numprocesses 0 || status=1; \
	$(BIN)/python -m benchmarks.gpu_check || status=1; exit $$status

detectron2: setup
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-build-isolation \
		"$(or $(abspath $(DETECTRON2)),$$($(BIN)/python -c 'from transfer.detection.engines import SOURCE; print(SOURCE)'))"
	$(PYTEST) -m detectron2
	@echo "detectron2 is installed, and both engines agree: detectors are trained with detectron2 from now on"

lint: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

setup: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11, 4) and "Python 3.11.4 or later is needed, this is " + sys.version.split()[0] + "; set PYTHON=...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv==0.13.8
	$(BIN)/uv pip install --quiet --compile-bytecode --python $(BIN)/python --requirement requirements.lock
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --editable .
	touch $@

clean:
	rm -rf $(VENV) runs docs/_build
