"""A Kafka that answers with errors, made of librdkafka's mock cluster."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator

from confluent_kafka import cimpl


@contextlib.contextmanager
def brokers_that_fail(errors: dict[int, list[int]]) -> Iterator[str]:
    """Bootstrap of a mock cluster that answers requests (by their number) with these errors, one after the other."""
    library = ctypes.CDLL(cimpl.__file__)
    for name in ("conf_new", "new", "mock_cluster_new", "mock_cluster_bootstraps"):
        getattr(library, f"rd_kafka_{name}").restype = ctypes.c_void_p
    text = ctypes.create_string_buffer(512)
    conf = ctypes.c_void_p(library.rd_kafka_conf_new())
    client = ctypes.c_void_p(library.rd_kafka_new(0, conf, text, ctypes.c_size_t(512)))
    assert client, text.value
    cluster = ctypes.c_void_p(library.rd_kafka_mock_cluster_new(client, 1))
    for request, codes in errors.items():
        array = (ctypes.c_int * len(codes))(*codes)
        library.rd_kafka_mock_push_request_errors_array(
            cluster, ctypes.c_int16(request), ctypes.c_size_t(len(codes)), array
        )
    try:
        start = ctypes.c_void_p(library.rd_kafka_mock_cluster_bootstraps(cluster))
        yield ctypes.string_at(start).decode()
    finally:
        library.rd_kafka_mock_cluster_destroy(cluster)
        library.rd_kafka_destroy(client)
