# Every target creates .venv and installs what it needs there; only Python 3.11+ and make have to be there.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Ends at once where nothing is to be done.
INSTALL := $(PYTHON) requirements/install.py
# More than there are cores: many tests wait for brokers.
WORKERS ?= $(shell $(PYTHON) -c 'import os; print((os.cpu_count() or 1) + 3)')
# Where this is set, each worker and each program that a test starts would compile all that it imports anew.
export PYTHONDONTWRITEBYTECODE :=
# Tests and benchmarks import onnxruntime themselves, and it would tell its makers so (docs/models.md).
export ORT_DISABLE_TELEMETRY ?= 1

.PHONY: help install packages optimised native demo demo-sensors demo-cameras demo-objects test test-fast programs lint style format types layers bench bench-peers bench-cameras bench-tracking bench-detectors bench-flow bench-serving bench-map bench-arrow docs docs-serve docs-publish pictures soak protos lock clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-15s %s\n", $$1, $$2}'

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

demo-cameras:  ## the same for people, cars and cups on four cameras, on a page in the browser
	@$(INSTALL) demo-cameras
	$(BIN)/streamer demo cameras

demo-objects:  ## people and cups in a film, found by a detector and counted as they pass the middle
	@$(INSTALL) demo-cameras
	$(BIN)/streamer demo objects

# Types are checked last: the first time that takes a minute in which nothing else would be seen.
# Bytecode is kept even where the environment says otherwise: each worker would rewrite the assertions of all files anew.
PYTEST = PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder --max-worker-restart 0
test: install programs style  ## linters, the whole test suite and types (about a quarter of an hour on two cores)
	$(PYTEST) -m 'not soak'
	@$(MAKE) --no-print-directory types layers

test-fast: install  ## the tests that need no broker, start no programs and do not wait (a minute or two on two cores)
	$(PYTEST) -m 'not kafka and not mqtt and not soak and not slow' --hypothesis-profile fast -q

# What tests start that no package of Python brings. Nothing is installed where it is there already, nor a broker where
# MQTT_BROKER names one. Other programs are got by the tests that need them (tests/support/programs.py).
MISSING = not installed: tests of mosquitto use a container or are skipped, those of pages are skipped (in CI they fail): \
  sudo apt-get install mosquitto mosquitto-clients chromium, or brew install mosquitto chromium, or set MQTT_BROKER=host:port
programs:  ## install mosquitto and Chromium, which tests start, where apt-get as root can do it
	@packages=; \
	test -n "$$MQTT_BROKER" || PATH="$$PATH:/usr/sbin:/usr/local/sbin:/opt/homebrew/sbin" command -v mosquitto >/dev/null || packages="mosquitto mosquitto-clients"; \
	command -v chromium >/dev/null || packages="$$packages chromium"; \
	test -n "$$packages" || exit 0; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  echo "installing $$packages ..."; \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$packages >/dev/null && exit; \
	fi; \
	echo "$$packages: $(MISSING)" >&2

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

bench-detectors: optimised  ## what DETECT costs beside its model, against the same work by hand; writes the table (a minute)
	$(BIN)/python -m benchmarks.detectors.run --peers --write

bench-flow: optimised  ## what batches at the same time, joined batches and target_latency give (a minute or two, on a quiet machine)
	$(BIN)/python -m benchmarks.flow

bench-serving: optimised  ## what an answer over HTTP and gRPC costs, beside FastAPI and MLServer (five minutes)
	$(BIN)/python -m benchmarks.serving --peers

bench-map: optimised  ## what shaping records by SQL costs, beside a function of Python (a minute)
	$(BIN)/python -m benchmarks.map

bench-arrow: optimised  ## what a pipeline on Arrow record batches costs, beside code by hand and pandas (a minute)
	$(BIN)/python -m benchmarks.arrow

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
	$(PYTEST) -m 'hypothesis and not soak' --hypothesis-profile thorough -q

pictures: install  ## draw the documentation's pictures anew, from examples that run for it (some minutes)
	$(BIN)/python docs/pictures.py
	PYTHONPATH=docs $(BIN)/python -m drawn

# protoc 31 (grpcio-tools 1.78.0) writes modules that every protobuf runtime from 6.31 on accepts.
protos:  ## regenerate the modules of protos/*.proto and their stubs
	@test -x .venv-protos/bin/python || $(PYTHON) -m venv .venv-protos
	@.venv-protos/bin/python -m pip install --quiet --disable-pip-version-check 'grpcio-tools==1.78.0'
	.venv-protos/bin/python -m grpc_tools.protoc -I. --python_out=. --pyi_out=. protos/data.proto protos/sparkplug.proto protos/open_inference.proto

# Programs that build and check releases are in an environment of their own.
OUT := dist
.PHONY: wheel sbom release-check
.venv-release/.installed: requirements/release.txt
	@test -x .venv-release/bin/python || $(PYTHON) -m venv .venv-release
	@echo "installing what builds releases into .venv-release (half a minute) ..."
	@.venv-release/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement requirements/release.txt
	@touch $@
wheel: .venv-release/.installed  ## build this machine's wheel, the pure one and the sdist into dist/; run a service with each wheel
	.venv-release/bin/python release/wheels.py --out $(OUT)
sbom: .venv-release/.installed  ## write dist/sbom.cdx.json: the packages and crates of a server, by CycloneDX
	.venv-release/bin/python release/sbom.py $(OUT)/sbom.cdx.json
release-check:  ## check that the version, CHANGELOG.md and the tag in the variable TAG agree
	@$(PYTHON) release/agree.py $$TAG

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
	$(COMPILE) $(if $(UPGRADE),--upgrade) --generate-hashes --constraint requirements/dev.txt $(addprefix --no-emit-package ,numpy python-dateutil pytz six tzdata) requirements/spark.in --output-file requirements/spark.txt
	$(COMPILE) $(if $(UPGRADE),--upgrade) --generate-hashes --constraint requirements/dev.txt --no-deps requirements/ray.in --output-file requirements/ray.txt
	$(COMPILE) $(if $(UPGRADE),--upgrade) --generate-hashes --constraint requirements/dev.txt requirements/release.in --output-file requirements/release.txt
	@{ echo '# Versions that are tested together, for installing any extra: pip install --constraint constraints.txt ...'; \
	   sed -n 's/^\([a-z0-9._-]*==[^\]*[^ \]\) *\\*$$/\1/p' requirements/dev.txt; } > constraints.txt
	@{ echo '# Versions of onnxruntime for GPUs, and of the CUDA libraries that come with it.'; \
	   echo "onnxruntime-gpu[cuda,cudnn]==$$(sed -n 's/^onnxruntime==//p' constraints.txt | tail -1)" \
	   | $(COMPILE) --constraint constraints.txt - | grep -E '^(nvidia-|onnxruntime-gpu)'; } > constraints-gpu.txt

clean:  ## remove what the targets created
	rm -rf .venv .venv-release .venv-protos .venv-lock .bench-venvs build *.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis native/target native/fuzz/target native/*.so streamer_native/*.so
