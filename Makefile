# Two commands on a fresh machine: `make demo` and `make test`. Both set up what they need first: the demo the light
# installation without torch, the tests everything.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
MINUTES ?= 30

.PHONY: demo test test-library test-server lint docs mutants lock audit sbom setup setup-dev browser clean help
.DEFAULT_GOAL := help

help:
	@echo "make demo     install without torch, then run the main job on embedded data"
	@echo "make test     install everything, lint, and run every test; test-library and test-server run a half"
	@echo "make lint     ruff, mypy and the import contract"
	@echo "make docs     build the docs into site/, any warning an error"
	@echo "make mutants  test the tests: change the code, see which changes no test notices; MINUTES=30, goes on next time"
	@echo "make lock     resolve the dependencies anew into uv.lock, with hashes; the image installs these"
	@echo "make audit    look the packages of uv.lock up among known vulnerabilities (pip-audit); needs the network"
	@echo "make sbom     write sbom.json, the packages of uv.lock with their hashes (CycloneDX)"
	@echo "make clean    remove the virtual environment and caches"

setup: $(VENV)/.installed
setup-dev: $(VENV)/.installed-dev

$(VENV)/.installed: pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "ballcast needs Python 3.11 or newer, this is " + sys.version.split()[0])'
	$(PYTHON) -m venv $(VENV)
	@echo "installing ballcast and what it needs: half a GB, under a minute"
	$(BIN)/pip install --quiet --disable-pip-version-check --editable .
	touch $@

# torch above all, a few GB. SoccerNet's scorer is what ours is compared with; its own dependencies would bring far more than that needs.
$(VENV)/.installed-dev: $(VENV)/.installed
	@echo "installing torch and the tools of development: a few GB, a few minutes"
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev,ray]'
	$(BIN)/pip install --quiet --no-deps SoccerNet==0.1.62
	touch $@

demo: setup
	$(BIN)/ballcast demo

# The tests of pages drive a real Chromium; where it cannot be installed they skip and say so.
browser:
	@command -v chromedriver >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
	  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium chromium-driver; } >/dev/null 2>&1; } || \
	  echo "no chromedriver: the tests of pages will skip"

test: setup-dev lint browser
	$(BIN)/pytest -n 2 --dist worksteal

test-library: setup-dev lint
	$(BIN)/pytest -n 2 --dist worksteal --ignore tests/server

test-server: setup-dev lint browser
	$(BIN)/pytest -n 2 --dist worksteal tests/server

lint: setup-dev
	$(BIN)/ruff check src tests benchmarks tools
	$(BIN)/ruff format --check src tests benchmarks tools
	$(BIN)/mypy
	$(BIN)/lint-imports

# Random mutants of the modules in [tool.mutmut], pyproject.toml; results are kept in mutants/.
mutants: setup-dev
	nice $(BIN)/python -m tools.mutants --minutes $(MINUTES) --survivors

docs: setup-dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "the docs: site/index.html"

# In an environment of their own: they are no dependencies.
TOOLS := .tools/bin
$(TOOLS)/.installed: deploy/uv.txt Makefile
	$(PYTHON) -m venv .tools
	$(TOOLS)/pip install --quiet --disable-pip-version-check --require-hashes --requirement deploy/uv.txt
	$(TOOLS)/pip install --quiet --disable-pip-version-check pip-audit==2.10.1
	touch $@

lock: $(TOOLS)/.installed
	$(TOOLS)/uv lock --upgrade

audit: $(TOOLS)/.installed
	$(TOOLS)/uv export --quiet --frozen --all-extras --no-emit-project --output-file .tools/requirements.txt
	$(TOOLS)/pip-audit --strict --require-hashes --disable-pip --progress-spinner off --requirement .tools/requirements.txt

sbom: $(TOOLS)/.installed
	$(TOOLS)/uv export --quiet --frozen --all-extras --format cyclonedx1.5 --output-file sbom.json
	@echo "sbom.json: the packages of all extras; those of another selection are a part of them"

clean:
	rm -rf site mutants .tools sbom.json $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
