"""An under store that says what a test wants it to say."""

import http.server
import os
import secrets
import ssl
import subprocess
import threading
import urllib.parse
from xml.sax.saxutils import escape

EMPTY_LIST = b"<ListBucketResult><Name>bucket</Name><KeyCount>0</KeyCount><IsTruncated>false</IsTruncated></ListBucketResult>"


def error(code, message):
    return f'<?xml version="1.0" encoding="UTF-8"?><Error><Code>{code}</Code><Message>{escape(message)}</Message></Error>'.encode()


class Authority:
    """Makes certificates that are believed where its own is."""

    KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]

    def __init__(self, directory):
        self.directory = directory
        directory.mkdir()
        self.certificate, self.key = self._make("authority", [], "basicConstraints=critical,CA:TRUE", {})

    def certify(self, name, host="IP:127.0.0.1", variables=None):
        """The files of a certificate and of its key. `variables` are for the environment of openssl."""
        signer = ["-CA", self.certificate, "-CAkey", self.key, "-addext", "basicConstraints=critical,CA:FALSE"]
        return self._make(name, signer, f"subjectAltName={host}", variables or {})

    def _make(self, name, signer, extension, variables):
        certificate, key = self.directory / f"{name}.pem", self.directory / f"{name}.key"
        words = ["-subj", f"/CN={name}", "-addext", extension, "-keyout", key, "-out", certificate]
        made = ["openssl", "req", "-x509", *self.KEY, *signer, *words]
        subprocess.run(made, check=True, capture_output=True, env=os.environ | variables)
        return certificate, key


class FakeStore:
    """Gives every request the same `answer`, and remembers who asked for what. With the files of a certificate and its key it speaks
    TLS, and remembers whom it could not agree with."""

    def __init__(self, certified=None):
        self.access_key, self.secret_key = "BEHIND" + secrets.token_hex(6).upper(), "behind-" + secrets.token_hex(20)
        self.asked = []
        self.disagreed = []
        self.tls = None
        if certified:
            self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.tls.load_cert_chain(*certified)
        self.answer = (200, {}, EMPTY_LIST)
        store = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def serve(self):
                length = int(self.headers.get("Content-Length") or 0)
                self.rfile.read(length)
                store.asked.append((self.command, self.path, dict(self.headers)))
                answer = store.answer(self.command, self.path) if callable(store.answer) else store.answer
                status, headers, body = answer
                lines = {"Content-Length": str(len(body)), "Content-Type": "application/xml"} | headers
                head = [f"HTTP/1.1 {status} Whatever", *(f"{name}: {value}" for name, value in lines.items()), "", ""]
                self.close_connection = lines.get("Connection") == "close"
                self.wfile.write("\r\n".join(head).encode("latin-1") + (b"" if self.command == "HEAD" else body))

            do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = serve

            def log_message(self, *_):
                pass

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True

            def finish_request(self, connection, address):
                if store.tls is None:
                    return super().finish_request(connection, address)
                try:
                    stream = store.tls.wrap_socket(connection, server_side=True)
                except OSError as problem:
                    store.disagreed.append(problem)
                else:
                    with stream:
                        super().finish_request(stream, address)

        self.server = Server(("127.0.0.1", 0), Handler)

    @property
    def endpoint(self):
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.server.server_port}"

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()

    def fail_with(self, status, code, message, headers=None):
        self.answer = (status, headers or {}, error(code, message))

    def names(self):
        """The paths that were asked for, decoded."""
        return [urllib.parse.unquote(path) for _, path, _ in self.asked]
