# Everything a person or CI runs. Recipes keep stdout for the program: set-up talks on stderr.
#   make demo ARGS="--headless --for 45 --json"
# make itself can only answer 0 or 2; for a program's own exit status run .venv/bin/rgt directly.

SHELL := bash
MAKEFLAGS += --no-print-directory
.NOTPARALLEL:
.DEFAULT_GOAL := help
.PHONY: help setup ready demo-ready parts frameworks services lock demo test test-all test-rest test-ready torture gate-check autostop-check lint format bench screenshots clean distclean

ARGS ?=

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

setup: ready ## build .venv and install the system parts that are missing (a no-op when nothing changed)
	@echo "setup: ready, try: make demo" >&2

ready:
	@bash scripts/setup.sh all >&2

# What developers use beside it (the linters, Slurm, compilers) is left to the other targets.
demo-ready:
	@bash scripts/setup.sh demo >&2

parts: ## try again to install the system parts that are missing
	@bash scripts/system_parts.sh install all >&2

frameworks: ready ## build .venv-frameworks: the libraries that some tests of the trainer need
	@bash scripts/frameworks.sh >&2

services: ready ## run the adapters against real servers of dstack and SkyPilot, on the loopback (ARGS="-k dstack")
	@bash scripts/services.sh >&2
	@RGT_SERVICES=live exec .venv/bin/python -m pytest -n 0 tests/contract/services \
		tests/contract/providers/test_official_clients.py $(ARGS)

lock: ready ## resolve requirements/*.in into requirements/*.lock (ARGS="--upgrade" to move everything)
	@bash scripts/lock.sh $(ARGS) >&2

demo: demo-ready ## watch three boxes really train on this machine (ARGS="--headless --for 45 --json")
	@exec .venv/bin/rgt demo $(ARGS)

test: test-ready ## run the tests; fails when a system part is missing (ARGS="tests/unit -k name")
	@exec .venv/bin/python scripts/run_tests.py $(ARGS)

test-all: test-ready ## run every test, the full matrices as well, then the torture and the checks below
	@.venv/bin/python scripts/run_tests.py --full
	@$(MAKE) torture gate-check autostop-check

# What CI adds to `make test`, as far as there is time: no test begins after $RGT_TESTS_UNTIL.
test-rest: test-ready
	@exec .venv/bin/python scripts/run_tests.py --rest

test-ready: ready
	@bash scripts/system_parts.sh check >&2
	@bash scripts/frameworks.sh >&2
	@bash scripts/interpreters.sh >&2

torture: ready ## the full forms of the trainer's torture, about an hour (ARGS="-k syscall")
	@bash scripts/frameworks.sh >&2
	@RGT_TORTURE=full exec .venv/bin/python -m pytest -n 0 -s -o timeout=7200 tests/torture/train $(ARGS)

gate-check: ready ## a hundred thousand random steps against the gate, and each of its guards left out
	@RGT_TORTURE=full exec .venv/bin/python -m pytest -n 0 -s -o timeout=7200 tests/torture/gate $(ARGS)

autostop-check: ready ## a hundred thousand samples of a box that stops itself, and each of its guards left out
	@RGT_TORTURE=full exec .venv/bin/python -m pytest -n 0 -s -o timeout=7200 tests/torture/autostop $(ARGS)

lint: ready ## formatting, lint, types and import rules
	@bash scripts/lint.sh

format: ready ## format the code and apply the safe fixes
	@.venv/bin/ruff format .
	@.venv/bin/ruff check --fix .

bench: ready ## run every benchmark (ARGS="--quick", ARGS="startup idle")
	@exec .venv/bin/python -m benchmarks $(ARGS)

screenshots: ready ## drive the real app on the real demo and write screenshots/ and docs/screens/walk.md
	@.venv/bin/python -m scripts.screenshots $(ARGS)
	@.venv/bin/python -m scripts.walk
	@exec .venv/bin/python -m scripts.night

clean: ## remove caches and build outputs
	@rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis snapshot_report.html
	@find . -path ./.venv -prune -o -path ./.git -prune -o -type d -name __pycache__ -prune -exec rm -rf {} +

distclean: clean ## remove .venv as well
	@rm -rf .venv .venv-frameworks .venv-services .interpreters
