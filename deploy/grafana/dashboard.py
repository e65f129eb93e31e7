#!/usr/bin/env python3
"""Writes forebay.json, the dashboard for Grafana, beside this file. usage: dashboard.py"""

import json
import pathlib

FILE = pathlib.Path(__file__).with_name("forebay.json")
# Grafana 12; newer ones migrate it when it is imported.
SCHEMA_VERSION = 41
COLUMNS = 24
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
# What every query is narrowed down to.
HERE = 'job=~"$job", instance=~"$instance"'
QUANTILES = (0.25, 0.5, 0.75, 0.9, 0.99)
# Amazon S3 Standard in us-east-1, US$ for 1,000 requests: https://aws.amazon.com/s3/pricing/, "Requests & data retrievals".
PRICE_READ, PRICE_WRITE = "0.0004", "0.005"
SECONDS_OF_30_DAYS = 30 * 24 * 3600
# Without data where no worker belongs to a cluster.
CLUSTER_ROW = "Cluster"
# Labels.
UNDER_STORE = 'tier="under_store"'
FIRST_BYTE = 'until="first_byte"'
FORWARDED = 'operation="Forwarded"'
LIST, NOT_LIST = 'operation="list"', 'operation!="list"'
CLASS_READ, CLASS_WRITE = 'class="read"', 'class=~"list|write"'


def grouped(by):
    return f" by ({by})" if by else ""


def rate(metric, labels="", by=""):
    """Per second, summed over all servers."""
    selector = ", ".join(filter(None, [HERE, labels]))
    return f"sum{grouped(by)} (rate({metric}{{{selector}}}[$__rate_interval]))"


def now(metric, labels="", by="", how="sum"):
    selector = ", ".join(filter(None, [HERE, labels]))
    return f"{how}{grouped(by)} ({metric}{{{selector}}})"


def quantiles(metric, labels="", by=""):
    """(expression, legend) for each quantile of a histogram."""
    keys = ", ".join(filter(None, [by, "le"]))
    legend = f"{{{{{by}}}}} " if by else ""
    return [(f"histogram_quantile({q}, {rate(metric + '_bucket', labels, keys)})", f"{legend}p{q * 100:.0f}") for q in QUANTILES]


def money(requests_by_price):
    """US$ for 30 days at the present rate."""
    parts = [f"{expression} * {price} / 1000" for expression, price in requests_by_price]
    return f"({' + '.join(parts)}) * {SECONDS_OF_30_DAYS}"


HITS = f"1 - {rate('forebay_reads_total', UNDER_STORE)} / {rate('forebay_reads_total')}"
ERRORS = rate("forebay_requests_total", 'code=~"5..", code!="503"')
THROTTLED = rate("forebay_requests_total", 'code="503"')
REQUESTS = rate("forebay_requests_total")
DIRTY = now("forebay_dirty_bytes")
SHRINKS = f"-(sum (deriv(forebay_dirty_bytes{{{HERE}}}[10m])) < 0)"


def none_is_zero(expression):
    return f"({expression}) or vector(0)"


AVOIDED = money(
    [
        (f"({none_is_zero(rate('forebay_requests_avoided_total', NOT_LIST))})", "$price_read"),
        (f"({none_is_zero(rate('forebay_requests_avoided_total', LIST))})", "$price_write"),
    ]
)
SPENT = money(
    [
        (f"({none_is_zero(rate('forebay_under_store_requests_total', CLASS_READ))})", "$price_read"),
        (f"({none_is_zero(rate('forebay_under_store_requests_total', CLASS_WRITE))})", "$price_write"),
    ]
)

# Rows of panels: kind, title, unit, width, queries as (expression, legend), and what the panel says.
BOARD = [
    (
        "Overview",
        [
            ("stat", "Servers", "none", 3, [('count (up{job=~"$job", instance=~"$instance"} == 1)', "")], "That answer to Prometheus."),
            ("stat", "Hit ratio", "percentunit", 3, [(HITS, "")], "Share of the reads that needed no data of the under store."),
            ("stat", "Requests", "reqps", 3, [(REQUESTS, "")], ""),
            ("stat", "Failing", "percentunit", 3, [(f"({none_is_zero(ERRORS)}) / {REQUESTS}", "")], "Answers of 5xx, 503 not counted."),
            ("stat", "Oldest unsaved write", "s", 3, [(now("forebay_oldest_dirty_age_seconds", how="max"), "")], "Age of the oldest write that the under store does not have."),
            ("stat", "Pinned space", "percentunit", 3, [(f"max (forebay_store_pinned_bytes{{{HERE}}} / forebay_pinned_max_bytes{{{HERE}}})", "")], "What may not be evicted, of what that may take. At 100 % writes are refused or go through."),
            ("stat", "Under stores out of reach", "none", 3, [(now("forebay_under_store_circuit_open"), "")], ""),
            ("stat", "Requests avoided", "currencyUSD", 3, [(AVOIDED, "")], "What the avoided requests would have cost in 30 days at the present rate and the prices above; without transfer."),
        ],
    ),
    (
        "Reads",
        [
            ("share", "Reads by tier", "percentunit", 8, [(f"{rate('forebay_reads_total', by='tier')} / ignoring (tier) group_left {rate('forebay_reads_total')}", "{{tier}}")], ""),
            ("lines", "Hit ratio by path and bucket", "percentunit", 8, [(f"1 - ({rate('forebay_reads_total', UNDER_STORE, 'path, bucket')} or 0 * {rate('forebay_reads_total', by='path, bucket')}) / {rate('forebay_reads_total', by='path, bucket')}", "{{path}} {{bucket}}")], "By the path of the policy rule that holds."),
            ("stack", "Bytes read by tier", "Bps", 8, [(rate("forebay_read_bytes_total", by="tier"), "{{tier}}")], ""),
        ],
    ),
    (
        "Requests",
        [
            ("lines", "Requests by operation", "reqps", 8, [(rate("forebay_requests_total", by="operation"), "{{operation}}")], ""),
            ("lines", "Latency of $operation", "s", 8, quantiles("forebay_request_duration_seconds", 'operation=~"$operation", until="first_byte"'), "Until the first byte of the answer, of the operations chosen above."),
            ("lines", "Latency by operation, p99", "s", 8, [(f"histogram_quantile(0.99, {rate('forebay_request_duration_seconds_bucket', FIRST_BYTE, 'operation, le')})", "{{operation}}")], "Until the first byte."),
            ("lines", "Failing and throttled", "percentunit", 8, [(f"({none_is_zero(ERRORS)}) / {REQUESTS}", "5xx"), (f"({none_is_zero(THROTTLED)}) / {REQUESTS}", "503")], ""),
            ("lines", "Bytes of clients", "Bps", 8, [(rate("forebay_request_bytes_total", by="direction"), "{{direction}}")], ""),
            ("lines", "Connections", "none", 8, [(now("forebay_connections", by="instance"), "{{instance}}")], ""),
        ],
    ),
    (
        "Backlog",
        [
            ("lines", "Waiting for the under store", "bytes", 6, [(now("forebay_dirty_bytes", by="instance"), "{{instance}}")], ""),
            ("lines", "Age of the oldest", "s", 6, [(now("forebay_oldest_dirty_age_seconds", by="instance", how="max"), "{{instance}}")], ""),
            ("lines", "Until it is empty", "s", 6, [(f"{DIRTY} / {SHRINKS}", "at the pace of ten minutes")], "Empty while the backlog grows."),
            ("lines", "Objects waiting", "none", 6, [(now("forebay_dirty_objects"), "objects"), (now("forebay_tombstones"), "deletes"), (now("forebay_conflict_objects"), "conflicts"), (now("forebay_persist_delayed"), "after a failure")], ""),
            ("lines", "Persisted", "ops", 12, [(rate("forebay_persisted_objects_total"), "objects and deletes")], ""),
            ("lines", "Failed uploads", "ops", 12, [(rate("forebay_persist_failures_total", by="kind"), "{{kind}}")], "By kind of error; they are tried again."),
        ],
    ),
    (
        "Space and disks",
        [
            ("stack", "Space", "bytes", 8, [(now("forebay_store_pinned_bytes"), "pinned"), (now("forebay_store_evictable_bytes"), "evictable"), (now("forebay_store_free_bytes"), "free")], ""),
            ("lines", "Disks busy", "percentunit", 8, [(now("forebay_disk_busy_ratio", by="instance, directory"), "{{instance}} {{directory}}")], "Absent where the system does not tell."),
            ("lines", "Disks saturated or failed", "none", 8, [(now("forebay_disk_saturated", by="directory"), "saturated {{directory}}"), (now("forebay_store_directory_failed", by="directory"), "failed {{directory}}")], ""),
            ("lines", "Write and sync of a group commit", "s", 8, quantiles("forebay_group_commit_sync_seconds"), "What an acknowledged write waits for."),
            ("lines", "Written to disk", "Bps", 8, [(rate("forebay_store_appended_bytes_total"), "writes"), (rate("forebay_store_filled_bytes_total"), "read cache"), (rate("forebay_store_carried_bytes_total"), "carried forward")], ""),
            ("lines", "Evicted and damaged", "none", 8, [(rate("forebay_evicted_bytes_total"), "evicted bytes/s"), (now("forebay_store_corrupt_records_total"), "damaged records")], ""),
        ],
    ),
    (
        "Under stores",
        [
            ("lines", "Calls", "ops", 8, [(rate("forebay_under_store_calls_total", by="operation"), "{{operation}}")], ""),
            ("lines", "Errors", "ops", 8, [(rate("forebay_under_store_errors_total", by="operation, kind"), "{{operation}} {{kind}}")], "NotFound and Precondition are answers."),
            ("lines", "Time of calls", "s", 8, quantiles("forebay_under_store_call_duration_seconds"), ""),
            ("lines", "Out of reach", "none", 8, [(now("forebay_under_store_circuit_open", by="under_store", how="max"), "{{under_store}}")], "1 while nothing but probes is sent."),
            ("lines", "Background requests", "none", 8, [(now("forebay_under_store_running", by="under_store"), "running {{under_store}}"), (now("forebay_under_store_concurrency_limit", by="under_store"), "limit {{under_store}}")], "The limit is halved when the under store asks for fewer, and creeps up again."),
            ("lines", "Throttled", "ops", 8, [(rate("forebay_under_store_throttled_total", by="under_store"), "{{under_store}}")], ""),
        ],
    ),
    (
        CLUSTER_ROW,
        [
            ("lines", "Workers by state", "none", 6, [(now("forebay_cluster_workers", by="cluster, state", how="max"), "{{cluster}} {{state}}")], "As one of them sees it that has its lease."),
            ("stack", "Slots", "none", 6, [(now("forebay_cluster_slots", by="instance"), "{{instance}}"), (now("forebay_cluster_slots_without_home", by="cluster", how="max"), "without a home, {{cluster}}")], "Shards of the keys, by the worker that answers for them."),
            ("lines", "Slots that have moved", "none", 6, [(rate("forebay_cluster_slots_taken_total", by="instance"), "taken {{instance}}"), (rate("forebay_cluster_slots_released_total", by="instance"), "released {{instance}}")], "Per second."),
            ("lines", "Lease", "s", 6, [(now("forebay_cluster_lease_seconds", by="instance", how="min"), "{{instance}}")], "What is left of it; at 0, keys at home there get 503."),
            ("lines", "Bytes elsewhere", "none", 6, [(now("forebay_cluster_copies_wanted", by="instance"), "wanted {{instance}}"), (now("forebay_cluster_copies_unavailable", by="instance"), "unavailable {{instance}}")], "Objects and parts that a home has to fetch from other workers, and those that none gives."),
            ("lines", "Requests passed on", "reqps", 6, [(rate("forebay_requests_total", FORWARDED, "code"), "{{code}}")], "To the home of their key."),
            ("lines", "Time of calls to the engine, p99", "s", 6, [(f"histogram_quantile(0.99, {rate('forebay_cluster_engine_call_duration_seconds_bucket', by='operation, le')})", "{{operation}}"), (rate("forebay_cluster_engine_errors_total", by="kind"), "errors per second: {{kind}}")], "Each write waits for a commit."),
            ("lines", "Engine", "percentunit", 6, [(f"max by (member) (forebay_cluster_engine_database_bytes{{{HERE}}} / forebay_cluster_engine_quota_bytes{{{HERE}}})", "of the quota, {{member}}"), (now("forebay_cluster_engine_up", by="member", how="min"), "answers all, {{member}}")], ""),
        ],
    ),
    (
        "Requests avoided",
        [
            ("lines", "Avoided", "reqps", 8, [(rate("forebay_requests_avoided_total", by="operation"), "{{operation}}")], "Reads and pages of listings that took no request to the under store."),
            ("lines", "Sent", "reqps", 8, [(rate("forebay_under_store_requests_total", by="class"), "{{class}}")], "HTTP requests to S3 under stores; a directory has none."),
            ("lines", "Money for requests in 30 days", "currencyUSD", 8, [(AVOIDED, "avoided"), (SPENT, "spent")], "At the present rate and the prices above; without transfer and storage."),
        ],
    ),
    (
        "Process and alerts",
        [
            ("lines", "Processors", "none", 6, [(f"sum by (instance) (rate(process_cpu_seconds_total{{{HERE}}}[$__rate_interval]))", "{{instance}}")], ""),
            ("lines", "Memory", "bytes", 6, [(now("process_resident_memory_bytes", by="instance"), "{{instance}}"), (now("forebay_memory_tier_bytes", by="instance"), "memory tier {{instance}}")], ""),
            ("lines", "Open files", "none", 6, [(now("process_open_fds", by="instance"), "{{instance}}")], ""),
            ("table", "Alerts", "none", 6, [('ALERTS{alertname=~"Forebay.*", job=~"$job"}', "")], "Those of forebay.rules.yml that are pending or firing."),
        ],
    ),
]


def panel(kind, title, unit, queries, about):
    defaults = {"unit": unit, "min": 0}
    if unit == "percentunit":
        defaults["max"] = 1
    options = {"legend": {"displayMode": "list", "placement": "bottom", "showLegend": True}, "tooltip": {"mode": "multi", "sort": "desc"}}
    if kind == "stat":
        options = {"reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False}, "colorMode": "none", "graphMode": "area", "textMode": "value"}
    elif kind == "table":
        options, defaults = {"showHeader": True}, {}
    elif kind in ("stack", "share"):
        defaults["custom"] = {"stacking": {"mode": "normal", "group": "A"}, "fillOpacity": 30}
    else:
        defaults["custom"] = {"fillOpacity": 5, "spanNulls": False}
    is_table = kind == "table"
    targets = [
        {
            "refId": chr(ord("A") + index),
            "datasource": SOURCE,
            "expr": expression,
            "legendFormat": legend or "__auto",
            "instant": is_table,
            "range": not is_table,
            "format": "table" if is_table else "time_series",
        }
        for index, (expression, legend) in enumerate(queries)
    ]
    type_ = {"stat": "stat", "table": "table"}.get(kind, "timeseries")
    return {"type": type_, "title": title, "description": about, "datasource": SOURCE, "targets": targets, "fieldConfig": {"defaults": defaults, "overrides": []}, "options": options}


def panels():
    """Puts rows below one another, and panels side by side as far as they fit."""
    y, number = 0, 0
    for row, members in BOARD:
        number += 1
        yield {"id": number, "type": "row", "title": row, "collapsed": False, "panels": [], "gridPos": {"h": 1, "w": COLUMNS, "x": 0, "y": y}}
        y, x, height = y + 1, 0, 4 if members[0][0] == "stat" else 8
        for kind, title, unit, width, queries, about in members:
            if x + width > COLUMNS:
                x, y = 0, y + height
            number += 1
            yield {"id": number, **panel(kind, title, unit, queries, about), "gridPos": {"h": height, "w": width, "x": x, "y": y}}
            x += width
        y += height


def choice(name, label, query):
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": SOURCE,
        "definition": query,
        "query": {"query": query, "refId": name},
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
    }


def price(name, label, default):
    value = {"selected": True, "text": default, "value": default}
    return {"name": name, "label": label, "type": "textbox", "query": default, "current": value, "options": [value]}


def dashboard():
    variables = [
        {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus", "refresh": 1, "current": {}},
        choice("job", "Job", "label_values(forebay_build_info, job)"),
        choice("instance", "Server", 'label_values(forebay_build_info{job=~"$job"}, instance)'),
        choice("operation", "Operation", 'label_values(forebay_requests_total{job=~"$job", instance=~"$instance"}, operation)'),
        price("price_read", "US$ for 1,000 reads", PRICE_READ),
        price("price_write", "US$ for 1,000 writes", PRICE_WRITE),
    ]
    return {
        "uid": "forebay",
        "title": "Forebay",
        "description": "The S3 cache: reads, requests, backlog, disks, under stores and cluster. docs/monitoring.md explains it.",
        "tags": ["forebay", "s3"],
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "time": {"from": "now-6h", "to": "now"},
        "refresh": "30s",
        "timezone": "browser",
        "templating": {"list": variables},
        "annotations": {"list": []},
        "links": [],
        "panels": list(panels()),
    }


def text():
    return json.dumps(dashboard(), indent=2) + "\n"


if __name__ == "__main__":
    FILE.write_text(text())
