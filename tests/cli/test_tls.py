"""The admin API over TLS, with a certificate of its own."""

import contextlib
import socket
import ssl
import subprocess
import time
import warnings

import pytest
from harness.command_line import CommandLine
from harness.servers import Forebay, eventually


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
    assert "UnknownIssuer" in line and "--ca-cert" in line, line
    assert "https://" in cli.refused("status", "--endpoint", server.admin.replace("https", "http"), "--ca-cert", server.certificate)
    assert server.stop() == 0


def handshake(server, port, version, ciphers=None):
    """The version and the first bytes of an answer, asked by a client that speaks this version alone and is as lax as it can be."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(server.certificate)
    context.set_ciphers(ciphers or "ALL:COMPLEMENTOFALL@SECLEVEL=0")
    with warnings.catch_warnings():
        # Old ones, on purpose.
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version = context.maximum_version = version
    with socket.create_connection(("127.0.0.1", port), timeout=60) as plain:
        with context.wrap_socket(plain, server_hostname="127.0.0.1") as stream:
            stream.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
            return stream.version(), stream.recv(9)


def test_old_versions_of_tls_are_not_spoken(tmp_path):
    """On neither port, however lax the client is; nor those ciphers of TLS 1.2 that have no forward secrecy or authenticate nothing."""
    server = TlsForebay(tmp_path).start()
    for port in (server.port, server.admin_port):
        for version in (ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1):
            with pytest.raises(ssl.SSLError) as refused:
                handshake(server, port, version)
            # It is the server that says so.
            assert "ALERT" in refused.value.reason, refused.value
        for ciphers in ("AES128-SHA", "AES128-GCM-SHA256", "ECDHE-ECDSA-AES128-SHA256", "eNULL", "aNULL"):
            with pytest.raises(ssl.SSLError) as refused:
                handshake(server, port, ssl.TLSVersion.TLSv1_2, f"{ciphers}@SECLEVEL=0")
            assert "ALERT" in refused.value.reason, (ciphers, refused.value)
        for version, name in ((ssl.TLSVersion.TLSv1_2, "TLSv1.2"), (ssl.TLSVersion.TLSv1_3, "TLSv1.3")):
            assert handshake(server, port, version) == (name, b"HTTP/1.1 ")
    assert server.stop() == 0


def as_openssl_makes_it(directory, *options):
    """A certificate and its key by the command that everybody knows."""
    certificate, key = directory / "plain-cert.pem", directory / "plain-key.pem"
    make = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    names = ["-subj", "/CN=forebay", "-addext", "subjectAltName=IP:127.0.0.1", *options]
    subprocess.run([*make, *names, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True)
    return certificate, key


def test_what_is_wrong_with_a_certificate_or_a_scheme_is_told_with_its_cure(tmp_path):
    server = TlsForebay(tmp_path / "server")
    certificate, key = as_openssl_makes_it(tmp_path)
    for path, of in ((server.certificate, certificate), (server.directory / "key.pem", key)):
        path.write_bytes(of.read_bytes())
    # `is_ready` believes it: OpenSSL does.
    cli = CommandLine(server.start())
    line = cli.refused("status", "--ca-cert", certificate, code=1)
    assert "CA:FALSE" in line and "--insecure" in line, line
    assert cli.json("status", "--insecure")["version"] and cli.json("status", FOREBAY_INSECURE="1")["version"]
    plain = server.admin.replace("https", "http")
    line = cli.refused("status", "--endpoint", plain)
    assert "speaks TLS" in line and "https://" in line, line
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as stream:
        stream.sendall(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n")
        answer = stream.makefile("rb").read()
    assert answer.startswith(b"HTTP/1.1 400 ") and b"https://" in answer, answer
    assert server.stop() == 0


def test_a_plain_port_is_told_from_one_of_tls(cli):
    line = cli.refused("status", "--endpoint", cli.server.admin.replace("http", "https"), code=1)
    assert "http://" in line, line


AUTHORITY = """[ca]
default_ca = own
[own]
database = {directory}/index.txt
new_certs_dir = {directory}
rand_serial = yes
default_md = sha256
policy = names
x509_extensions = extensions
[extensions]
basicConstraints = critical,CA:FALSE
[names]
commonName = supplied
"""


def an_old_one(directory, key):
    """A certificate for a key that was valid for a day of 2020."""
    request, certificate, settings = directory / "request.pem", directory / "old.pem", directory / "authority.cnf"
    (directory / "index.txt").touch()
    settings.write_text(AUTHORITY.format(directory=directory))
    subprocess.run(["openssl", "req", "-new", "-key", key, "-subj", "/CN=forebay", "-out", request], check=True, capture_output=True)
    dates = ["-startdate", "20200101000000Z", "-enddate", "20200102000000Z"]
    files = ["-config", settings, "-keyfile", key, "-in", request, "-out", certificate]
    subprocess.run(["openssl", "ca", "-batch", "-notext", "-selfsign", *dates, *files], check=True, capture_output=True)
    return certificate


def test_a_certificate_that_expires_is_reported(tmp_path):
    certificate, key = as_openssl_makes_it(tmp_path)
    server = Forebay(tmp_path / "server", config=f'[server]\ntls_cert = "{certificate}"\ntls_key = "{key}"\n').start()
    told = lambda: [one for one in server.ask("notices") if one["id"] == "certificate-expires"]  # noqa: E731
    metric = lambda name: server.metrics()[f"forebay_certificate_{name}"]  # noqa: E731
    eventually("the time when it expires", lambda: metric("not_after_timestamp_seconds") > time.time() + 86400)
    assert told() == [] and metric("expiring") == 0
    certificate.write_bytes(an_old_one(tmp_path, key).read_bytes())
    one = eventually("the notice", told)[0]
    assert one["severity"] == "critical" and "2020-01-02" in one["title"] and metric("expiring") == 1, one
    assert server.stop() == 0


def shown(port):
    """The certificate that a port shows, in PEM."""
    return ssl.get_server_certificate(("127.0.0.1", port))


def test_a_new_certificate_is_taken_up_and_a_bad_one_is_told(tmp_path):
    server = TlsForebay(tmp_path / "server").start()
    cli = CommandLine(server)
    assert cli.json("status", FOREBAY_CA_CERT=str(server.certificate))["version"]
    first = shown(server.port)
    certificate, key = as_openssl_makes_it(tmp_path, "-addext", "basicConstraints=critical,CA:FALSE")
    server.certificate.write_bytes(certificate.read_bytes())
    refusal = lambda: [one for one in cli.json("status", "--insecure")["notices"] if one["id"] == "certificate-refused"]  # noqa: E731
    told = eventually("the notice that the two do not belong together", refusal)
    assert "server.tls_key" in told[0]["title"] and shown(server.port) == first, told
    (server.directory / "key.pem").write_bytes(key.read_bytes())
    eventually("the new certificate", lambda: shown(server.port) != first)
    assert shown(server.admin_port) == shown(server.port) and refusal() == []
    assert server.stop() == 0
