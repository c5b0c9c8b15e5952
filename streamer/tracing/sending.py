"""`Sender`: sends spans to a collector by OTLP over HTTP."""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

import requests
from opentelemetry.sdk.environment_variables import (
    OTEL_EXPORTER_OTLP_CERTIFICATE,
    OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE,
    OTEL_EXPORTER_OTLP_CLIENT_KEY,
    OTEL_EXPORTER_OTLP_COMPRESSION,
    OTEL_EXPORTER_OTLP_HEADERS,
    OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE,
    OTEL_EXPORTER_OTLP_TRACES_CLIENT_CERTIFICATE,
    OTEL_EXPORTER_OTLP_TRACES_CLIENT_KEY,
    OTEL_EXPORTER_OTLP_TRACES_COMPRESSION,
    OTEL_EXPORTER_OTLP_TRACES_HEADERS,
)
from opentelemetry.util.re import parse_env_headers
from requests.adapters import HTTPAdapter
from urllib3.util.retry import Retry

TIMEOUT: Final = 1.0
"""Seconds that one try of a request may take."""
_AGAIN: Final = (408, 429, 502, 503, 504)
"""Statuses after which a request is sent once more."""
_COMPRESSIONS: Final[Mapping[str, Callable[[bytes], bytes]]] = {
    "gzip": partial(gzip.compress, compresslevel=1),
    "deflate": partial(zlib.compress, level=1),
}


class Sender:
    """One connection to a collector. Certificates, headers and compression are those of OpenTelemetry's variables."""

    def __init__(self, endpoint: str) -> None:
        self._url = traces_url(endpoint)
        self._session = requests.Session()
        again = Retry(
            total=1,
            backoff_factor=0.1,
            status_forcelist=_AGAIN,
            allowed_methods=None,
            respect_retry_after_header=False,
            raise_on_status=False,
        )
        for scheme in ("http://", "https://"):
            self._session.mount(scheme, HTTPAdapter(max_retries=again))
        headers = self._session.headers
        headers["Content-Type"] = "application/x-protobuf"
        given = _variable(OTEL_EXPORTER_OTLP_TRACES_HEADERS, OTEL_EXPORTER_OTLP_HEADERS) or ""
        headers.update(parse_env_headers(given, liberal=True))
        kind = _variable(OTEL_EXPORTER_OTLP_TRACES_COMPRESSION, OTEL_EXPORTER_OTLP_COMPRESSION) or ""
        self._compress = _COMPRESSIONS.get(kind.strip().lower())
        if self._compress is not None:
            headers["Content-Encoding"] = kind.strip().lower()
        self._authority = _variable(OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE, OTEL_EXPORTER_OTLP_CERTIFICATE) or True
        certificate = _variable(OTEL_EXPORTER_OTLP_TRACES_CLIENT_CERTIFICATE, OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE)
        key = _variable(OTEL_EXPORTER_OTLP_TRACES_CLIENT_KEY, OTEL_EXPORTER_OTLP_CLIENT_KEY)
        self._certificate = (certificate, key) if certificate and key else certificate

    def send(self, message: bytes) -> str | None:
        """Send a message of OTLP; what was wrong, if the collector did not take it."""
        body = message if self._compress is None else self._compress(message)
        try:
            answer = self._session.post(
                self._url, body, timeout=TIMEOUT, verify=self._authority, cert=self._certificate, allow_redirects=False
            )
        except (requests.RequestException, OSError) as error:
            return f"{type(error).__name__}: {error}"
        return None if answer.ok else f"it answers {answer.status_code} {answer.reason}"

    def close(self) -> None:
        """Close the connection."""
        self._session.close()


def traces_url(endpoint: str) -> str:
    """The address that traces are posted to, of a collector's base address."""
    base = endpoint.rstrip("/")
    return base if base.endswith("/v1/traces") else f"{base}/v1/traces"


def _variable(of_traces: str, of_all: str) -> str | None:
    return os.environ.get(of_traces) or os.environ.get(of_all)
