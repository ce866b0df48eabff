# Nothing has to be typed before these: each sets up .venv first (but for gpu-check), and does what is left to do when
# called again.
#   make demo    XLM-E at its smallest size on the embedded corpus, with its figures
#   make test    lint, the notebooks as lessons, tests/ without what is marked slow: about a quarter of an hour on two cores
#   make test-all                    also the notebooks that train, and the slow tests; owed before a release
#   make quick   between commits, about ten minutes on two cores: lint, the repository as a whole, the fast tests of tests/
#   make campaigns                   damaged files, kills and full disks by the hundred: hours; make test has a small part
#   make render nb=text/11_sampling      runs a notebook and keeps what readers see; without nb all of them. README.md follows
#   make experiment nb=03_xlm_e               the experiments of a notebook, and how much of each is on record
#   make experiment nb=03_xlm_e name=tasks    runs what is missing of one; interrupt it and take it up at any time
#   make benchmarks                  speed and memory beside the alternatives, measured here and appended to the records
#   make benchmarks name=steps       one of them
#   make evaluate model=runs/my-model tasks=cldr      a saved encoder on downstream tasks: tables and a heat map
#   make evaluate model=runs/my-model tasks=xnli,pos langs=de,fr seeds=3 recipes=xlme
#   make evaluate model=runs/my-model against=runs/another tasks=xnli        two of them, and how far the first is ahead
#   make gpu-check                   what only a GPU can show, in 25 minutes; with python3 or PYTHON as it is, no .venv
#   make gpu-check phases='speed align'       some of it (tools/gpu_check.py says what there is)
# A Python can be named: make test PYTHON=/usr/local/bin/python3.12

# Compiled once, not in each of the hundred processes that tests start, where the environment forbids what Python does by default.
export PYTHONDONTWRITEBYTECODE :=

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
PYTHON ?=
BIN := .venv/bin
# papermill takes a piped stdin for the notebook to run.
QUIET := </dev/null

.PHONY: help env demo experiment benchmarks evaluate gpu-check campaigns render test test-all quick lint notebooks pytest

help:
	@sed -n 's/^#   //p' Makefile

env: .venv/ready

# Made again when the dependencies change. The interpreter is tried, not trusted: shims and Debian's python3 without venv exist.
# Python compiles what is imported; pip would compile all 18,000 modules.
.venv/ready: pyproject.toml constraints.txt
	@if ! $(BIN)/python -c '' 2>/dev/null; then \
	  for python in $(or $(PYTHON),python3.11 python3.12 python3.13 python3); do \
	    if "$$python" -c 'import ensurepip, sys, venv; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; \
	    then found=$$python; break; fi; \
	  done; \
	  if [ -z "$${found:-}" ]; then \
	    echo "xlnb needs Python 3.11, 3.12 or 3.13 with its venv module, and none was found here." >&2; \
	    echo "Install one (Debian, Ubuntu: apt-get install python3-venv), or name it: make test PYTHON=/path/to/python3.12" >&2; \
	    exit 1; \
	  fi; \
	  echo "Setting up .venv with $$($$found --version); the packages take some minutes the first time"; \
	  "$$found" -m venv --clear .venv; \
	fi
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(BIN)/python -m ensurepip
	$(BIN)/python -m pip install -q --disable-pip-version-check --no-compile -c constraints.txt -e '.[dev]' $(QUIET)
	@touch $@

demo: env
	@mkdir -p runs
	$(BIN)/papermill nbs/03_xlm_e.ipynb runs/demo.ipynb $(QUIET)
	@echo; echo "Done. The notebook with its results: runs/demo.ipynb (open it in JupyterLab: $(BIN)/jupyter lab runs/demo.ipynb)"; \
	echo "Its figures:"; ls runs/figures/xlme_* | sed 's/^/  /'

experiment: env
	$(BIN)/python -m xlnb.pretraining.experiments $(nb) $(name) $(QUIET)

benchmarks: env
	XLNB_RESULTS="$${XLNB_RESULTS:-$(CURDIR)/data/results}" $(BIN)/python -m xlnb.results.benchmarks $(name) $(QUIET)

EVALUATED := tasks langs source seeds select_on recipes partner train_split test_split in_language controls against \
             epochs learning_rate aggregate max_minutes name out probe train_examples test_examples

evaluate: env
	$(BIN)/python -m xlnb.evaluation --model $(model) $(foreach k,$(EVALUATED),$(if $($(k)),--$(k) $($(k)))) $(QUIET)

gpu-check:
	$(or $(PYTHON),python3) tools/gpu_check.py $(phases) $(QUIET)

render: env
	$(BIN)/python tools/render.py $(if $(nb),$(shell find nbs -name '$(basename $(notdir $(nb))).ipynb')) $(QUIET)
	$(BIN)/python tools/readme.py $(QUIET)

# Notebooks with a parameter `steps` train: tests/test_few_steps.py runs them with few, and tests/test_papermill.py runs 03
# as users do.
training_notebooks = $(shell grep -rlE --include='*.ipynb' '^ +"steps: int' nbs | sed 's,.*/,,' | paste -sd '|')

test: LESSONS = --skip_file_re '^[_.]|^($(training_notebooks))$$'
test: FAST := -m 'not slow'
test test-all: lint notebooks pytest

lint: env
	$(BIN)/ruff check . $(QUIET)
	$(BIN)/ruff format --check . $(QUIET)
	$(BIN)/lint-imports $(QUIET)

# Two processes on two cores: torch with more threads than cores is ten times slower.
render quick notebooks pytest campaigns: export OMP_NUM_THREADS := 1

# A hung cell or test would hang for good; macOS has no timeout.
limit = $$(command -v timeout >/dev/null && echo timeout $(1))

notebooks: env
	PATH="$(CURDIR)/$(BIN):$$PATH" $(call limit,2400) $(BIN)/nbdev_test --n_workers 2 --timing $(LESSONS) $(QUIET)

pytest: env | lint notebooks
	PATH="$(CURDIR)/$(BIN):$$PATH" $(call limit,2700) $(BIN)/python -m pytest -q -n 2 --dist worksteal $(FAST) tests $(QUIET)

campaigns: env
	XLNB_CAMPAIGNS=full PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m pytest -q -n 2 -m campaign tests $(QUIET)

# Left out: files in which networks train or processes are started, and single tests of 20 s and more. What is left takes
# a quarter of an hour of one core.
LONG := $(patsubst %,tests/test_%.py,benchmarks continued dro_runs experiments gpu_check jupyterlab learning meta_xlm \
          papermill reports scale training xlm_e xy_lent)
QUICK_TESTS := $(filter-out $(LONG),$(wildcard tests/test_*.py))

quick: lint
	PATH="$(CURDIR)/$(BIN):$$PATH" $(call limit,600) $(BIN)/python -m pytest -q -n 2 --dist loadfile -m 'not slow' $(QUICK_TESTS) $(QUIET)
