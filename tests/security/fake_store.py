"""An under store that says what a test wants it to say."""

import http.server
import secrets
import threading
import urllib.parse
from xml.sax.saxutils import escape

EMPTY_LIST = b"<ListBucketResult><Name>bucket</Name><KeyCount>0</KeyCount><IsTruncated>false</IsTruncated></ListBucketResult>"


def error(code, message):
    return f'<?xml version="1.0" encoding="UTF-8"?><Error><Code>{code}</Code><Message>{escape(message)}</Message></Error>'.encode()


class FakeStore:
    """Answers every request alike until it is told otherwise, and remembers who asked for what."""

    def __init__(self):
        self.access_key, self.secret_key = "BEHIND" + secrets.token_hex(6).upper(), "behind-" + secrets.token_hex(20)
        self.asked = []
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

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True

    @property
    def endpoint(self):
        return f"http://127.0.0.1:{self.server.server_port}"

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
