# The streamer command with Kafka and ONNX: docker build -t streamer-inference . && docker run streamer-inference --help
FROM rust:1.90-slim-bookworm AS rust

# Not the slim image: the compiled hot path is linked by its C compiler.
FROM python:3.12-bookworm AS build

COPY --from=rust /usr/local/rustup /usr/local/rustup
COPY --from=rust /usr/local/cargo /usr/local/cargo
ENV RUSTUP_HOME=/usr/local/rustup CARGO_HOME=/usr/local/cargo PATH=/usr/local/cargo/bin:$PATH

WORKDIR /src
RUN python -m venv /opt/streamer
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
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
# Another build of onnxruntime instead of that for CPUs; only one may be installed. For GPUs: onnxruntime-gpu[cuda,cudnn]
ARG ONNXRUNTIME=onnxruntime
RUN python -m pip wheel --no-deps --wheel-dir /wheels . \
    && wheel=$(echo /wheels/*.whl) \
    && /opt/streamer/bin/python -m pip install --constraint constraints.txt "${wheel}[kafka,onnx]" \
    && if [ "$ONNXRUNTIME" != onnxruntime ]; then \
         /opt/streamer/bin/python -m pip uninstall --yes onnxruntime \
         && /opt/streamer/bin/python -m pip install --constraint constraints.txt --constraint constraints-gpu.txt "$ONNXRUNTIME"; \
       fi

FROM python:3.12-slim-bookworm

COPY --from=build /opt/streamer /opt/streamer
ENV PATH=/opt/streamer/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
RUN useradd --uid 10001 --create-home streamer
USER streamer
WORKDIR /srv

# Drains and commits on SIGTERM.
STOPSIGNAL SIGTERM
ENTRYPOINT ["streamer"]
CMD ["--help"]
