"""Sessions of the console, as a browser and an attacker use them."""

import http.client
import re
import subprocess

import pytest
import requests
from harness.servers import Forebay

CHANGE = "/api/v1/policies/rule?path=/logs/"


def log_in(server, **changes):
    keys = {"accessKey": server.access_key, "secretKey": server.secret_key} | changes
    return requests.post(f"{server.admin}/api/v1/session", json=keys, timeout=10, verify=False)


def begin(server):
    """A client with the cookie, and the token that goes with it."""
    client = requests.Session()
    answer = log_in(server)
    client.cookies.update(answer.cookies)
    return client, answer.json()["csrf"]


def test_the_cookie_is_out_of_reach_of_scripts_and_other_sites(forebay):
    answer = log_in(forebay)
    assert answer.status_code == 200
    assert re.fullmatch(r"forebay_session=[0-9a-f]{64}; Path=/; HttpOnly; SameSite=Strict", answer.headers["set-cookie"])
    assert answer.headers["cache-control"] == "no-store"
    assert answer.json()["user"] == "root"


def test_under_tls_the_cookie_is_secure_and_nothing_else_is_spoken(tmp_path):
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"]
    make = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    subprocess.run([*make, *names, "-keyout", key, "-out", certificate], check=True, capture_output=True)

    class Encrypted(Forebay):
        @property
        def admin(self):
            return f"https://127.0.0.1:{self.admin_port}"

        def is_ready(self):
            try:
                return requests.get(f"{self.admin}/readyz", verify=certificate, timeout=5).status_code == 200
            except requests.ConnectionError:
                return False

    config = f'[server]\ntls_cert = "{certificate}"\ntls_key = "{key}"\nadmin_tls = true\n'
    server = Encrypted(tmp_path / "forebay", config=config).start()
    keys = {"accessKey": server.access_key, "secretKey": server.secret_key}
    answer = requests.post(f"{server.admin}/api/v1/session", json=keys, timeout=10, verify=certificate)
    assert answer.headers["set-cookie"].endswith("; HttpOnly; SameSite=Strict; Secure")
    plain = requests.get(f"http://127.0.0.1:{server.admin_port}/readyz", timeout=10)
    assert plain.status_code == 400 and "speaks TLS" in plain.json()["detail"], "it says that, and nothing else"
    assert server.stop() == 0


def test_a_change_needs_the_token(forebay):
    client, csrf = begin(forebay)
    change = lambda **headers: client.put(forebay.admin + CHANGE, json={}, headers=headers, timeout=10).status_code  # noqa: E731
    assert change() == 403
    assert change(**{"x-forebay-csrf": csrf[:-1] + "x"}) == 403
    assert change(**{"x-forebay-csrf": csrf}) == 200
    assert client.get(f"{forebay.admin}/api/v1/status", timeout=10).status_code == 200


def test_the_answer_to_a_refused_change_waits_for_its_body(forebay):
    """Or the kernel would reset the connection while the client sends, and the client might never see the answer."""
    connection = http.client.HTTPConnection("127.0.0.1", forebay.admin_port, timeout=0.3)
    connection.putrequest("PUT", CHANGE)
    connection.putheader("content-length", "2")
    connection.endheaders()
    with pytest.raises(TimeoutError):
        connection.sock.recv(1)
    connection.sock.settimeout(10)
    connection.send(b"{}")
    answer = connection.getresponse()
    assert (answer.status, answer.getheader("connection")) == (401, None)
    answer.read()
    connection.request("GET", "/healthz")
    assert connection.getresponse().status == 200
    connection.close()


def test_other_sites_change_nothing(forebay):
    client, csrf = begin(forebay)
    basic = (forebay.access_key, forebay.secret_key)
    for headers, status in [
        ({"Sec-Fetch-Site": "same-origin"}, 200),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Origin": forebay.admin}, 200),
        ({"Origin": "http://evil.example"}, 403),
    ]:
        answer = client.put(forebay.admin + CHANGE, json={}, headers={"x-forebay-csrf": csrf} | headers, timeout=10)
        assert answer.status_code == status, headers
    strangers = {"Sec-Fetch-Site": "cross-site"}
    assert requests.put(forebay.admin + CHANGE, json={}, auth=basic, timeout=10).status_code == 200
    assert requests.put(forebay.admin + CHANGE, json={}, auth=basic, headers=strangers, timeout=10).status_code == 403


def test_a_session_ends_with_logout_and_with_the_process(forebay):
    client, csrf = begin(forebay)
    other, _ = begin(forebay)
    page = f"{forebay.admin}/api/v1/session"
    assert client.delete(page, headers={"x-forebay-csrf": csrf}, timeout=10).status_code == 204
    assert (client.get(page, timeout=10).status_code, other.get(page, timeout=10).status_code) == (401, 200)
    forebay.stop()
    forebay.start()
    assert other.get(page, timeout=10).status_code == 401


def test_guessing_is_slowed_down_and_logged_without_secrets(forebay):
    answers = [log_in(forebay, secretKey=f"guess-{number}") for number in range(20)]
    statuses = [answer.status_code for answer in answers]
    assert 401 in statuses and statuses[-1] == 429, statuses
    assert int(answers[-1].headers["retry-after"]) > 0
    assert log_in(forebay).status_code == 429, "the right guess is not told from the others"
    assert log_in(forebay, accessKey="OTHER").status_code == 401, "others are not locked out"
    log = forebay.log.read_text()
    assert "admin login refused" in log
    assert "guess-" not in log and forebay.secret_key not in log
