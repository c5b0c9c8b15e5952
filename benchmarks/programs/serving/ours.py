"""A service that answers over HTTP and gRPC. Arguments: model, its ports of HTTP and gRPC, seconds a batch sleeps."""

from __future__ import annotations

import signal
import sys
import time

import streamer
from pipelines import Data, Onnx, Sequence
from streamer.cli.process import collect_less_often, pass_over_what_stays


def main(model: str, http: str, grpc: str, seconds: str) -> None:
    """Run until SIGTERM."""
    # Blocked before threads begin, so that the signal waits for `sigwait`.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    # As `streamer serve` does.
    collect_less_often()
    pause = float(seconds)

    def sleep(data: Data) -> Data:
        time.sleep(pause)
        return data

    steps = [Onnx(model_uri=model), *([sleep] if pause else [])]
    source = {"type": "http", "listen": f"127.0.0.1:{http}", "grpc": f"127.0.0.1:{grpc}"}
    with streamer.Service(name="model", source=source, sink={"type": "http"}, pipeline=Sequence(steps)):
        pass_over_what_stays()
        signal.sigwait({signal.SIGTERM})


if __name__ == "__main__":
    main(*sys.argv[1:])
