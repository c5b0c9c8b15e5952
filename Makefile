# Every target creates .venv and installs what it needs; only Python 3.11+ and make have to be there.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# More than there are cores: many tests wait for brokers.
WORKERS ?= $(shell $(PYTHON) -c 'import os; print((os.cpu_count() or 1) + 2)')
# Where this is set, each worker and each program that a test starts would compile all that it imports anew.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help install native demo test test-fast mosquitto chromium prometheus lint format types layers bench bench-peers bench-cameras bench-tracking docs docs-serve pictures soak protos lock clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

install: $(STAMP)  ## create .venv and install streamer with everything its tests need

# The compiled hot path is built with the rest where cargo is; a change of its sources builds it again.
$(STAMP): pyproject.toml constraints.txt native/Cargo.toml native/build.rs $(wildcard native/src/*.rs native/src/*/*.rs native/src/*/*/*.rs)
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "streamer needs Python 3.11 or later: make PYTHON=python3.12 ...")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@rm -f native/*.so native/*.pyd  # of versions that kept the extension there
	@echo "installing into $(VENV) (some minutes the first time, most of them for compiling native/ if cargo is there) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@

# Only what changed is compiled. Broken Rust is an error here, where an installation goes on without it.
native:  ## build the compiled hot path again, in place (half a minute), and say whether it can be used
	cargo check --quiet --manifest-path native/Cargo.toml
	@rm -f $(STAMP)
	@$(MAKE) --no-print-directory install
	@$(BIN)/python -c 'import sys; from pipelines.hotpath import why_not; sys.exit(why_not() or print("it can be used"))'

demo: $(STAMP)  ## run digits from topic to topic on a local broker, in under a minute once it is installed
	$(BIN)/streamer demo

test: lint mosquitto chromium prometheus  ## lint, types, layers and the whole test suite (about a quarter of an hour on two cores)
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder --max-worker-restart 0 -m 'not soak'

test-fast: $(STAMP)  ## the tests that need no broker, start no programs and do not wait (a minute or two on two cores)
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder --max-worker-restart 0 -m 'not kafka and not mqtt and not soak and not slow' --hypothesis-profile fast -q

# Nothing is installed where it is there already, nor where MQTT_BROKER names a broker. Tests use Debian's clients too.
MISSING = mosquitto is not installed, so MQTT tests use a container or are skipped (in CI they fail): \
  sudo apt-get install mosquitto mosquitto-clients, or brew install mosquitto, or set MQTT_BROKER=host:port
mosquitto:  ## install the MQTT broker that the tests start, where apt-get as root can do it
	@if [ -n "$$MQTT_BROKER" ] || PATH="$$PATH:/usr/sbin:/usr/local/sbin:/opt/homebrew/sbin" command -v mosquitto >/dev/null; then exit; fi; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  echo "installing mosquitto ..."; \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends mosquitto mosquitto-clients >/dev/null && exit; \
	fi; \
	echo "$(MISSING)" >&2

# Pages are looked at in it by tests, and photographed for the documentation.
chromium:  ## install the browser that tests of pages start, where apt-get as root can do it
	@if command -v chromium >/dev/null; then exit; fi; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  echo "installing chromium ..."; \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium >/dev/null && exit; \
	fi; \
	echo "chromium is not installed, so tests of pages are skipped (in CI they fail): sudo apt-get install chromium" >&2

# Debian's package is unpacked and not installed: installing it would start a server. Where both programs are there already, or
# were unpacked before, nothing is done.
PROMETHEUS := $(VENV)/prometheus
NO_PROMETHEUS = promtool and prometheus are not on the PATH, so tests of alerts and of the Grafana board are skipped (in CI they \
  fail): brew install prometheus, or put the programs of https://prometheus.io/download on the PATH
prometheus:  ## unpack the Prometheus that the tests of alerts and of the Grafana board start, where apt-get is
	@if test -x $(PROMETHEUS)/usr/bin/promtool || { command -v promtool && command -v prometheus; } >/dev/null; then exit; fi; \
	if command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null; then \
	  echo "getting prometheus ..."; \
	  rm -rf $(PROMETHEUS) && mkdir -p $(PROMETHEUS) && cd $(PROMETHEUS) \
	  && { apt-get -qq -o APT::Sandbox::User=root download prometheus 2>/dev/null \
	       || { apt-get update -qq && apt-get -qq -o APT::Sandbox::User=root download prometheus; }; } \
	  && dpkg-deb --extract prometheus_*.deb . && rm prometheus_*.deb && exit; \
	fi; \
	echo "$(NO_PROMETHEUS)" >&2

# A Go program: it is built where Go is, and kept for other checkouts.
ACTIONLINT_VERSION := v1.7.12
ACTIONLINT := $(HOME)/.cache/streamer-tests/actionlint-$(ACTIONLINT_VERSION)/actionlint
.PHONY: actionlint
test: actionlint
actionlint:  ## build the linter of .github/workflows, which the tests use, where Go is (half a minute, once)
	@test -x $(ACTIONLINT) && exit; \
	if ! command -v go >/dev/null; then echo "Go is not installed, so .github/workflows is not linted" >&2; exit; fi; \
	echo "building actionlint $(ACTIONLINT_VERSION) ..."; \
	GOBIN=$(dir $(ACTIONLINT)) go install github.com/rhysd/actionlint/cmd/actionlint@$(ACTIONLINT_VERSION)

lint: $(STAMP)  ## ruff, mypy --strict on the packages and their tests, and the layer contract
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(STAMP)  ## format and fix what ruff can fix
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(STAMP)  ## CPU per message against a hand-written loop and a relay in C, on one broker, and of MQTT clients (ten minutes)
	$(BIN)/python -m benchmarks.run
	$(BIN)/python -m benchmarks.mqtt.run

bench-peers: $(STAMP)  ## the same with Bytewax, Quix Streams, FastStream, Faust and MQTT clients; writes the tables and the plot (fifteen minutes)
	$(BIN)/python -m benchmarks.run --peers --write
	$(BIN)/python -m benchmarks.mqtt.run --peers --write

bench-cameras: $(STAMP)  ## what a picture of a camera costs, against loops written by hand and OpenCV; writes the table (ten minutes)
	$(BIN)/python -m benchmarks.cameras.run --peers --write

bench-tracking: $(STAMP)  ## how well TRACK keeps the ids of objects, beside the package trackers; writes the table (two minutes)
	$(BIN)/python -m benchmarks.tracking.run --peers --write

docs: $(STAMP)  ## build the documentation site into build/site; a link that leads nowhere is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "build/site/index.html"

docs-serve: $(STAMP)  ## show the documentation site on http://127.0.0.1:8000, and again when a page changes
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve --dev-addr 127.0.0.1:8000

soak: $(STAMP)  ## the long tests, for hours: hundreds of kills, restarts, standstills and members that come and go; five million messages; with progress and a report
	$(BIN)/python -m pytest -m soak -s

pictures: $(STAMP)  ## draw the documentation's pictures anew, from examples that run for it (some minutes)
	$(BIN)/python docs/pictures.py
	PYTHONPATH=docs $(BIN)/python -m drawn

# protoc 31 (grpcio-tools 1.78.0) writes modules that every protobuf runtime from 6.31 on accepts.
protos:  ## regenerate the modules of protos/*.proto and their stubs
	@test -x .venv-protos/bin/python || $(PYTHON) -m venv .venv-protos
	@.venv-protos/bin/python -m pip install --quiet --disable-pip-version-check 'grpcio-tools==1.78.0'
	.venv-protos/bin/python -m grpc_tools.protoc -I. --python_out=. --pyi_out=. protos/data.proto protos/sparkplug.proto

lock:  ## refresh constraints.txt and constraints-gpu.txt with the newest versions that work together
	$(PYTHON) -m venv --clear .venv-lock
	.venv-lock/bin/python -m pip install --quiet --disable-pip-version-check '.[dev]'
	@{ echo '# Versions that are tested together; `make lock` refreshes them.'; \
	   .venv-lock/bin/python -m pip list --format=freeze --exclude streamer-inference --exclude pip --exclude setuptools; } > constraints.txt
	@{ echo '# Versions of onnxruntime for GPUs, and of the CUDA libraries that come with it; `make lock` refreshes them.'; \
	   .venv-lock/bin/python -m pip install --quiet --disable-pip-version-check --dry-run --ignore-installed \
	     --constraint constraints.txt --report - "onnxruntime-gpu[cuda,cudnn]==$$(sed -n 's/^onnxruntime==//p' constraints.txt)" \
	   | .venv-lock/bin/python -c 'import json, sys; \
	     named = [one["metadata"] for one in json.load(sys.stdin)["install"]]; \
	     pins = sorted("{name}=={version}".format(**one) for one in named); \
	     print(*[pin for pin in pins if pin.startswith(("nvidia-", "onnxruntime-gpu"))], sep="\n")'; } > constraints-gpu.txt
	rm -rf .venv-lock

clean:  ## remove what the targets created
	rm -rf .venv .venv-protos .venv-lock .bench-venvs build *.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis native/target native/fuzz/target native/*.so streamer_native/*.so
