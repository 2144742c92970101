# Two commands do everything on a fresh machine: `make quickstart` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: help setup quickstart test test-integration test-long test-clusters lint format coverage fuzz docs bench clean

help: ## Show the targets.
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 26

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("Bireme needs Python 3.11 or newer, and $(PYTHON) is " + sys.version.split()[0] + "; try: make PYTHON=python3.12 ...") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

setup: $(STAMP) ## Create the environment in .venv and install the package into it.

quickstart: $(STAMP) ## Set up, then train on real data.
	@mkdir -p out
	@echo "One process, two unequal contexts:"
	@$(BIN)/python examples/quickstart.py --save out/quickstart.safetensors
	@echo; echo "The same on a cluster, a scheduler, two servers and two workers:"
	@$(BIN)/bireme run -n 2 -s 2 $(BIN)/python examples/quickstart.py --kv-store dist_sync --compare out/quickstart.safetensors

test: $(STAMP) ## Set up, then run the tests, but for jobs of several processes and for clusters.
	$(BIN)/python -m pytest -m "not integration and not clusters" -n 2

test-integration: $(STAMP) ## Run the tests that start jobs of several processes and kill them.
	$(BIN)/python -m pytest -m "integration and not long"

test-long: $(STAMP) ## Run the tests of jobs as large as they come: a gigabyte of output, thousands of hosts, more than 2^31 elements (14 GB of memory).
	$(BIN)/python -m pytest -m long tests/integration

test-clusters: $(STAMP) ## Install sshd, MPI, Slurm and Grid Engine (as root, by apt-get), and run jobs there.
	@if tools/install_clusters.sh; then all=--all-installed; else all=; \
		echo "tests of what is not installed are skipped; the summary says which and why"; fi; \
	$(BIN)/python -m pytest -m clusters tests/clusters --durations=10 $$all

lint: $(STAMP) ## Lint, format check, types, import contracts, sizes, generated pages.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/check_size.py src/bireme tests
	$(BIN)/python tools/make_env_docs.py --check
	$(BIN)/python tools/make_protocol_docs.py --check

format: $(STAMP) ## Format the code.
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

coverage: $(STAMP) ## Run the tests and show which lines no test reaches.
	$(BIN)/python -m pytest --cov --cov-report=term-missing:skip-covered

fuzz: $(STAMP) ## Fuzz the wire's parser for a minute (SECONDS=3600 for longer).
	$(BIN)/python tools/fuzz_wire.py --seconds $(or $(SECONDS),60)

docs: $(STAMP) ## Write the pages that are generated from code.
	$(BIN)/python tools/make_env_docs.py
	$(BIN)/python tools/make_protocol_docs.py

bench: $(STAMP) ## Run the benchmarks beside MXNet 1.9.1 (installs it into its own environment).
	$(BIN)/python benchmarks/bench_local_store.py
	$(BIN)/python benchmarks/bench_compress.py

clean: ## Remove the environment and every cache.
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage htmlcov out
