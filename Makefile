# Two commands do everything: `make demo` and `make test`. Both set up .venv first, the second with all that tests need.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
BASE := $(VENV)/.base
STAMP := $(VENV)/.ready

.PHONY: setup demo test lint docs picture bench bench-coverage browser web play-page clean clean-kernels

setup: $(STAMP)

# The tested versions are pinned in constraints.txt; the package's own ranges stay open.
$(BASE): pyproject.toml constraints.txt
	@echo "installing into $(VENV): this takes some minutes"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade --constraint constraints.txt pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch numpy
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable .
	touch $(BASE)

$(STAMP): $(BASE)
	@echo "installing what tests, docs and benchmarks need: some minutes more"
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $(STAMP)

demo: $(BASE)
	$(BIN)/mast demo

test: setup browser play-page lint
	$(BIN)/python -m pytest -n 2 --dist loadfile

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Debian's Chromium for the page tests, where it may be installed; the tests say why they skip where not.
browser:
	@command -v chromium >/dev/null && command -v chromedriver >/dev/null || \
	  { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
	    apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium chromium-driver >/dev/null; } || \
	  echo "chromium could not be installed here: the browser tests will be skipped"

# The docs site, in site/; a warning is an error.
docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

# The page of `mast play`: onnxruntime-web and the page's own code by npm from the lock file, and the exported policies.
SITE := src/mast_swarm/play/site
PAGE := $(wildcard web/src/* web/*.json web/build.mjs src/mast_swarm/interop/*.py src/mast_swarm/zoo/*/*/*.safetensors) \
  src/mast_swarm/play/policies.py

web: $(SITE)/.ready

$(SITE)/.ready: $(STAMP) $(PAGE)
	@command -v npm >/dev/null || { echo "the page needs node and npm to be built (Debian: apt-get install nodejs npm)"; exit 1; }
	rm -rf $(SITE)
	cd web && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error && node build.mjs ../$(SITE)
	$(BIN)/python -m mast_swarm.play.policies $(SITE)/policies
	touch $@

# For tests: where the page cannot be built they say why they skip.
play-page: setup
	@$(MAKE) --no-print-directory web || echo "the playground could not be built here: its browser tests will be skipped"

# The README's moving picture.
picture: setup
	rm -rf runs/picture docs/pictures/moving.gif
	$(BIN)/mast evaluate navigation --policy mast-m dhba-8 --delay 1 --scenario text:MAST --agents 80 --episodes 1 \
	  --steps 240 --record 1 --out runs/picture
	$(BIN)/mast replay runs/picture --out docs/pictures/moving.gif

bench: setup
	$(BIN)/python -m benchmarks

# Against coverage-control, which is GPL: in an environment of its own, and never a dependency.
bench-coverage: setup .venv-peer/.ready
	$(BIN)/python -m benchmarks.coverage
	$(BIN)/python -m benchmarks.coverage_means

.venv-peer/.ready: constraints.txt
	$(PYTHON) -m venv .venv-peer
	.venv-peer/bin/python -m pip install --quiet --constraint constraints.txt coverage-control==1.3.1 torch numpy
	touch $@

# numba's compiled kernels; it does not notice a change in a module that a kernel calls into.
clean-kernels:
	find src -name '*.nb[ic]' -delete

clean:
	rm -rf $(VENV) $(SITE) web/node_modules .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist
