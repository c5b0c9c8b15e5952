"""Writes streamer.json, the Grafana board of streamer's services.

Run it by `python deploy/grafana/board.py`. The board is made here, and not by hand, so that all panels select services
and instances in the same way.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

BOARD = Path(__file__).with_name("streamer.json")
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
CHOSEN = 'service=~"$service", instance=~"$instance"'
"""Selects the series of the services and instances that are chosen at the top of the board."""
RATE = "[$__rate_interval]"

GREEN, YELLOW, RED = "green", "orange", "red"
Panel = dict[str, Any]
Target = tuple[str, str]
"""An expression, and the legend of its series."""


def main() -> None:
    """Write the file."""
    BOARD.write_text(json.dumps(board(), indent=2) + "\n")


def board() -> dict[str, Any]:
    """The board as Grafana's JSON model."""
    return {
        "uid": "streamer",
        "title": "streamer",
        "description": "Services of streamer: records, latency, lag, batches, stages, steps, processes, cameras, MQTT.",
        "tags": ["streamer"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "10s",
        "time": {"from": "now-30m", "to": "now"},
        "timezone": "browser",
        "fiscalYearStartMonth": 0,
        "annotations": {"list": [_restarts(), _alerts()]},
        "templating": {"list": _variables()},
        "links": [],
        "panels": list(_placed()),
    }


def _placed() -> Iterator[Panel]:
    """All panels with their numbers and places; a row that is closed holds its panels."""
    number, y = 0, 0
    for title, is_open, panels in _rows():
        number += 1
        row: Panel = {
            "id": number,
            "type": "row",
            "title": title,
            "collapsed": not is_open,
            "gridPos": {"h": 1, "w": 24, "x": 0, "y": y},
            "panels": [],
        }
        y += 1
        x = 0
        inside = []
        for width, height, panel in panels:
            number += 1
            if x + width > 24:
                x, y = 0, y + height
            inside.append({"id": number, **panel, "gridPos": {"h": height, "w": width, "x": x, "y": y}})
            x += width
        y += panels[-1][1]
        if is_open:
            yield row
            yield from inside
        else:
            yield {**row, "panels": inside}


def _rows() -> Sequence[tuple[str, bool, Sequence[tuple[int, int, Panel]]]]:
    """Title, whether it is open, and panels with width and height, of each row."""
    return (
        ("Now", True, [(4, 4, panel) for panel in _now()]),
        ("Records", True, [(8, 8, panel) for panel in _records()]),
        ("Batches, stages, steps", True, [(8, 8, panel) for panel in _work()]),
        ("Processes", True, [(8, 7, panel) for panel in _processes()]),
        ("State", False, [(8, 8, panel) for panel in _state()]),
        ("Cameras", False, [(12, 8, panel) for panel in _cameras()]),
        ("MQTT and outboxes", False, [(12, 8, panel) for panel in _messaging()]),
    )


def _now() -> Iterator[Panel]:
    yield _number(
        "Services that are ready",
        "How many of the chosen services answer 200 at /ready, of all that answer at all. Below 100 %: ask /ready why.",
        f"sum(streamer_ready{{{CHOSEN}}}) / count(streamer_ready{{{CHOSEN}}})",
        "percentunit",
        [(None, RED), (1.0, GREEN)],
    )
    yield _number(
        "Records finished",
        "Records a second, whatever became of them.",
        f"sum(rate(streamer_records_total{{{CHOSEN}}}{RATE}))",
        "cps",
    )
    yield _number(
        "Latency, 99 %",
        "From the timestamp of a record to the confirmed result: 99 of 100 records are faster.",
        f"histogram_quantile(0.99, sum by (le) (rate(streamer_latency_seconds_bucket{{{CHOSEN}}}{RATE})))",
        "s",
    )
    yield _number(
        "Oldest record in flight",
        "Age of the oldest record that is not finished. Beyond a minute: a sink does not confirm, or a step hangs.",
        f"max(streamer_oldest_unacknowledged_seconds{{{CHOSEN}}})",
        "s",
        [(None, GREEN), (10.0, YELLOW), (60.0, RED)],
    )
    yield _number(
        "Lag",
        "Records between the group's position and the end of its partitions. Of Kafka sources.",
        f"sum(streamer_lag_records{{{CHOSEN}}})",
        "short",
    )
    yield _number(
        "Dead or lost",
        "Records that failed, as a part of all that were finished.",
        f'sum(rate(streamer_records_total{{{CHOSEN}, outcome=~"dead|failed"}}{RATE}))'
        f' / sum(rate(streamer_records_total{{{CHOSEN}, outcome!="passed"}}{RATE}))',
        "percentunit",
        [(None, GREEN), (0.001, YELLOW), (0.01, RED)],
    )


def _records() -> Iterator[Panel]:
    yield _lines(
        "Throughput",
        "Finished records a second, by outcome: ok; dead: a dead letter; dropped: on purpose; passed: not run, by the "
        "where of a source; failed: lost.",
        "cps",
        [(f"sum by (service, outcome) (rate(streamer_records_total{{{CHOSEN}}}{RATE}))", "{{service}} {{outcome}}")],
        stacked=True,
    )
    yield _lines(
        "Latency",
        "From the timestamp of a record to the confirmed result. Half of the records are faster than the lowest line.",
        "s",
        [(_quantile(q, "streamer_latency_seconds", "service"), f"{{{{service}}}} {name}") for q, name in _QUANTILES],
    )
    yield _lines(
        "Lag",
        "Records between the group's position and the end of the partitions, by topic. If it grows, more arrives than "
        "the processes can do. Of Kafka sources.",
        "short",
        [(f"sum by (service, topic) (streamer_lag_records{{{CHOSEN}}})", "{{service}} {{topic}}")],
    )
    yield _lines(
        "Oldest record in flight",
        "Age of the oldest record that is not finished, by instance. It grows when a sink, a broker or a step hangs.",
        "s",
        [
            (
                f"max by (service, instance) (streamer_oldest_unacknowledged_seconds{{{CHOSEN}}})",
                "{{service}} {{instance}}",
            )
        ],
        limits=[(None, GREEN), (60.0, RED)],
    )
    yield _lines(
        "In flight",
        "Payload bytes of records that were read and are not finished. At limits.in_flight the service reads no more.",
        "bytes",
        [(f"sum by (service, instance) (streamer_in_flight_bytes{{{CHOSEN}}})", "{{service}} {{instance}}")],
    )
    yield _lines(
        "Dead letters, lost records",
        "dead: kept as dead letters (streamer tap shows them, streamer replay runs them again); failed: lost.",
        "cps",
        [
            (
                "sum by (service, source, outcome) "
                f'(rate(streamer_records_total{{{CHOSEN}, outcome=~"dead|failed"}}{RATE}))',
                "{{service}} {{source}} {{outcome}}",
            )
        ],
        limits=[(None, GREEN), (0.001, RED)],
    )


def _work() -> Iterator[Panel]:
    yield _lines(
        "Batch size",
        "Records in a batch. Larger batches cost less CPU for each record.",
        "short",
        [
            (
                f"sum by (service) (rate(streamer_batch_records_sum{{{CHOSEN}}}{RATE}))"
                f" / sum by (service) (rate(streamer_batch_records_count{{{CHOSEN}}}{RATE}))",
                "{{service}} mean",
            ),
            (_quantile(0.9, "streamer_batch_records", "service"), "{{service}} 90 %"),
        ],
    )
    yield _lines(
        "Why batches were closed",
        "Batches a second. records: they were full; wait: max_wait was over; bytes: max_bytes; window: the broker "
        "sends no more; round: every camera has given a picture; drain: the service stops.",
        "cps",
        [(f"sum by (service, reason) (rate(streamer_batch_closed_total{{{CHOSEN}}}{RATE}))", "{{service}} {{reason}}")],
        stacked=True,
    )
    yield _lines(
        "Time in stages",
        "Seconds of each second that a service spends in a stage; poll is mostly waiting for records. 1 in run, encode "
        "and send together: the service is at its limit.",
        "percentunit",
        [(f"sum by (service, stage) (rate(streamer_stage_seconds_sum{{{CHOSEN}}}{RATE}))", "{{service}} {{stage}}")],
    )
    yield _lines(
        "Time of a batch in a stage, 95th percentile",
        "What the slowest twentieth of the batches takes longer than.",
        "s",
        [(_quantile(0.95, "streamer_stage_seconds", "service", "stage"), "{{service}} {{stage}}")],
    )
    yield _lines(
        "Time of a batch in a step, mean",
        "That of a PIPELINE step contains the steps inside it.",
        "s",
        [
            (
                f"sum by (service, step) (rate(streamer_step_seconds_sum{{{CHOSEN}}}{RATE}))"
                f" / sum by (service, step) (rate(streamer_step_seconds_count{{{CHOSEN}}}{RATE}))",
                "{{service}} {{step}}",
            )
        ],
    )
    yield _lines(
        "Errors in steps",
        "Records a second that failed in a step, by class of the error.",
        "cps",
        [
            (
                f"sum by (service, step, error) (rate(streamer_step_errors_total{{{CHOSEN}}}{RATE}))",
                "{{service}} {{step}} {{error}}",
            )
        ],
        limits=[(None, GREEN), (0.001, RED)],
    )
    yield _lines(
        "Labels",
        "What CLASSIFIER_OUTPUT steps answer, records a second. Other shares than usual: the data may have changed.",
        "cps",
        [(f"sum by (service, label) (rate(streamer_labels_total{{{CHOSEN}}}{RATE}))", "{{service}} {{label}}")],
        stacked=True,
    )
    yield _lines(
        "Lookups",
        "Records a second that LOOKUP steps pass on without a row of their table, or leave out; and 1 while a table is "
        "outdated, as the new one cannot be read.",
        "short",
        [
            (
                f"sum by (service, step) (rate(streamer_lookup_missing_total{{{CHOSEN}}}{RATE}))",
                "{{service}} {{step}} without a row",
            ),
            (f"max by (service, step) (streamer_lookup_outdated{{{CHOSEN}}})", "{{service}} {{step}} outdated"),
        ],
    )
    yield _lines(
        "Transactions",
        "Of services with delivery: exactly_once, a second. The records of an aborted one run again.",
        "cps",
        [
            (
                f"sum by (service, outcome) (rate(streamer_transactions_total{{{CHOSEN}}}{RATE}))",
                "{{service}} {{outcome}}",
            )
        ],
    )
    yield _lines(
        "Messages that a full sink dropped",
        "Of sinks with when_full: drop, such as pages of cameras that nobody reads fast enough.",
        "cps",
        [(f"sum by (service, sink) (rate(streamer_messages_dropped_total{{{CHOSEN}}}{RATE}))", "{{service}} {{sink}}")],
    )


def _processes() -> Iterator[Panel]:
    yield _lines(
        "CPU",
        "Cores that each process uses. On Linux.",
        "short",
        [(_of_process(f"rate(process_cpu_seconds_total{_INSTANCE}{RATE})"), "{{instance}}")],
    )
    yield _lines(
        "Memory",
        "Resident memory, and what the process may use: the limit of its container, or the memory of the machine.",
        "bytes",
        [
            (_of_process(f"process_resident_memory_bytes{_INSTANCE}"), "{{instance}}"),
            (_of_process(f"streamer_process_memory_limit_bytes{_INSTANCE}"), "{{instance}} limit"),
        ],
    )
    yield _lines(
        "Descriptors",
        "Open files and connections, as a part of how many are allowed.",
        "percentunit",
        [(_of_process(f"process_open_fds{_INSTANCE} / process_max_fds{_INSTANCE}"), "{{instance}}")],
        limits=[(None, GREEN), (0.8, RED)],
    )
    yield _lines(
        "Garbage collection",
        "Runs of Python's garbage collector a second. Those of generation 2 look at all objects.",
        "cps",
        [
            (
                _of_process(f"rate(python_gc_collections_total{_INSTANCE}{RATE})"),
                "{{instance}} generation {{generation}}",
            )
        ],
    )
    yield _lines(
        "Restarts in the last hour",
        "How often the process was started again under the same address.",
        "short",
        [(_of_process(f"changes(process_start_time_seconds{_INSTANCE}[1h])"), "{{instance}}")],
        limits=[(None, GREEN), (3.0, RED)],
    )
    yield _table(
        "Versions",
        "The version of streamer in each process, and the hot path that its services take with hot_path: auto.",
        _of_process(f"streamer_build_info{_INSTANCE}"),
        ("instance", "version", "hot_path"),
    )


def _state() -> Iterator[Panel]:
    yield _lines(
        "Age of the last save",
        "Seconds since all that the steps remember was saved. It grows while the disk is full, or results are not "
        "confirmed; nothing is acknowledged then.",
        "s",
        [
            (
                f"max by (service, instance) (streamer_state_checkpoint_age_seconds{{{CHOSEN}}})",
                "{{service}} {{instance}}",
            )
        ],
        limits=[(None, GREEN), (60.0, RED)],
    )
    yield _lines(
        "Time of a save, 95th percentile, and of loading, mean",
        "Loading is that of a partition, since the start: it is rare. No records are run meanwhile.",
        "s",
        [
            (_quantile(0.95, "streamer_state_checkpoint_seconds", "service"), "{{service}} save"),
            (
                f"sum by (service) (streamer_state_load_seconds_sum{{{CHOSEN}}}) / "
                f"sum by (service) (streamer_state_load_seconds_count{{{CHOSEN}}})",
                "{{service}} load",
            ),
        ],
    )
    yield _lines(
        "Size of the saved state",
        "Of each state file, with what the file itself needs.",
        "bytes",
        [(f"sum by (service, instance) (streamer_state_bytes{{{CHOSEN}}})", "{{service}} {{instance}}")],
    )
    yield _lines(
        "Bytes saved",
        "A second. A piece of state is written again each time that it has changed.",
        "Bps",
        [(f"sum by (service) (rate(streamer_state_written_bytes_total{{{CHOSEN}}}{RATE}))", "{{service}}")],
    )
    yield _lines(
        "Keys",
        "That each step remembers, of all partitions.",
        "short",
        [(f"sum by (service, step) (streamer_state_keys{{{CHOSEN}}})", "{{service}} {{step}}")],
    )
    yield _lines(
        "Keys forgotten, late records, short windows, joins",
        "A second. Keys are forgotten where there are more than the keys of the step; late records came after their "
        "windows had closed; short windows ended before they were full; for records that are missing others of a join "
        "none came.",
        "cps",
        [
            (
                f"sum by (service, step) (rate(streamer_state_evicted_total{{{CHOSEN}}}{RATE}))",
                "{{service}} {{step}} forgotten",
            ),
            (
                f"sum by (service, step) (rate(streamer_window_late_total{{{CHOSEN}}}{RATE}))",
                "{{service}} {{step}} late",
            ),
            (
                f"sum by (service, step) (rate(streamer_window_short_total{{{CHOSEN}}}{RATE}))",
                "{{service}} {{step}} short",
            ),
            (
                f"sum by (service, step) (rate(streamer_join_missing_total{{{CHOSEN}}}{RATE}))",
                "{{service}} {{step}} missing others",
            ),
        ],
    )


def _cameras() -> Iterator[Panel]:
    yield _lines(
        "Cameras that are not live",
        "1 for each camera that gives no pictures: it connects, has stalled, waits to try again, or has failed.",
        "short",
        [
            (
                f'sum by (service, camera, state) (streamer_camera_state{{{CHOSEN}, state!="live"}})',
                "{{service}} {{camera}} {{state}}",
            )
        ],
        limits=[(None, GREEN), (1.0, RED)],
    )
    yield _lines(
        "Pictures a second",
        "Of each camera, over five seconds.",
        "short",
        [(f"sum by (service, camera) (streamer_camera_fps{{{CHOSEN}}})", "{{service}} {{camera}}")],
    )
    yield _lines(
        "Pictures that were not run",
        "By cause. replaced and rate are normal: the effect of policy: latest and of fps. corrupt: a bad network; "
        "full, old: inference is too slow.",
        "cps",
        [
            (
                f"sum by (service, camera, cause) (rate(streamer_camera_dropped_total{{{CHOSEN}}}{RATE}))",
                "{{service}} {{camera}} {{cause}}",
            )
        ],
        stacked=True,
    )
    yield _lines(
        "Reconnects and stalls in the last hour",
        "Connections after the first, and connections that were up and gave no pictures.",
        "short",
        [
            (
                f"sum by (service, camera) (increase(streamer_camera_reconnects_total{{{CHOSEN}}}[1h]))",
                "{{service}} {{camera}} reconnects",
            ),
            (
                f"sum by (service, camera) (increase(streamer_camera_stalls_total{{{CHOSEN}}}[1h]))",
                "{{service}} {{camera}} stalls",
            ),
        ],
    )


def _messaging() -> Iterator[Panel]:
    yield _lines(
        "MQTT: messages that are not acknowledged",
        "And how many the broker may send ahead. At that for minutes: a step or a sink does not finish.",
        "short",
        [
            (f"streamer_mqtt_unacknowledged{{{CHOSEN}}}", "{{service}} {{part}} {{instance}}"),
            (f"streamer_mqtt_window{{{CHOSEN}}}", "{{service}} {{part}} {{instance}} window"),
        ],
    )
    yield _lines(
        "MQTT: reconnects and gaps in the last hour",
        "A gap is a reconnect without the former session: messages may have been missed.",
        "short",
        [
            (
                f"sum by (service, part) (increase(streamer_mqtt_reconnects_total{{{CHOSEN}}}[1h]))",
                "{{service}} {{part}} reconnects",
            ),
            (
                f"sum by (service, part) (increase(streamer_mqtt_gaps_total{{{CHOSEN}}}[1h]))",
                "{{service}} {{part}} gaps",
            ),
        ],
    )
    yield _lines(
        "Outbox: messages that wait",
        "Messages in the outbox of a sink that accepts nothing now.",
        "short",
        [(f'{{__name__=~"streamer_.+_outbox_messages", {CHOSEN}}}', "{{service}} {{part}} {{instance}}")],
    )
    yield _lines(
        "Outbox: age of the oldest message",
        "For how long the sink has accepted nothing.",
        "s",
        [(f'{{__name__=~"streamer_.+_outbox_oldest_seconds", {CHOSEN}}}', "{{service}} {{part}} {{instance}}")],
        limits=[(None, GREEN), (3600.0, RED)],
    )


_QUANTILES = ((0.5, "50 %"), (0.9, "90 %"), (0.99, "99 %"))
_INSTANCE = '{instance=~"$instance"}'


def _quantile(quantile: float, histogram: str, *by: str) -> str:
    labels = ", ".join(("le", *by))
    return f"histogram_quantile({quantile}, sum by ({labels}) (rate({histogram}_bucket{{{CHOSEN}}}{RATE})))"


def _of_process(expression: str) -> str:
    """Metrics of processes have no label `service`: those of the processes in which the chosen services run."""
    return f'{expression} and on (job, instance) streamer_ready{{service=~"$service"}}'


def _panel(kind: str, title: str, description: str, targets: Sequence[Target], instant: bool = False) -> Panel:
    return {
        "type": kind,
        "title": title,
        "description": description,
        "datasource": SOURCE,
        "targets": [
            {
                "refId": chr(ord("A") + place),
                "datasource": SOURCE,
                "expr": expression,
                "legendFormat": legend,
                "instant": instant,
                "range": not instant,
                **({"format": "table"} if kind == "table" else {}),
            }
            for place, (expression, legend) in enumerate(targets)
        ],
    }


def _steps(limits: Sequence[tuple[float | None, str]]) -> dict[str, Any]:
    return {"mode": "absolute", "steps": [{"value": value, "color": color} for value, color in limits]}


def _number(
    title: str,
    description: str,
    expression: str,
    unit: str,
    limits: Sequence[tuple[float | None, str]] = ((None, GREEN),),
) -> Panel:
    return {
        **_panel("stat", title, description, [(expression, "")]),
        "fieldConfig": {
            "defaults": {
                "unit": unit,
                "color": {"mode": "thresholds"},
                "thresholds": _steps(limits),
                "noValue": "none",
            },
            "overrides": [],
        },
        "options": {
            "colorMode": "value",
            "graphMode": "area",
            "justifyMode": "auto",
            "orientation": "auto",
            "textMode": "auto",
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        },
    }


def _lines(
    title: str,
    description: str,
    unit: str,
    targets: Sequence[Target],
    *,
    stacked: bool = False,
    limits: Sequence[tuple[float | None, str]] = (),
) -> Panel:
    custom: dict[str, Any] = {
        "drawStyle": "line",
        "lineWidth": 1,
        "fillOpacity": 30 if stacked else 8,
        "showPoints": "never",
        "stacking": {"mode": "normal" if stacked else "none", "group": "A"},
        "thresholdsStyle": {"mode": "line" if limits else "off"},
    }
    return {
        **_panel("timeseries", title, description, targets),
        "fieldConfig": {
            "defaults": {
                "unit": unit,
                "min": 0,
                "color": {"mode": "palette-classic"},
                "custom": custom,
                "thresholds": _steps(limits or [(None, GREEN)]),
            },
            "overrides": [],
        },
        "options": {
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
    }


def _table(title: str, description: str, expression: str, columns: Sequence[str]) -> Panel:
    return {
        **_panel("table", title, description, [(expression, "")], instant=True),
        "fieldConfig": {"defaults": {}, "overrides": []},
        "options": {"showHeader": True, "cellHeight": "sm"},
        "transformations": [{"id": "filterFieldsByName", "options": {"include": {"names": list(columns)}}}],
    }


def _variables() -> list[dict[str, Any]]:
    several = {"multi": True, "includeAll": True, "allValue": ".*", "current": {"text": ["All"], "value": ["$__all"]}}
    return [
        {
            "name": "datasource",
            "label": "Data source",
            "type": "datasource",
            "query": "prometheus",
            "refresh": 1,
            "hide": 0,
            "skipUrlSync": False,
            "multi": False,
            "includeAll": False,
        },
        *(
            {
                "name": name,
                "label": name.capitalize(),
                "type": "query",
                "datasource": SOURCE,
                "query": {"query": query, "refId": name},
                "definition": query,
                "refresh": 2,
                "sort": 1,
                "hide": 0,
                "skipUrlSync": False,
                **several,
            }
            for name, query in (
                ("service", "label_values(streamer_ready, service)"),
                ("instance", 'label_values(streamer_ready{service=~"$service"}, instance)'),
            )
        ),
    ]


def _restarts() -> dict[str, Any]:
    return {
        "name": "Starts",
        "enable": True,
        "iconColor": "blue",
        "datasource": SOURCE,
        "expr": f"changes(process_start_time_seconds{_INSTANCE}[1m]) > 0",
        "titleFormat": "started again",
        "textFormat": "{{instance}}",
    }


def _alerts() -> dict[str, Any]:
    return {
        "name": "Alerts",
        "enable": True,
        "iconColor": "red",
        "datasource": SOURCE,
        "expr": 'ALERTS{alertname=~"Streamer.+", alertstate="firing"}',
        "titleFormat": "{{alertname}}",
        "textFormat": "{{service}} {{instance}}",
    }


if __name__ == "__main__":
    main()
