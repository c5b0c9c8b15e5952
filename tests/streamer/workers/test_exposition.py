"""Metrics of workers as those of one endpoint."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from streamer.workers.exposition import merged, of_parent

ONE = r"""# HELP streamer_records_total Records finished.
# TYPE streamer_records_total counter
streamer_records_total{service="a } b",source="k\"q"} 3.0
# HELP process_open_fds Files.
# TYPE process_open_fds gauge
process_open_fds 7.0
"""
OTHER = """# HELP streamer_lag Records behind.
# TYPE streamer_lag gauge
streamer_lag{service="c"} 1.0
# HELP process_open_fds Files.
# TYPE process_open_fds gauge
process_open_fds 8.0
"""


def test_each_family_is_there_once_with_its_help_and_a_sample_of_each_worker() -> None:
    text = merged([(0, ONE), (0, OTHER), (1, ONE)])
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert text.count("# HELP process_open_fds") == 1
    # The second endpoint of a worker tells of the same process.
    fds = [(sample.labels, sample.value) for sample in families["process_open_fds"].samples]
    assert fds == [({"worker": "0"}, 7), ({"worker": "1"}, 7)]
    records = [sample.labels for sample in families["streamer_records"].samples]
    assert records == [{"worker": number, "service": "a } b", "source": 'k"q'} for number in "01"]
    assert families["streamer_lag"].documentation == "Records behind."


def test_the_parent_tells_of_restarts_and_of_records_that_kill() -> None:
    text = of_parent({(1, "SIGSEGV"): 2, (0, "hung"): 1}, {"digits": 3}, ["digits", 'so "called"'])
    restarts, poison = text_string_to_metric_families(text)
    assert [(sample.labels["worker"], sample.labels["reason"], sample.value) for sample in restarts.samples] == [
        ("1", "SIGSEGV", 2),
        ("0", "hung", 1),
    ]
    assert {sample.labels["service"]: sample.value for sample in poison.samples} == {"digits": 3, 'so "called"': 0}
    assert (restarts.name, poison.name) == ("streamer_worker_restarts", "streamer_poison_records")
