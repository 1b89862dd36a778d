# Development tasks. Pass arguments with ARGS: make demo ARGS=--exit
# Requires Python 3.11 or later and a package index; no database, no Docker, no root.

PYTHON ?= python3
# The interpreters of `make test-versions`; if empty, the oldest and the newest found.
PYTHONS ?=
ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
# Stamp files: runtime dependencies installed; development tools installed.
READY := $(VENV)/.ready
READY_DEV := $(VENV)/.ready-dev
# pip shows its progress on a terminal and is quiet elsewhere.
PIP := $(BIN)/python -m pip --disable-pip-version-check $(shell [ -t 2 ] || echo --quiet)
# The tests mostly wait for leases, retries and processes, so three processes suit two cores. They run
# in the order of their folders: the files with the slowest tests come first, none is left for the end.
TEST_PROCESSES ?= 3
# The tests of `make test-fast`; narrower: make test-fast FAST_TESTS=tests/net
FAST_TESTS ?= tests
# Two processes for all of them; for a few, starting the processes would take longer than the tests.
FAST_PROCESSES := $(if $(filter file,$(origin FAST_TESTS)),-n 2,-p no:xdist)
# Excludes tests that a pooler cannot affect (query plans, startup refusals) or that run their own, and
# simulated crashes, whose cancelled queries end PgBouncer 1.18 ("bad client state"); tests/faults kills.
# Of the acceptance tests, those with several processes, long transactions or large answers.
POOLED_TESTS ?= $(wildcard tests/*/database) tests/web/test_live.py \
	tests/acceptance/test_commands.py tests/acceptance/test_changes.py tests/acceptance/test_export.py \
	tests/acceptance/test_webhooks.py tests/acceptance/test_worker_process.py \
	--ignore=tests/processor/database/test_publication_unpublished_moves.py \
	--ignore=tests/processor/database/test_publication_crashes.py \
	--ignore=tests/storage/database/test_startup_refusals.py --ignore=tests/storage/database/test_startup_pooler_refusals.py
COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header

# Without bytecode, each of the hundreds of processes that the tests start would compile all modules.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: demo run test test-fast test-pooled test-versions test-wheel faults fuzz mutations reports timings check check-all format docs screenshots bench bench-shapes conformance sbom lock dist clean help

demo: $(READY) ## scan small demo sites on this machine and show the results
	$(BIN)/siteatlas demo $(ARGS)

run: $(READY) ## serve the API on this machine and run queued jobs
	$(BIN)/siteatlas serve $(ARGS)

test: $(READY_DEV) ## run the tests
	@echo "All tests take about six minutes on two cores. Some of them: make test ARGS=\"tests/scanner -k robots\""
	$(BIN)/python -m pytest -n $(TEST_PROCESSES) --dist loadfile --no-loadscope-reorder --ignore=tests/faults $(ARGS)

test-fast: $(READY_DEV) ## run the tests that need no PostgreSQL and do not sleep, in seconds
	$(BIN)/python -m pytest -q -p no:schemathesis $(FAST_PROCESSES) -m "not slow and not database" --durations=5 --durations-min=0.3 $(FAST_TESTS) $(ARGS)

test-pooled: $(READY_DEV) ## run the PostgreSQL tests through PgBouncer
	@if PATH="$$PATH:/usr/sbin" command -v pgbouncer >/dev/null; then \
		echo "PostgreSQL tests through PgBouncer in transaction mode:"; \
		export SITEATLAS_TEST_POOLED=1; $(BIN)/python -m pytest -n $(TEST_PROCESSES) --dist loadfile --no-loadscope-reorder $(POOLED_TESTS) $(ARGS); \
	elif [ -n "$$SITEATLAS_REQUIRE_PGBOUNCER" ]; then \
		echo "pgbouncer is required but was not found."; exit 1; \
	else \
		echo "Skipped the PgBouncer tests: pgbouncer is not installed."; \
	fi

test-versions: ## run the fast tests on several Pythons: PYTHONS="python3.11 python3.13"
	$(PYTHON) scripts/test_versions.py $(PYTHONS) $(ARGS)

faults: $(READY_DEV) ## run the fault-injection tests (kills, freezes, restarts, cut connections) and print the figures
	SITEATLAS_FAULTS=full $(BIN)/python -m pytest tests/faults $(ARGS)
	@if PATH="$$PATH:/usr/sbin" command -v pgbouncer >/dev/null; then \
		echo "Again through PgBouncer, with fewer kills, restarts and examples:"; \
		SITEATLAS_FAULTS=full SITEATLAS_TEST_POOLED=1 SITEATLAS_FAULT_KILLS=40 \
			SITEATLAS_FAULT_RESTARTS=10 SITEATLAS_FAULT_EXAMPLES=30 $(BIN)/python -m pytest tests/faults \
			--ignore tests/faults/test_plans.py --ignore tests/faults/test_queue_machine.py \
			--ignore tests/faults/test_broken_variants.py $(ARGS); \
	fi

fuzz: $(READY_DEV) ## fuzz all routes of a running service for a minute
	$(BIN)/python -m tests.fuzz.run $(ARGS)

mutations: $(READY_DEV) ## run mutation tests: each small change to the code must fail a test
	$(BIN)/python -m tests.mutations.run $(ARGS)

reports: $(READY_DEV) ## run the tests and update the figures in docs/source-documents/reports/
	$(BIN)/python docs/source-documents/reports/figures.py $(ARGS)

timings: $(READY_DEV) ## print durations that tests measure, beside their bounds; never fails
	-SITEATLAS_TIMINGS=1 $(BIN)/python -m pytest -q -p no:xdist $(shell grep -rl fixtures.timings tests --include='test_*.py') $(ARGS)

check: $(READY_DEV) ## run the usual checks: format, lint, types, import contracts, tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(MAKE) test

check-all: export SITEATLAS_TESTS = full
check-all: check test-wheel ## run everything there is: all tests, pooled, faults in full, fuzzer, Pythons, mutations
	$(MAKE) test-pooled
	$(MAKE) faults
	$(MAKE) fuzz
	$(MAKE) test-versions
	$(MAKE) mutations

test-wheel: $(READY) ## build the wheel, install it in a clean environment and run the demo
	rm -rf build/wheel
	$(BIN)/python -m hatchling build -t wheel -d build/wheel
	$(PYTHON) -m venv build/wheel/env
	build/wheel/env/bin/python -m pip --disable-pip-version-check --quiet install --require-hashes -r requirements.lock
	build/wheel/env/bin/python -m pip --disable-pip-version-check --quiet install --no-deps build/wheel/*.whl
	folder=$$(mktemp -d) && chmod 755 $$folder && cd $$folder && \
		SITEATLAS_DATA_DIR=$$folder/data $(CURDIR)/build/wheel/env/bin/siteatlas demo --exit; \
		status=$$?; rm -rf $$folder; exit $$status

format: $(READY_DEV) ## format and auto-fix
	$(BIN)/ruff check --fix --exit-zero --quiet .
	$(BIN)/ruff format .

docs: $(READY_DEV) ## generate pages from the code and from test markers
	$(BIN)/python -m docs.generate $(ARGS)

screenshots: $(READY_DEV) ## take the screenshots of the documentation from the demo, with Chromium
	$(BIN)/python -m docs.screenshots $(ARGS)

bench: $(READY_DEV) ## benchmark against other tools on this machine
	$(BIN)/python -m bench.run $(ARGS)

bench-shapes: $(READY_DEV) ## compare how fast Siteatlas and other tools read each shape of sitemap
	$(BIN)/python -m bench.shapes $(ARGS)

conformance: $(READY_DEV) ## run other tools on the test corpus and generate the comparison page
	$(BIN)/python -m bench.conformance $(ARGS)

sbom: $(READY) ## write a software bill of materials (CycloneDX) to build/siteatlas.cdx.json
	$(BIN)/python scripts/sbom.py build/siteatlas.cdx.json

lock: $(READY_DEV) ## re-lock dependencies
	$(COMPILE) pyproject.toml -o requirements.lock $(ARGS)
	$(COMPILE) --group pyproject.toml:build -o requirements-build.lock $(ARGS)
	$(COMPILE) --group dev pyproject.toml -o requirements-dev.lock $(ARGS)

dist: $(READY) ## build the wheel and the source distribution in dist/
	$(BIN)/python -m hatchling build $(ARGS)

clean: ## remove the virtual environment, caches and build artifacts
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .schemathesis .import_linter_cache
	find src tests bench docs -name __pycache__ -type d -prune -exec rm -rf {} +

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

$(READY): requirements.lock requirements-build.lock pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) was not found. Install Python 3.11 or later, or specify an interpreter: make PYTHON=/path/to/python3"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Siteatlas needs Python 3.11 or later; this is $$($(PYTHON) --version 2>&1 | head -n 1). Specify another interpreter: make PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "$(PYTHON) cannot create virtual environments. On Debian and Ubuntu: apt-get install python3-venv"; exit 1; }
	@echo "Installing $$(grep -c == requirements.lock) packages into $(VENV): 50 MB to download, 220 MB on disk. This happens once."
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) install --require-hashes -r requirements.lock -r requirements-build.lock
	@$(PIP) install --no-deps --no-build-isolation -e .
	@touch $@

$(READY_DEV): $(READY) requirements-dev.lock
	@echo "Installing the development tools into $(VENV): 150 MB more on disk. This happens once."
	@$(PIP) install --require-hashes -r requirements-dev.lock
	@touch $@
