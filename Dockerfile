# The streamer command with Kafka and ONNX: docker build -t streamer-inference . && docker run streamer-inference --help
#
# The images that it builds on are arguments, so that a release names them by digest (.github/workflows/release.yml).
ARG RUST_IMAGE=rust:1.95-slim-bookworm
ARG BUILD_IMAGE=python:3.12-bookworm
ARG PYTHON_IMAGE=python:3.12-slim-bookworm

FROM ${RUST_IMAGE} AS rust

# Not the slim image: the compiled hot path is linked by its C compiler.
FROM ${BUILD_IMAGE} AS build

COPY --from=rust /usr/local/rustup /usr/local/rustup
COPY --from=rust /usr/local/cargo /usr/local/cargo
ENV RUSTUP_HOME=/usr/local/rustup CARGO_HOME=/usr/local/cargo PATH=/usr/local/cargo/bin:$PATH

WORKDIR /src
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
# The environment has no pip of its own: nothing is installed into it later. Packages come first, so that they are kept
# when only the code changes.
RUN python -m venv --without-pip /opt/streamer
COPY requirements/server.txt requirements/server.txt
RUN python -m pip --python /opt/streamer install --require-hashes --requirement requirements/server.txt
COPY pyproject.toml setup.py constraints.txt constraints-gpu.txt README.md LICENSE ./
COPY native native
COPY streamer_native streamer_native
COPY protos protos
COPY pipelines pipelines
COPY connectors connectors
COPY streamer streamer
COPY examples/digits examples/digits
COPY examples/sensors examples/sensors
COPY examples/cameras examples/cameras
COPY examples/objects examples/objects
# An image without the compiled hot path would run at a fraction of the speed: it is not built at all.
RUN STREAMER_NATIVE=native python -m pip wheel --no-deps --wheel-dir /wheels . \
    && python -m pip --python /opt/streamer install --no-deps /wheels/*.whl
# Another build of onnxruntime instead of that for CPUs; only one may be installed. For GPUs: onnxruntime-gpu[cuda,cudnn]
ARG ONNXRUNTIME=onnxruntime
RUN if [ "$ONNXRUNTIME" != onnxruntime ]; then \
      python -m pip --python /opt/streamer uninstall --yes onnxruntime \
      && python -m pip --python /opt/streamer install --constraint constraints.txt --constraint constraints-gpu.txt "$ONNXRUNTIME"; \
    fi

FROM ${PYTHON_IMAGE}

ARG VERSION=unreleased
ARG REVISION=unknown
LABEL org.opencontainers.image.title="streamer-inference" \
      org.opencontainers.image.description="Run models on records as they arrive: Kafka in, ONNX pipeline, Kafka out" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.revision="$REVISION"
COPY --from=build /opt/streamer /opt/streamer
ENV PATH=/opt/streamer/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
RUN useradd --uid 10001 --create-home streamer
# By number, so that Kubernetes can see that it is not root.
USER 10001
WORKDIR /srv

# Drains and commits on SIGTERM. There is no HEALTHCHECK here: which port answers /live, and whether there is one, is in the
# service file, so that docker-compose.yml and the Helm chart have the probes.
STOPSIGNAL SIGTERM
ENTRYPOINT ["streamer"]
CMD ["--help"]
