# Every target creates .venv and installs what it needs there; only Python 3.11+ and make have to be there.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Ends at once where nothing is to be done.
INSTALL := $(PYTHON) requirements/install.py
# More than there are cores: many tests wait for brokers.
WORKERS ?= $(shell $(PYTHON) -c 'import os; print((os.cpu_count() or 1) + 2)')
# Where this is set, each worker and each program that a test starts would compile all that it imports anew.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help install packages optimised native demo demo-sensors demo-cameras test test-fast mosquitto chromium prometheus lint style format types layers bench bench-peers bench-cameras bench-tracking docs docs-serve docs-publish pictures soak protos lock clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

install:  ## create .venv with everything that tests need, and compile the hot path quickly if cargo is there
	@$(INSTALL) dev --native quick

packages:
	@$(INSTALL) dev

optimised:
	@$(INSTALL) dev --native release

native:  ## compile the hot path as wheels have it, in place (a minute or two), and say whether it can be used
	@$(INSTALL) demo --native release --insist
	@$(BIN)/python -c 'import sys; from pipelines.hotpath import why_not; sys.exit(why_not() or print("it can be used"))'

demo:  ## run digits from topic to topic on a local broker: a minute the first time, then half a minute
	@$(INSTALL) demo
	$(BIN)/streamer demo

demo-sensors:  ## the same for machines that publish their vibration on MQTT
	@$(INSTALL) demo
	$(BIN)/streamer demo sensors

demo-cameras:  ## the same for faces on four cameras, on a page in the browser
	@$(INSTALL) demo-cameras
	$(BIN)/streamer demo cameras

# Types are checked last: the first time that takes a minute in which nothing else would be seen.
PYTEST = $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder --max-worker-restart 0
test: install mosquitto chromium prometheus style  ## linters, the whole test suite and types (about a quarter of an hour on two cores)
	$(PYTEST) -m 'not soak'
	@$(MAKE) --no-print-directory types layers

test-fast: install  ## the tests that need no broker, start no programs and do not wait (a minute or two on two cores)
	$(PYTEST) -m 'not kafka and not mqtt and not soak and not slow' --hypothesis-profile fast -q

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

# The library that `docker compose` reads its files with; its own command prints what it has read. It needs no Docker.
COMPOSE_GO_VERSION := v2.9.0
COMPOSE_GO := $(HOME)/.cache/streamer-tests/compose-go-$(COMPOSE_GO_VERSION)/cmd
.PHONY: compose-go
test: compose-go
compose-go:  ## build what tests check docker-compose.yml with, where Go is (a minute, once)
	@test -x $(COMPOSE_GO) && exit; \
	if ! command -v go >/dev/null; then echo "Go is not installed, so docker-compose.yml is not checked by Compose's own library (in CI that test fails): https://go.dev/dl" >&2; exit; fi; \
	echo "building compose-go $(COMPOSE_GO_VERSION) ..."; \
	GOBIN=$(dir $(COMPOSE_GO)) go install github.com/compose-spec/compose-go/v2/cmd@$(COMPOSE_GO_VERSION)

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

# The Helm that tests render the chart with: that of PATH, else it is built once from Go's module proxy and kept outside of the
# checkout. It is not optimised, as that would take longer to build than the tests use it.
HELM_VERSION := v3.22.0
HELM := $(HOME)/.cache/streamer-tests/helm-$(HELM_VERSION)/helm
.PHONY: helm
test: helm
helm:  ## build Helm, with which the tests render the chart, where it is not installed and Go is (some minutes, once)
	@if command -v helm >/dev/null || [ -x $(HELM) ]; then exit; fi; \
	if ! command -v go >/dev/null; then \
	  echo "neither helm nor Go is installed, so tests of the chart are skipped (in CI they fail): https://helm.sh/docs/intro/install" >&2; exit; \
	fi; \
	echo "building helm $(HELM_VERSION) ..."; \
	CGO_ENABLED=0 GOBIN=$(dir $(HELM)) go install -gcflags='all=-N -l' -ldflags='-s -w' helm.sh/helm/v3/cmd/helm@$(HELM_VERSION)

lint: style types layers  ## all that checks the code without running it

style: packages  ## ruff: format and lint rules
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: packages  ## mypy --strict on the packages and their tests
	$(BIN)/mypy

layers: packages  ## each package imports only what it may
	$(BIN)/lint-imports

format: packages  ## format and fix what ruff can fix
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: optimised  ## CPU per message against a hand-written loop and a relay in C, on one broker, and of MQTT clients (ten minutes)
	$(BIN)/python -m benchmarks.run
	$(BIN)/python -m benchmarks.mqtt.run

bench-peers: optimised  ## the same with Bytewax, Quix Streams, FastStream, Faust and MQTT clients; writes the tables and the plot (fifteen minutes)
	$(BIN)/python -m benchmarks.run --peers --write
	$(BIN)/python -m benchmarks.mqtt.run --peers --write

bench-cameras: optimised  ## what a picture of a camera costs, against loops written by hand and OpenCV; writes the table (ten minutes)
	$(BIN)/python -m benchmarks.cameras.run --peers --write

bench-tracking: optimised  ## how well TRACK keeps the ids of objects, beside the package trackers; writes the table (two minutes)
	$(BIN)/python -m benchmarks.tracking.run --peers --write

docs: packages  ## build the documentation site into build/site; a link that leads nowhere is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "build/site/index.html"

docs-serve: packages  ## show the documentation site on http://127.0.0.1:8000, and again when a page changes; without the Python API
	DOCS_API=false NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve --dev-addr 127.0.0.1:8000

# mike calls mkdocs by its name.
docs-publish: packages  ## commit the site to the local branch gh-pages as VERSION (VERSION=0.2) and `latest`; pushes nothing
	@test -n "$(VERSION)" || { echo "which version? make docs-publish VERSION=0.2" >&2; exit 2; }
	PATH="$(CURDIR)/$(BIN):$$PATH" NO_MKDOCS_2_WARNING=1 $(BIN)/mike deploy --update-aliases --alias-type redirect '$(VERSION)' latest
	$(BIN)/mike set-default latest

soak: install  ## the long tests, for hours: hundreds of kills, restarts, standstills and members that come and go; five million messages; with progress and a report
	$(BIN)/python -m pytest -m soak -s

pictures: install  ## draw the documentation's pictures anew, from examples that run for it (some minutes)
	$(BIN)/python docs/pictures.py
	PYTHONPATH=docs $(BIN)/python -m drawn

# protoc 31 (grpcio-tools 1.78.0) writes modules that every protobuf runtime from 6.31 on accepts.
protos:  ## regenerate the modules of protos/*.proto and their stubs
	@test -x .venv-protos/bin/python || $(PYTHON) -m venv .venv-protos
	@.venv-protos/bin/python -m pip install --quiet --disable-pip-version-check 'grpcio-tools==1.78.0'
	.venv-protos/bin/python -m grpc_tools.protoc -I. --python_out=. --pyi_out=. protos/data.proto protos/sparkplug.proto

# Programs that build and check releases are in an environment of their own.
OUT := dist
.PHONY: wheel
.venv-release/.installed: requirements/release.txt
	@test -x .venv-release/bin/python || $(PYTHON) -m venv .venv-release
	@echo "installing what builds releases into .venv-release (half a minute) ..."
	@.venv-release/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement requirements/release.txt
	@touch $@
wheel: .venv-release/.installed  ## build this machine's wheel, the pure one and the sdist into dist/; run a service with each wheel
	.venv-release/bin/python release/wheels.py --out $(OUT)

# A lock file keeps the versions that it has; with UPGRADE=1 it gets the newest that work together. The other files take
# theirs from that of developers, so that what is shipped is what is tested.
COMPILE = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --no-header --no-annotate
lock: packages  ## write requirements/*.txt and constraints*.txt anew from pyproject.toml; with UPGRADE=1 with the newest versions
	@test -x $(BIN)/uv || $(BIN)/python -m pip install --quiet --require-hashes --requirement requirements/uv.txt
	$(COMPILE) $(if $(UPGRADE),--upgrade) --generate-hashes requirements/uv.in --output-file requirements/uv.txt
	$(COMPILE) $(if $(UPGRADE),--upgrade) --generate-hashes --extra dev pyproject.toml requirements/build.in --output-file requirements/dev.txt
	$(COMPILE) --generate-hashes --constraint requirements/dev.txt --extra demo pyproject.toml requirements/build.in --output-file requirements/demo.txt
	$(COMPILE) --generate-hashes --constraint requirements/dev.txt --extra demo-cameras pyproject.toml requirements/build.in --output-file requirements/demo-cameras.txt
	$(COMPILE) --generate-hashes --constraint requirements/dev.txt --extra kafka --extra onnx pyproject.toml --output-file requirements/server.txt
	$(COMPILE) $(if $(UPGRADE),--upgrade) --generate-hashes --constraint requirements/dev.txt requirements/release.in --output-file requirements/release.txt
	@{ echo '# Versions that are tested together, for installing any extra: pip install --constraint constraints.txt ...'; \
	   sed -n 's/^\([a-z0-9._-]*==[^\]*[^ \]\) *\\*$$/\1/p' requirements/dev.txt; } > constraints.txt
	@{ echo '# Versions of onnxruntime for GPUs, and of the CUDA libraries that come with it.'; \
	   echo "onnxruntime-gpu[cuda,cudnn]==$$(sed -n 's/^onnxruntime==//p' constraints.txt | tail -1)" \
	   | $(COMPILE) --constraint constraints.txt - | grep -E '^(nvidia-|onnxruntime-gpu)'; } > constraints-gpu.txt

clean:  ## remove what the targets created
	rm -rf .venv .venv-release .venv-protos .venv-lock .bench-venvs build *.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis native/target native/fuzz/target native/*.so streamer_native/*.so
