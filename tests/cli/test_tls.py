"""The admin API over TLS, with a certificate of its own."""

import contextlib
import socket
import ssl
import subprocess

from command_line import CommandLine
from harness.servers import Forebay


class TlsForebay(Forebay):
    """Its certificate is for 127.0.0.1, and its own authority."""

    def __init__(self, directory):
        directory.mkdir(parents=True, exist_ok=True)
        self.certificate, key = directory / "cert.pem", directory / "key.pem"
        make = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
        extensions = ["-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE"]
        files = ["-subj", "/CN=forebay", "-keyout", str(key), "-out", str(self.certificate)]
        subprocess.run([*make, *extensions, *files], check=True, capture_output=True)
        config = f'[server]\ntls_cert = "{self.certificate}"\ntls_key = "{key}"\nadmin_tls = true\n'
        super().__init__(directory, config=config)

    @property
    def admin(self):
        return f"https://127.0.0.1:{self.admin_port}"

    def is_ready(self):
        context = ssl.create_default_context(cafile=self.certificate)
        with contextlib.suppress(OSError):
            with socket.create_connection(("127.0.0.1", self.admin_port), timeout=5) as plain:
                with context.wrap_socket(plain, server_hostname="127.0.0.1") as stream:
                    stream.sendall(b"GET /readyz HTTP/1.0\r\n\r\n")
                    return b" 200 " in stream.recv(100)
        return False


def test_a_private_authority_is_believed_when_it_is_named(tmp_path):
    server = TlsForebay(tmp_path).start()
    cli = CommandLine(server)
    assert cli.json("status", "--ca-cert", server.certificate)["version"]
    line = cli.refused("status", code=1)
    assert "certificate" in line.lower() or "issuer" in line.lower(), line
    cli.refused("status", "--endpoint", server.admin.replace("https", "http"), "--ca-cert", server.certificate, code=1)
    assert server.stop() == 0
