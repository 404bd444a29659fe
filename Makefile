# Each target makes its own virtual environment in .venv and installs what it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test lint bench clean debian

demo: $(READY)
	$(BIN)/interlock demo

test: $(READY)
	$(BIN)/python -m pytest $(ARGS)

lint: $(READY) build/typing/interlock
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	MYPYPATH=build/typing $(BIN)/mypy --cache-dir .mypy_cache -p interlock

bench: $(READY)
	$(BIN)/interlock bench flush
	$(BIN)/interlock bench calls

$(READY): pyproject.toml constraints.txt Makefile | debian
	$(PYTHON) -c 'import sys; sys.exit("Interlock needs Python 3.11 or newer, this is " + sys.version.split()[0]) if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

# Bubblewrap is optional: without it Landlock confines, and its tests skip with a word. So do those of
# the formal model without spin and a C compiler.
debian:
	@if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && [ -z "$$INTERLOCK_NO_DEBIAN" ] \
	  && ! { command -v bwrap && command -v spin && command -v gcc; } >/dev/null; then \
	  (apt-get update -qq && apt-get install -y -qq bubblewrap git && apt-get install -y -qq spin gcc libc6-dev) >/dev/null 2>&1 \
	  || echo "bubblewrap or spin could not be installed; going on without"; fi

# mypy sees the folders under their import name through links.
build/typing/interlock:
	mkdir -p $@
	for d in actors backends sandbox; do ln -sfn ../../../$$d $@/$$d; done

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
