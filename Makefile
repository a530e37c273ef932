# Tabrelay's verbs. Every target first brings what it needs, and only what is missing: see .ci/setup.py.

PYTHON ?= python3
ARGS ?=
BROWSERS ?= chromium,firefox,webkit
# A file of tests stays in one process: they share a browser and a relay. How many processes, and in which order: tests/order.py.
PARALLEL = -n auto --dist loadfile --no-loadscope-reorder
SETUP = $(PYTHON) .ci/setup.py
BIN = .venv/bin
PLOTS = build/bench
SECONDS ?= 300

.DEFAULT_GOAL := help
.PHONY: help demo serve docs test quick test-newest test-browsers screenshots animation check lint bench bench-full bench-rivals fuzz audit format build clean

help: ## Show this list
	@echo 'usage: make TARGET [ARGS="flags passed on"]'
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{printf "%-15s %s\n", $$1, $$2}'

demo: ## Start the relay and open the demo page (ARGS="--port 9000 --no-open")
	@$(SETUP) demo
	@exec $(BIN)/tabrelay demo $(ARGS)

serve: ## Start the relay alone
	@$(SETUP) demo
	@exec $(BIN)/tabrelay serve $(ARGS)

docs: ## Build the documentation in build/docs, and check its links
	@$(SETUP) docs

test: ## Run every test, in a real browser where it matters (ARGS="-k words")
	@$(SETUP) test
	@exec $(BIN)/python -m pytest $(PARALLEL) --durations=20 --durations-min=10 $(ARGS)

quick: ## Run the tests that need no browser and no second process (ARGS="-k words")
	@$(SETUP) quick
	@exec $(BIN)/python -m pytest --quick -n auto --dist worksteal $(ARGS)

# The relay's tests that need no browser.
NEWEST = tests/server tests/http tests/faces tests/admission tests/routing tests/calls tests/peers tests/translation tests/behaviour
test-newest: ## Run the relay's tests with the newest uvicorn, httptools, websockets, starlette, FastAPI and MCP SDK
	@$(SETUP) test-newest
	@exec build/newest/bin/python -m pytest $(PARALLEL) $(or $(ARGS),$(NEWEST))

test-browsers: ## Try the core in Firefox and WebKitGTK too, and write docs/reference/browsers.md (ARGS="-k reload")
	@$(SETUP) browsers
	@TABRELAY_BROWSERS=$(BROWSERS) TABRELAY_BROWSERS_TABLE=docs/reference/browsers.md exec $(BIN)/python -m pytest tests/browsers $(ARGS)

screenshots: ## Write pictures of every page and state to build/screenshots (ARGS="console demo")
	@$(SETUP) test
	@exec $(BIN)/python -m tests.screenshots $(ARGS)

animation: ## Make the animation of README.md again, from screenshots of the demo
	@$(SETUP) test
	@exec $(BIN)/python -m tests.screenshots.animation

check: ## Lint, format, types (Python and JavaScript), import contracts, names and prose
	@$(SETUP) check
	@$(MAKE) --no-print-directory lint

# The same where everything is installed.
lint:
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/python .ci/style.py
	@$(SETUP) tsc

bench: ## Measure the hop, the way through Chromium and the boot, each beside a floor (ARGS="--rounds 9")
	@$(SETUP) bench
	@mkdir -p $(PLOTS)
	$(BIN)/python -m bench.hop --plot $(PLOTS)/hop.svg $(ARGS)
	$(BIN)/python -m bench.browser --plot $(PLOTS)/browser.svg $(ARGS)
	$(BIN)/python -m bench.boot $(ARGS)
	@echo "Pictures of the tables: $(PLOTS)"

bench-full: bench bench-rivals ## Measure everything, in under an hour: growth, large messages, memory, leaks, start-up
	$(BIN)/python -m bench.hop --callers --big 1 8 16
	$(BIN)/python -m bench.beside
	@$(SETUP) browsers
	$(BIN)/python -m bench.boot --browsers firefox,webkit
	$(BIN)/python -m bench.boot --pyscript --browsers chromium,firefox,webkit
	$(BIN)/python -m bench.growth --plot $(PLOTS)/growth.svg
	$(BIN)/python -m bench.memory
	$(BIN)/python -m bench.leak
	$(BIN)/python -m bench.startup
	$(BIN)/python -m bench.bus
	$(BIN)/python -m bench.sleep --rounds 1
	$(BIN)/python -m bench.soak 5

bench-rivals: ## Measure it beside mcp-proxy, supergateway and FastMCP's proxy (ARGS="--rounds 9")
	@$(SETUP) rivals
	@mkdir -p $(PLOTS)
	@exec $(BIN)/python -m bench.rivals --plot $(PLOTS)/rivals.svg $(ARGS)

fuzz: ## Fuzz the parsers, coverage-guided, each against another implementation (SECONDS=3600 ARGS="http_connection")
	@$(SETUP) fuzz
	@exec $(BIN)/python -m tests.fuzz --seconds $(SECONDS) $(ARGS)

audit: ## Look for known problems in the packages we depend on (asks PyPI and npm)
	@exec $(PYTHON) .ci/audit.py

format: ## Rewrite the Python files the way `make check` wants them
	@$(SETUP) check
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

build: ## Make one self-contained wheel and its wheelhouse in dist/
	@$(SETUP) build

clean: ## Remove everything that make made (environment, packages, assets, wheels)
	rm -rf .venv node_modules build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
