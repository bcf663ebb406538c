.DEFAULT_GOAL := help
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
JOBS ?= 20
PYTEST := $(BIN)/python -m pytest

.PHONY: help
help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-16s %s\n", $$1, $$2}'

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed, PYTHON=$(PYTHON) is " + sys.version.split()[0])'
	@echo 'Installing arc_controller, its libraries and tools into $(VENV): once, and it takes a few minutes.'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

.PHONY: venv
venv: $(READY) ## Create the virtual environment in .venv

.PHONY: demo
demo: $(READY) ## Run the main job on the embedded API server (JOBS=20)
	$(BIN)/arcctl demo --jobs $(JOBS)

.PHONY: test
test: lint types imports stale unit integration simulation ## Everything but the real API server

.PHONY: unit
unit: $(READY) ## Unit and property tests
	$(PYTEST) tests/unit

.PHONY: integration
integration: $(READY) ## The system on the embedded API server
	$(PYTEST) tests/integration

.PHONY: simulation
simulation: $(READY) ## The system under simulated time, with faults (SEEDS=N, SEED=K alone)
	$(PYTEST) tests/simulation$(if $(SEED)$(PLAN),/test_seeds.py)

.PHONY: test-cluster
test-cluster: $(READY) envtest ## The system on a real API server
	$(PYTEST) tests/cluster tests/unit/test_charts_render.py

.PHONY: envtest
envtest: $(READY) ## Build the real API server for tests (once; KUBEBUILDER_ASSETS is respected)
	tools/build.sh

.PHONY: lint
lint: $(READY) ## Check format and lint
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

.PHONY: format
format: $(READY) ## Format and fix what can be fixed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

.PHONY: types
types: $(READY) ## Check the types, strictly
	$(BIN)/mypy

.PHONY: imports
imports: $(READY) ## Check who imports whom
	$(BIN)/lint-imports

.PHONY: manifests
manifests: $(READY) ## Generate config/crd from the resource types
	$(BIN)/python -m arc_controller.api.manifests

.PHONY: stale
stale: $(READY) ## Fail if config/crd is not what the resource types say
	$(BIN)/python -m arc_controller.api.manifests --check

.PHONY: bench
bench: $(READY) ## Bursts and idle against the budgets; prints a table, writes JSON
	$(BIN)/python -m benchmarks.burst

.PHONY: clean
clean: ## Remove what was built (the virtual environment too)
	rm -rf $(VENV) .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
