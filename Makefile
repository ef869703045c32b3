# Needs GNU make and Python >= 3.11 with pip and venv; everything else is installed into .venv.
# Stamp files in the virtual environment make every run after the first start at once.

PYTHON ?= python3
VENV ?= .venv
CUDA_VENV ?= .venv-cuda
PEERS_VENV ?= .venv-peers
ENV ?= CartPole-v1
ARGS ?=

BIN := $(VENV)/bin
PACKAGING := pyproject.toml setup.cfg
PEERS_REQUIREMENTS := asv_benches/peers/requirements.txt
# asv runs in its own folder, and keeps what it knows of a machine in the user's home.
ASV := machine=$$($(BIN)/python -m asv_benches.peers.machine) && cd asv_benches && $(abspath $(BIN))/asv machine \
    --machine "$$machine" --yes && $(abspath $(BIN))/asv
PIP := -m pip --disable-pip-version-check install --quiet

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help train test lint lint-style lint-format lint-types format docs notebooks cuda card peers bench history study \
    report release-check clean

help:  ## show this list
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 22

train: $(VENV)/.installed  ## train ENV (CartPole-v1), e.g. make train ENV=Acrobot-v1 ARGS="--seed 1"
	$(BIN)/rlcpu train $(ENV) $(ARGS)

test: $(VENV)/.installed-test  ## run the tests, e.g. make test ARGS="tests/envs -x"
	$(BIN)/python -m pytest -W error -n auto --dist loadfile --no-loadscope-reorder $(ARGS)

lint: lint-style lint-format lint-types  ## check style and types

lint-style: $(VENV)/.installed-test
	$(BIN)/ruff check .

lint-format: $(VENV)/.installed-test
	$(BIN)/ruff format --check .

lint-types: $(VENV)/.installed-test
	$(BIN)/mypy

format: $(VENV)/.installed-test  ## rewrite the sources in the house style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/.installed-test  ## build the documentation into build/docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

notebooks: $(VENV)/.installed-test  ## execute the notebooks that have changed (ARGS=--all: all)
	$(BIN)/python notebooks/renew.py $(ARGS)

cuda: $(CUDA_VENV)/.installed  ## install NVIDIA's compiler, for the tests that read its code (1 GB)

card: $(CUDA_VENV)/.installed  ## where there is an NVIDIA GPU: the tests that need it, then what it reaches
	$(CUDA_VENV)/bin/python -m pytest -W error -m gpu tests/cuda $(ARGS)
	$(CUDA_VENV)/bin/python -m asv_benches.peers cuda

peers: $(PEERS_VENV)/.installed  ## install what the peers' benchmark compares us with (several GB)
	@echo "run, for instance: $(PEERS_VENV)/bin/python -m asv_benches.peers simulate"

bench: $(VENV)/.installed-dev  ## measure every benchmark of the newest commit with asv
	$(ASV) run --machine "$$machine" 'HEAD^!'

history: $(VENV)/.installed-dev  ## measure the commits of asv_benches/history.txt, and tags, with asv
	{ cut -d' ' -f1 asv_benches/history.txt; git tag --list 'v*'; } | { $(ASV) run HASHFILE:- \
	    --machine "$$machine" --bench milestones --skip-existing-successful; }

study: $(VENV)/.installed-dev  ## train agents over seeds (hours), e.g. make study ARGS="CartPole-v1:ppo"
	NUMBA_NUM_THREADS=1 $(BIN)/python -m asv_benches.study $(ARGS)

report: $(PEERS_VENV)/.installed  ## every comparison with our peers, as one HTML page (30 minutes)
	$(PEERS_VENV)/bin/python -m asv_benches.peers all report readme --hours 24 --minutes 30 $(ARGS)

release-check: $(VENV)/.installed-dev  ## build, check, install and try what would be released (ARGS=--tests: tests too)
	$(BIN)/python .ci/release_check.py $(ARGS)

clean:  ## remove the virtual environments, the caches and the build folders
	rm -rf $(VENV) $(CUDA_VENV) $(PEERS_VENV) build dist rlcpu.egg-info .cache .hypothesis asv_benches/env asv_benches/html
	rm -rf .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.installed: $(PACKAGING) | $(VENV)/.created
	$(BIN)/python $(PIP) -e .
	@touch $@

$(VENV)/.installed-test: $(PACKAGING) | $(VENV)/.created
	$(BIN)/python $(PIP) -e ".[test]"
	@touch $@

$(VENV)/.installed-dev: $(PACKAGING) | $(VENV)/.created
	$(BIN)/python $(PIP) -e ".[dev]"
	@touch $@

$(CUDA_VENV)/.installed: $(PACKAGING) Makefile | $(CUDA_VENV)/.created
	$(CUDA_VENV)/bin/python $(PIP) -e ".[cuda]" "cuda-toolkit[nvcc]==13.0.*" pytest hypothesis
	@touch $@

$(PEERS_VENV)/.installed: $(PACKAGING) $(PEERS_REQUIREMENTS) | $(PEERS_VENV)/.created
	$(PEERS_VENV)/bin/python $(PIP) -e . -r $(PEERS_REQUIREMENTS)
	@touch $@

# A folder alone does not prove a complete virtual environment: venv leaves one behind when it fails.
%/.created:
	@$(PYTHON) -c 'import sys; sys.exit("rlcpu needs Python >= 3.11, and $(PYTHON) is " \
	    + sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $*
	@touch $@
