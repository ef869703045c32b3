# Needs GNU make and Python >= 3.10 with pip and venv; everything else is installed into .venv.
# Stamp files in the virtual environment make every run after the first start at once.

PYTHON ?= python3
VENV ?= .venv
PEERS_VENV ?= .venv-peers
ENV ?= CartPole-v1
ARGS ?=

BIN := $(VENV)/bin
PACKAGING := pyproject.toml setup.cfg
PEERS_REQUIREMENTS := asv_benches/peers/requirements.txt
PIP := -m pip --disable-pip-version-check install --quiet

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help train test lint lint-style lint-format lint-types format peers clean

help:  ## show this list
	@sed -n 's/^\([a-z]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 16

train: $(VENV)/.installed  ## train ENV (CartPole-v1), e.g. make train ENV=Acrobot-v1 ARGS="--seed 1"
	$(BIN)/rlcpu train $(ENV) $(ARGS)

test: $(VENV)/.installed-test  ## run the tests, e.g. make test ARGS="tests/envs -x"
	$(BIN)/python -m pytest -W error $(ARGS)

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

peers: $(PEERS_VENV)/.installed  ## install what the peers' benchmark compares us with (several GB)
	@echo "run, for instance: $(PEERS_VENV)/bin/python -m asv_benches.peers simulate"

clean:  ## remove the virtual environments, the caches and the build folders
	rm -rf $(VENV) $(PEERS_VENV) build dist rlcpu.egg-info .cache .hypothesis
	rm -rf .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.installed: $(PACKAGING) | $(VENV)/.created
	$(BIN)/python $(PIP) -e .
	@touch $@

$(VENV)/.installed-test: $(PACKAGING) | $(VENV)/.created
	$(BIN)/python $(PIP) -e ".[test]"
	@touch $@

$(PEERS_VENV)/.installed: $(PACKAGING) $(PEERS_REQUIREMENTS) | $(PEERS_VENV)/.created
	$(PEERS_VENV)/bin/python $(PIP) -e . -r $(PEERS_REQUIREMENTS)
	@touch $@

# A folder alone does not prove a complete virtual environment: venv leaves one behind when it fails.
%/.created:
	@$(PYTHON) -c 'import sys; sys.exit("rlcpu needs Python >= 3.10, and $(PYTHON) is " \
	    + sys.version.split()[0] if sys.version_info < (3, 10) else 0)'
	$(PYTHON) -m venv $*
	@touch $@
