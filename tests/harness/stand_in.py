"""Stands in front of an S3 server and does to chosen requests what networks, gateways, busy servers and other writers do to them."""

import contextlib
import copy
import dataclasses
import http.client
import http.server
import select
import socket
import threading
import urllib.parse

from harness.clients import boto

STAMP = "x-amz-meta-forebay-stamp"
# What a slow peer moves: a byte, then a pause.
PAUSE_MS = 100
# What the kernel takes ahead of a slow reader is far less than a part of an upload.
RECEIVE_BYTES = 64 << 10
# Between two servers, only the ends of which count here.
HOP_HEADERS = ("connection", "expect", "keep-alive", "transfer-encoding")


@dataclasses.dataclass(frozen=True)
class Answer:
    status: int
    headers: tuple
    body: bytes


def error(status, code, message="by the stand-in"):
    """An error as S3 tells of it."""
    document = f'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{code}</Code><Message>{message}</Message></Error>'
    return Answer(status, (("Content-Type", "application/xml"),), document.encode())


def page(status):
    """An error of something on the way that does not speak S3."""
    return Answer(status, (("Content-Type", "text/html"),), b"<html><h1>upstream</h1></html>")


def operation_of(method, query):
    if method == "POST" and "uploads" in query:
        return "begin"
    if "uploadId" in query:
        return {"PUT": "part", "POST": "complete", "DELETE": "abort"}.get(method, "parts")
    if set(query) - {"x-id"}:
        return "other"
    return {"PUT": "put", "DELETE": "delete", "HEAD": "head", "GET": "get"}.get(method, "other")


class Rule:
    """What happens to some requests."""

    def __init__(self, operation, action, key, part, times):
        self.operation, self.action, self.key, self.part, self.times = operation, action, key, part, times
        self.seen = 0
        self.gate = threading.Event()

    def takes(self, exchange):
        fits = self.operation in ("any", exchange.operation) and self.key in (None, exchange.key)
        return fits and self.part in (None, exchange.part) and (self.times is None or self.seen < self.times)

    def release(self):
        """Requests from now on go through, and those that were held."""
        self.times = 0
        self.gate.set()


class Exchange(http.server.BaseHTTPRequestHandler):
    """One connection, and the request on it that is being served."""

    protocol_version = "HTTP/1.1"
    stand_in = None

    def serve(self):
        target = urllib.parse.urlsplit(self.path)
        query = urllib.parse.parse_qs(target.query, keep_blank_values=True)
        _, self.bucket, self.key = (urllib.parse.unquote(target.path) + "//").split("/", 2)
        self.key = self.key.rstrip("/")
        self.operation = operation_of(self.command, query)
        self.upload = query.get("uploadId", [None])[0]
        self.part = int(query["partNumber"][0]) if "partNumber" in query else None
        self.length, self.body = int(self.headers.get("Content-Length") or 0), None
        rule = self.stand_in.rule_for(self)
        with contextlib.suppress(OSError, http.client.HTTPException):
            self.reply(rule.action(self, rule) if rule else self.forward())
            return
        self.hang_up()

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = serve

    def log_message(self, *_):
        pass

    def read(self):
        if self.body is None:
            self.body = self.rfile.read(self.length)
            if len(self.body) < self.length:
                raise ConnectionError("the client has gone")
        return self.body

    def forward(self):
        """Has the server behind carry it out."""
        body = self.read()
        return self.stand_in.carry_out(self, body)

    def reply(self, answer):
        """None hangs up."""
        if answer is None:
            return self.hang_up()
        self.read()
        self.wfile.write(self.written(answer))

    def written(self, answer):
        headers = [(name, value) for name, value in answer.headers if name.lower() not in HOP_HEADERS]
        if self.command != "HEAD":
            headers = [(name, value) for name, value in headers if name.lower() != "content-length"]
            headers.append(("Content-Length", str(len(answer.body))))
        lines = [f"HTTP/1.1 {answer.status} Answer", *(f"{name}: {value}" for name, value in headers), "", ""]
        return "\r\n".join(lines).encode("latin-1") + (b"" if self.command == "HEAD" else answer.body)

    def hang_up(self):
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def has_lost_its_client(self, milliseconds):
        """Waits, and says whether the client has gone meanwhile."""
        poll = select.poll()
        poll.register(self.connection, select.POLLRDHUP)
        return bool(poll.poll(milliseconds))


class StandIn:
    """Has the keys of the server behind it. Without rules all goes through."""

    def __init__(self, server):
        self.access_key, self.secret_key = server.access_key, server.secret_key
        self.behind = server
        self.rules = []
        # (operation, key, generation) of the changes that the server behind has confirmed.
        self.applied = []
        # Of uploads in parts.
        self.generations = {}
        self.lock = threading.Lock()
        handler = type("Handler", (Exchange,), {"stand_in": self})
        self.listener = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler, bind_and_activate=False)
        # Connections have what the listener has.
        self.listener.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
        self.listener.request_queue_size = 256
        self.listener.daemon_threads = True
        self.listener.server_bind()
        self.listener.server_activate()
        threading.Thread(target=self.listener.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def endpoint(self):
        return f"http://127.0.0.1:{self.listener.server_port}"

    def on(self, operation, action, key=None, part=None, times=1):
        """The next `times` requests of this kind; None is all until the rule is released."""
        rule = Rule(operation, action, key, part, times)
        with self.lock:
            self.rules.append(rule)
        return rule

    def rule_for(self, exchange):
        with self.lock:
            rule = next((rule for rule in self.rules if rule.takes(exchange)), None)
            if rule:
                rule.seen += 1
        return rule

    def changes(self, key):
        """What was done to a key, in its order: (operation, generation)."""
        with self.lock:
            return [(operation, generation) for operation, other, generation in self.applied if other == key]

    def carry_out(self, exchange, body):
        connection = http.client.HTTPConnection("127.0.0.1", self.behind.port, timeout=60)
        try:
            connection.putrequest(exchange.command, exchange.path, skip_host=True, skip_accept_encoding=True)
            for name, value in exchange.headers.items():
                if name.lower() not in HOP_HEADERS:
                    connection.putheader(name, value)
            connection.endheaders()
            if body:
                connection.send(body)
            response = connection.getresponse()
            answer = Answer(response.status, tuple(response.getheaders()), response.read())
        finally:
            connection.close()
        self._note(exchange, answer)
        return answer

    def _note(self, exchange, answer):
        # An error may hide in a success.
        if not 200 <= answer.status < 300 or b"<Error>" in answer.body:
            return
        fields = exchange.headers.get(STAMP, "").split(";")
        generation = next((int(field[2:]) for field in fields if field.startswith("g=")), None)
        with self.lock:
            if exchange.operation == "begin":
                upload = answer.body.partition(b"<UploadId>")[2].partition(b"</UploadId>")[0].decode()
                self.generations[upload] = generation
            elif exchange.operation in ("put", "delete"):
                self.applied.append((exchange.operation, exchange.key, generation))
            # Of an upload that is gone nothing is done, whatever the server says.
            elif exchange.operation in ("part", "complete") and exchange.upload in self.generations:
                self.applied.append((exchange.operation, exchange.key, self.generations[exchange.upload]))

    def abort(self, exchange):
        """As somebody else would, past the stand-in."""
        upload = {"Bucket": exchange.bucket, "Key": exchange.key, "UploadId": exchange.upload}
        boto(self.behind).abort_multipart_upload(**upload)
        with self.lock:
            self.generations.pop(exchange.upload, None)

    def close(self):
        for rule in self.rules:
            rule.release()
        self.listener.shutdown()
        self.listener.server_close()


# Actions: what happens to a request.


def answers(answer):
    """It is not carried out."""
    return lambda exchange, rule: answer


def is_applied_and_dropped(exchange, rule):
    """It is carried out, and the connection breaks instead of an answer."""
    exchange.forward()


def is_applied_and_answered(answer):
    """It is carried out, and the answer is another one."""

    def action(exchange, rule):
        exchange.forward()
        return answer

    return action


def has_its_answer_cut(exchange, rule):
    exchange.wfile.write(exchange.written(exchange.forward())[:-20])


def is_cut(exchange, rule):
    """The connection breaks in the middle of its body."""
    exchange.rfile.read(exchange.length // 2)


def without(header):
    def action(exchange, rule):
        answer = exchange.forward()
        return dataclasses.replace(answer, headers=tuple(pair for pair in answer.headers if pair[0].lower() != header))

    return action


def with_tag(tag):
    def action(exchange, rule):
        return dataclasses.replace(without("etag")(exchange, rule), headers=(("ETag", tag),))

    return action


def is_aborted_first(exchange, rule):
    """Somebody else has aborted the upload that this is of."""
    exchange.read()
    exchange.stand_in.abort(exchange)
    return error(404, "NoSuchUpload")


def is_aborted_first_and_forwarded(exchange, rule):
    """As before; what the answer to that is, the server behind says."""
    is_aborted_first(exchange, rule)
    return exchange.forward()


def comes_after(call):
    """Something else happens first; `call` gets the exchange."""

    def action(exchange, rule):
        call(exchange)
        return exchange.forward()

    return action


def is_held(answer=None):
    """The client gets an answer that says nothing, or none, and the request is carried out when the rule is released."""

    def action(exchange, rule):
        # The connection may carry another request meanwhile.
        held, body = copy.copy(exchange), exchange.read()

        def later():
            rule.gate.wait()
            with contextlib.suppress(OSError):
                held.stand_in.carry_out(held, body)

        threading.Thread(target=later, daemon=True).start()
        return answer

    return action


def waits(exchange, rule):
    """Carried out when the rule is released, even if the client has gone."""
    exchange.read()
    rule.gate.wait()
    return exchange.forward()


def is_applied_and_waits(exchange, rule):
    """Carried out at once, and answered when the rule is released."""
    answer = exchange.forward()
    rule.gate.wait()
    return answer


def is_read_slowly(exchange, rule):
    """By single bytes, until the client goes or the rule is released."""
    body = bytearray()
    while len(body) < exchange.length and not rule.gate.is_set():
        body += exchange.rfile.read(1)
        if exchange.has_lost_its_client(PAUSE_MS):
            return None
    body += exchange.rfile.read(exchange.length - len(body))
    exchange.body = bytes(body)
    return exchange.forward() if len(body) == exchange.length else None


def is_answered_slowly(exchange, rule):
    """Carried out at once, and answered by single bytes until the client goes or the rule is released."""
    text = exchange.written(exchange.forward())
    sent = 0
    while sent < len(text) and not rule.gate.is_set():
        exchange.wfile.write(text[sent : sent + 1])
        sent += 1
        if exchange.has_lost_its_client(PAUSE_MS):
            return None
    exchange.wfile.write(text[sent:])
