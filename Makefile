# Everything a developer does, one word each. Arguments go through ARGS: make demo ARGS=--exit
# Needs Python 3.11 or later and a package index; no database, no Docker, no root.

PYTHON ?= python3
# The interpreters of `make test-versions`; empty: the oldest and the newest that are found.
PYTHONS ?=
ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
# What running needs, and on top of it what developing needs.
READY := $(VENV)/.ready
READY_DEV := $(VENV)/.ready-dev
# pip shows its progress where somebody watches and is silent elsewhere.
PIP := $(BIN)/python -m pip --disable-pip-version-check $(shell [ -t 2 ] || echo --quiet)
# Not here: what no pooler can change (plans, refusals at the start, tests that bring their own).
POOLED_TESTS := tests/integration tests/acceptance tests/faults --ignore=tests/integration/embedded \
	--ignore=tests/integration/test_refusals.py --ignore=tests/integration/test_pooler_refusals.py \
	--ignore=tests/faults/test_plans.py --ignore=tests/faults/test_retention_plans.py \
	--ignore=tests/faults/test_queue_machine.py --ignore=tests/faults/test_broken_twins.py
COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header

.DEFAULT_GOAL := help
.PHONY: demo run test test-pooled test-versions test-wheel faults fuzz mutations reports check format docs bench conformance lock dist clean help

demo: $(READY) ## a first look: scan small sites on this machine and show the result
	$(BIN)/siteatlas demo $(ARGS)

run: $(READY) ## serve the API on this machine
	$(BIN)/siteatlas serve $(ARGS)

test: $(READY_DEV) ## run the tests
	@echo "All tests take about 8 minutes on two cores. Some of them: make test ARGS=\"tests/unit -k robots\""
	$(BIN)/python -m pytest -n 2 --dist loadfile $(ARGS)

test-pooled: $(READY_DEV) ## run the tests with PostgreSQL again, through PgBouncer
	@if PATH="$$PATH:/usr/sbin" command -v pgbouncer >/dev/null; then \
		echo "The tests with PostgreSQL through PgBouncer in transaction mode:"; \
		SITEATLAS_TEST_POOLED=1 $(BIN)/python -m pytest -n 2 --dist loadfile $(POOLED_TESTS) $(ARGS); \
	elif [ -n "$$SITEATLAS_REQUIRE_PGBOUNCER" ]; then \
		echo "pgbouncer is required here and was not found."; exit 1; \
	else \
		echo "Skipped: the tests through PgBouncer, because pgbouncer is not installed."; \
	fi

test-versions: ## run the tests without a database on several Pythons: PYTHONS="python3.11 python3.13"
	$(PYTHON) scripts/test_versions.py $(PYTHONS) $(ARGS)

faults: $(READY_DEV) ## kill, freeze, restart and cut everything many times; prints what was measured
	SITEATLAS_FAULTS=full $(BIN)/python -m pytest tests/faults $(ARGS)
	@if PATH="$$PATH:/usr/sbin" command -v pgbouncer >/dev/null; then \
		echo "Again through PgBouncer, with fewer kills and restarts:"; \
		SITEATLAS_FAULTS=full SITEATLAS_TEST_POOLED=1 SITEATLAS_FAULT_KILLS=40 \
			SITEATLAS_FAULT_RESTARTS=10 $(BIN)/python -m pytest tests/faults \
			--ignore tests/faults/test_plans.py --ignore tests/faults/test_queue_machine.py \
			--ignore tests/faults/test_broken_twins.py $(ARGS); \
	fi

fuzz: $(READY_DEV) ## send made-up requests to all routes of a real service, for a minute
	$(BIN)/python -m tests.fuzz.run $(ARGS)

mutations: $(READY_DEV) ## change the code in small ways and see a test go red for each
	$(BIN)/python -m tests.mutations.run $(ARGS)

reports: $(READY_DEV) ## run the tests and write their results into the completion reports
	$(BIN)/python docs/reports/figures.py $(ARGS)

check: $(READY_DEV) ## everything that must hold: format, lint, types, imports, tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(MAKE) test
	$(MAKE) test-pooled

test-wheel: $(READY) ## build the wheel, install it into a clean environment and run the demo there
	rm -rf build/wheel
	$(BIN)/python -m hatchling build -t wheel -d build/wheel
	$(PYTHON) -m venv build/wheel/env
	build/wheel/env/bin/python -m pip --disable-pip-version-check --quiet install --require-hashes -r requirements.lock
	build/wheel/env/bin/python -m pip --disable-pip-version-check --quiet install --no-deps build/wheel/*.whl
	folder=$$(mktemp -d) && chmod 755 $$folder && cd $$folder && \
		SITEATLAS_DATA_DIR=$$folder/data $(CURDIR)/build/wheel/env/bin/siteatlas demo --exit; \
		status=$$?; rm -rf $$folder; exit $$status

format: $(READY_DEV) ## put the code into its form and repair what can be repaired
	$(BIN)/ruff check --fix --exit-zero --quiet .
	$(BIN)/ruff format .

docs: $(READY_DEV) ## write the pages that come from the code and from the markers of tests
	$(BIN)/python -m docs.generate $(ARGS)

bench: $(READY_DEV) ## measure against the peers, on this machine, in one run
	$(BIN)/python -m bench.run $(ARGS)

conformance: $(READY_DEV) ## let the peers read our corpus and write the page that compares them
	$(BIN)/python -m bench.conformance $(ARGS)

lock: $(READY_DEV) ## choose the versions of all dependencies anew
	$(COMPILE) pyproject.toml -o requirements.lock $(ARGS)
	$(COMPILE) --group pyproject.toml:build -o requirements-build.lock $(ARGS)
	$(COMPILE) --group dev pyproject.toml -o requirements-dev.lock $(ARGS)

dist: $(READY) ## build the wheel and the source archive into dist/
	$(BIN)/python -m hatchling build $(ARGS)

clean: ## remove the environment, the caches and what was built
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .schemathesis .import_linter_cache
	find src tests bench docs -name __pycache__ -type d -prune -exec rm -rf {} +

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

$(READY): requirements.lock requirements-build.lock pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) was not found. Install Python 3.11 or later, or name one: make PYTHON=/path/to/python3"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Siteatlas needs Python 3.11 or later; this is $$($(PYTHON) --version 2>&1 | head -n 1). Name another one: make PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "$(PYTHON) cannot make environments. On Debian and Ubuntu: apt-get install python3-venv"; exit 1; }
	@echo "Installing $$(grep -c == requirements.lock) packages into $(VENV): a download of 50 MB, 220 MB on disk. This happens once."
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) install --require-hashes -r requirements.lock -r requirements-build.lock
	@$(PIP) install --no-deps --no-build-isolation -e .
	@touch $@

$(READY_DEV): $(READY) requirements-dev.lock
	@echo "Installing the tools of developers into $(VENV): 150 MB more on disk. This happens once."
	@$(PIP) install --require-hashes -r requirements-dev.lock
	@touch $@
