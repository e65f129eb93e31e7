"""Traces: what an OpenTelemetry collector is sent of requests and of persistence."""

import http.server
import secrets
import threading
import time

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from harness.clients import boto, refused, send_signed
from harness.servers import Forebay, eventually, free_port

# Larger than what the memory tier takes, so that reads go to the disk.
LARGE = bytes(2 << 20)


class Collector:
    """Takes OTLP over HTTP, as protobuf."""

    def __init__(self):
        self.requests = []
        collector = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                collector.requests.append((self.path, dict(self.headers), ExportTraceServiceRequest.FromString(body)))
                self.send_response(200)
                self.send_header("Content-Type", "application/x-protobuf")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def endpoint(self):
        return f"http://127.0.0.1:{self.server.server_port}"

    def spans(self, name=None):
        resources = [resource for _, _, request in list(self.requests) for resource in request.resource_spans]
        spans = [span for resource in resources for scope in resource.scope_spans for span in scope.spans]
        return [span for span in spans if name in (None, span.name)]

    def span(self, name):
        """The one span of this name, once it has come."""
        eventually(f"a span {name}", lambda: self.spans(name))
        (span,) = self.spans(name)
        return span

    def children(self, parent):
        spans = [span for span in self.spans() if span.parent_span_id == parent.span_id]
        assert all(span.trace_id == parent.trace_id for span in spans)
        return {span.name: span for span in spans}


@pytest.fixture
def collector():
    collector = Collector()
    yield collector
    collector.server.shutdown()
    collector.server.server_close()


@pytest.fixture
def start_traced(tmp_path):
    started = []

    def start(endpoint, trace="", environment=None, **options):
        section = f'[trace]\notlp_endpoint = "{endpoint}"\n{trace}\n' if endpoint else f"[trace]\n{trace}\n"
        server = Forebay(tmp_path / f"forebay-{len(started)}", config=section, **options)
        usual = server.environment()
        server.environment = lambda: usual | (environment or {})
        started.append(server.start())
        return server

    yield start
    for server in started:
        assert server.process.poll() is not None or server.stop() == 0, server.log.read_text()[-4000:]


def attributes(span):
    values = {pair.key: pair.value for pair in span.attributes}
    return {key: getattr(value, value.WhichOneof("value")) for key, value in values.items()}


def test_a_write_a_read_and_a_persist(collector, start_traced):
    server = start_traced(collector.endpoint, mode="WRITE_BACK", trace='service_name = "cache-1"')
    s3 = boto(server)
    s3.create_bucket(Bucket="box")
    answer = s3.put_object(Bucket="box", Key="a b", Body=LARGE)
    server.wait_until_drained()
    assert s3.get_object(Bucket="box", Key="a b")["Body"].read() == LARGE
    refused("NoSuchKey", s3.get_object, Bucket="box", Key="absent")
    assert server.stop() == 0

    put = collector.span("S3.PutObject")
    assert put.kind == Span.SPAN_KIND_SERVER and put.parent_span_id == b""
    said = attributes(put)
    assert (said["http.request.method"], said["http.response.status_code"]) == ("PUT", 200)
    assert (said["aws.s3.bucket"], said["aws.s3.key"], said["rpc.method"]) == ("box", "a b", "PutObject")
    assert said["aws.request_id"] == answer["ResponseMetadata"]["RequestId"]
    assert (said["url.path"], said["url.scheme"], said["client.address"]) == ("/box/a%20b", "http", "127.0.0.1")
    cached = collector.children(put)["cache.put"]
    commit = collector.children(cached)["store.commit"]
    assert put.start_time_unix_nano <= commit.start_time_unix_nano <= commit.end_time_unix_nano <= put.end_time_unix_nano

    persist = collector.span("persist")
    assert persist.parent_span_id == b"" and persist.trace_id != put.trace_id
    assert attributes(persist)["aws.s3.key"] == "a b"
    upload = collector.children(persist)["under_store.put"]
    assert upload.kind == Span.SPAN_KIND_CLIENT and upload.status.code == Status.STATUS_CODE_UNSET

    found, missed = sorted(collector.spans("S3.GetObject"), key=lambda span: span.start_time_unix_nano)
    assert {"cache.get", "store.read"} <= set(collector.children(found))
    assert attributes(missed)["http.response.status_code"] == 404
    assert attributes(missed)["error.type"] == "404"
    # What the client asked wrongly is no error of the server.
    assert missed.status.code == Status.STATUS_CODE_UNSET

    path, _, request = collector.requests[0]
    assert path == "/v1/traces"
    resource = {pair.key: pair.value.string_value for pair in request.resource_spans[0].resource.attributes}
    assert resource["service.name"] == "cache-1" and resource["service.version"]


def test_a_read_from_the_under_store_shows_its_call(collector, start_traced):
    server = start_traced(collector.endpoint, mode="NO_CACHE")
    s3 = boto(server)
    s3.create_bucket(Bucket="box")
    s3.put_object(Bucket="box", Key="k", Body=b"x")
    s3.get_object(Bucket="box", Key="k")["Body"].read()
    assert server.stop() == 0
    get = collector.span("S3.GetObject")
    calls = [span for span in collector.spans() if span.name.startswith("under_store.") and span.trace_id == get.trace_id]
    assert calls and all(attributes(span)["rpc.method"] == span.name.removeprefix("under_store.") for span in calls)
    put = collector.span("S3.PutObject")
    assert collector.span("under_store.put").trace_id == put.trace_id


def test_a_client_that_traces_decides(collector, start_traced):
    server = start_traced(collector.endpoint, mode="TRANSIENT", trace="sample_ratio = 0.0")
    boto(server).create_bucket(Bucket="box")
    trace, parent = secrets.token_hex(16), secrets.token_hex(8)
    traced = {"traceparent": f"00-{trace}-{parent}-01"}
    ignored = {"traceparent": f"00-{secrets.token_hex(16)}-{secrets.token_hex(8)}-00"}
    for headers in ({}, ignored, {"traceparent": "junk"}, traced):
        assert send_signed(server, "PUT", "/box/k", headers, b"x").status == 200
    assert server.stop() == 0
    put = collector.span("S3.PutObject")
    assert (put.trace_id.hex(), put.parent_span_id.hex()) == (trace, parent)
    assert {span.trace_id.hex() for span in collector.spans()} == {trace}
    assert "cache.put" in collector.children(put)


@pytest.mark.parametrize("variable", ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"])
def test_the_variables_of_opentelemetry_count(collector, start_traced, variable):
    endpoint = collector.endpoint + ("/v1/traces" if "TRACES" in variable else "")
    environment = {variable: endpoint, "OTEL_EXPORTER_OTLP_HEADERS": "x-variable=2"}
    server = start_traced(None, trace='headers = "x-tenant=one%20two"', environment=environment, mode="TRANSIENT")
    boto(server).create_bucket(Bucket="box")
    assert server.stop() == 0
    collector.span("S3.CreateBucket")
    path, headers, _ = collector.requests[0]
    lower = {name.lower(): value for name, value in headers.items()}
    assert (path, lower["x-tenant"], lower["x-variable"]) == ("/v1/traces", "one two", "2")


def test_a_collector_that_is_away_slows_nothing_and_keeps_no_stop(start_traced):
    server = start_traced(f"http://127.0.0.1:{free_port()}", mode="TRANSIENT")
    s3 = boto(server)
    s3.create_bucket(Bucket="box")
    for number in range(100):
        s3.put_object(Bucket="box", Key=f"k{number}", Body=b"x")
    began = time.monotonic()
    assert server.stop() == 0
    assert time.monotonic() - began < 30
    assert server.log.read_text().count("spans do not reach the collector") == 1


def test_the_log_on_standard_error_does_not_show_spans(collector, start_traced):
    server = start_traced(collector.endpoint, mode="TRANSIENT", arguments=["--log-level", "debug"])
    boto(server).create_bucket(Bucket="box")
    assert server.stop() == 0
    collector.span("S3.CreateBucket")
    lines = server.log.read_text()
    assert "request answered" in lines and "otel.name" not in lines and "forebay::spans" not in lines
