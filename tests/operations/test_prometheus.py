"""Prometheus reads a real Forebay: the rules evaluate, the dashboard's queries have data, an alert fires."""

import importlib.util
import json
import re
import subprocess
import urllib.error
import urllib.parse
import urllib.request

import pytest
import yaml

from harness.clients import boto
from harness.servers import ROOT, Forebay, S3Server, Server, answers, eventually

DEPLOY = ROOT / "deploy"
RULES = DEPLOY / "prometheus" / "forebay.rules.yml"
DASHBOARD = DEPLOY / "grafana" / "forebay.json"
TOOLS = ROOT / ".tools" / "prometheus" / "usr" / "bin"
REFERENCE = ROOT / "docs" / "metrics-reference.md"
MONITORING = ROOT / "docs" / "monitoring.md"
RUNBOOKS = ROOT / "docs" / "runbooks.md"

# Prometheus' own, and what it makes of targets and alerts.
BUILT_IN = {"up", "ALERTS"}
# Panels without data while all is well, or where no single disk is under the directory.
QUIET = {
    "Failed uploads",
    "Until it is empty",
    "Disks busy",
    "Alerts",
}
# forebay:backlog_drain:seconds is absent unless the backlog shrinks.
QUIET_RECORDS = {"forebay:backlog_drain:seconds"}


class Prometheus(Server):
    """Prometheus itself, reading one target every second."""

    def __init__(self, directory, target, rules):
        super().__init__(directory)
        assert (TOOLS / "prometheus").exists(), "Prometheus is not installed: run `scripts/setup prometheus`"
        (directory / "forebay.rules.yml").write_text(rules)
        config = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
        config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
        config["scrape_configs"][0]["static_configs"] = [{"targets": [target]}]
        (directory / "prometheus.yml").write_text(yaml.safe_dump(config))

    def command(self):
        return [
            str(TOOLS / "prometheus"),
            f"--config.file={self.directory}/prometheus.yml",
            f"--storage.tsdb.path={self.directory}/tsdb",
            f"--web.listen-address=127.0.0.1:{self.port}",
            f"--web.console.templates={self.directory}",
            f"--web.console.libraries={self.directory}",
        ]

    def environment(self):
        return {}

    def is_ready(self):
        return answers(f"{self.endpoint}/-/ready")

    def ask(self, page, **parameters):
        url = f"{self.endpoint}/api/v1/{page}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=30) as response:
                return json.load(response)["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{parameters}: {error.read().decode()}") from None

    def query(self, expression):
        return self.ask("query", query=expression)["result"]

    def rules(self):
        return [rule for group in self.ask("rules")["groups"] for rule in group["rules"]]


def promtool(*arguments, **options):
    return subprocess.run([TOOLS / "promtool", *arguments], capture_output=True, text=True, cwd=RULES.parent, **options)


def complaints_about_metrics(forebay):
    """What promtool has to say. It reads the older format, in which help stands beside a counter's name with `_total`."""
    with urllib.request.urlopen(f"{forebay.admin}/metrics", timeout=10) as response:
        done = promtool("check", "metrics", input=response.read().decode())
    lines = (done.stdout + done.stderr).splitlines()
    return [line for line in lines if not line.endswith("_total no help text")]


def all_rules():
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def panels(of_cluster=True):
    """All of them, or those that have data where no worker belongs to a cluster."""
    row, found = None, []
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        if panel["type"] == "row":
            row = panel["title"]
        elif of_cluster or row != "Cluster":
            found.append(panel)
    return found


def substituted(expression):
    """The query as Grafana sends it."""
    values = {"job": ".*", "instance": ".*", "operation": ".*", "__rate_interval": "30s", "price_read": "0.0004", "price_write": "0.005"}
    for name, value in values.items():
        expression = expression.replace(f"${name}", value)
    assert "$" not in expression, expression
    return expression


def documented_metrics():
    """Names as Prometheus has them, with those of a histogram."""
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \|", REFERENCE.read_text(), re.M)
    suffixes = {"histogram": ["_bucket", "_sum", "_count"]}
    return {name + suffix for name, kind in rows for suffix in suffixes.get(kind, [""])}


def metrics_of(expression):
    without_labels = re.sub(r"\{[^}]*\}|\b(by|ignoring|on|without) ?\([^)]*\)|\[[^\]]*\]", " ", expression)
    return {name for name in re.findall(r"[a-z_][a-z0-9_:]*", without_labels) if name.startswith(("forebay", "process_"))}


def test_rules_and_their_tests_hold():
    for command in (["check", "rules", "forebay.rules.yml"], ["check", "config", "prometheus.yml"], ["test", "rules", "forebay.rules.test.yml"]):
        done = promtool(*command)
        assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_is_tested_documented_and_says_what_to_do():
    tests = yaml.safe_load((RULES.parent / "forebay.rules.test.yml").read_text())["tests"]
    cases = [case for test in tests for case in test.get("alert_rule_test", [])]
    document, runbooks = MONITORING.read_text(), RUNBOOKS.read_text()
    alerts = [rule for rule in all_rules() if "alert" in rule]
    assert len(alerts) > 10
    for rule in alerts:
        name = rule["alert"]
        outcomes = {bool(case["exp_alerts"]) for case in cases if case["alertname"] == name}
        assert outcomes == {True, False}, f"{name} is not tested both ways"
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert {"summary", "description", "runbook_url"} <= set(rule["annotations"])
        assert rule["annotations"]["runbook_url"].endswith(f"/docs/runbooks.md#{name.lower()}")
        assert f"\n### {name}\n" in runbooks
        row = f"| [{name}](runbooks.md#{name.lower()}) | {rule['labels']['severity']} | `{' '.join(rule['expr'].split())}` | {rule['for']} |"
        assert row in document, row
    assert runbooks.count("\n### Forebay") == len(alerts), "alerts that are no more"


def test_every_metric_of_rules_and_dashboard_exists():
    recorded = {rule["record"] for rule in all_rules() if "record" in rule}
    known = documented_metrics() | recorded
    assert len(known) > 50
    asked = [rule["expr"] for rule in all_rules()]
    asked += [target["expr"] for panel in panels() for target in panel["targets"]]
    for expression in asked:
        used = metrics_of(expression)
        assert used or BUILT_IN & set(re.findall(r"\w+", expression)), expression
        assert used <= known, used - known


def test_the_dashboard_is_what_its_script_writes():
    spec = importlib.util.spec_from_file_location("dashboard", DASHBOARD.with_name("dashboard.py"))
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    assert DASHBOARD.read_text() == script.text(), "run deploy/grafana/dashboard.py"


def test_the_dashboard_has_the_shape_that_grafana_wants():
    board = json.loads(DASHBOARD.read_text())
    assert {"title", "uid", "schemaVersion", "panels", "templating", "time"} <= set(board)
    assert board.get("id") is None, "an id belongs to one Grafana"
    variables = {variable["name"]: variable for variable in board["templating"]["list"]}
    assert variables["datasource"]["type"] == "datasource"
    assert {"job", "instance", "price_read", "price_write"} <= set(variables)
    ids = [panel["id"] for panel in board["panels"]]
    assert len(set(ids)) == len(ids)
    taken = set()
    for panel in board["panels"]:
        place = panel["gridPos"]
        cells = {(x, y) for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])}
        assert not cells & taken, f"{panel['title']} lies over another"
        assert place["x"] + place["w"] <= 24
        taken |= cells
    for panel in panels():
        for source in [panel["datasource"], *(target["datasource"] for target in panel["targets"])]:
            assert source == {"type": "prometheus", "uid": "${datasource}"}
        letters = [target["refId"] for target in panel["targets"]]
        assert panel["targets"] and len(set(letters)) == len(letters)
        for target in panel["targets"]:
            for used in re.findall(r"\$(\w+)", target["expr"]):
                assert used in variables or used == "__rate_interval", f"{panel['title']}: ${used}"


def load(s3, bucket, number):
    """Some of everything: writes, hits, misses, listings, a request that fails."""
    s3.put_object(Bucket=bucket, Key=f"object-{number}", Body=b"x" * 20_000)
    s3.get_object(Bucket=bucket, Key=f"object-{number}")["Body"].read()
    s3.head_object(Bucket=bucket, Key=f"object-{number}")
    s3.list_objects_v2(Bucket=bucket)
    with pytest.raises(s3.exceptions.NoSuchKey):
        s3.get_object(Bucket=bucket, Key="absent")


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    """A Forebay in front of S3, a Prometheus that reads it, with alerts that do not wait; under load until all series have rates."""
    directory = tmp_path_factory.mktemp("watched")
    behind = S3Server(directory / "s3").start()
    fast = "[cache]\npersist_backoff_max = \"1 s\"\n[under_store_limits]\ncircuit_failures = 2\n"
    forebay = Forebay(directory / "forebay", mode="WRITE_BACK", behind=behind, config=fast).start()
    rules = re.sub(r"for: \w+", "for: 0s", RULES.read_text()).replace("_age_seconds > 1800", "_age_seconds > 2")
    prometheus = Prometheus(directory / "prometheus", f"127.0.0.1:{forebay.admin_port}", rules).start()
    yield behind, forebay, prometheus
    for server in (prometheus, forebay, behind):
        if server.process.poll() is None:
            server.kill()


def test_rules_and_dashboard_have_data_under_load_and_an_outage_is_told(watched):
    behind, forebay, prometheus = watched
    s3 = boto(forebay)
    s3.create_bucket(Bucket="watched")
    numbers = iter(range(1_000_000))

    def under_load(what, condition):
        def once():
            number = next(numbers)
            load(s3, "watched", number)
            boto(behind).put_object(Bucket="watched", Key=f"cold-{number}", Body=b"y" * 100_000)
            s3.get_object(Bucket="watched", Key=f"cold-{number}")["Body"].read()
            return condition()

        return eventually(what, once, 90)

    def without_data():
        return [
            (panel["title"], target["expr"])
            for panel in panels(of_cluster=False)
            for target in panel["targets"]
            if panel["title"] not in QUIET and not prometheus.query(substituted(target["expr"]))
        ]

    def unrecorded():
        names = {rule["record"] for rule in all_rules() if "record" in rule} - QUIET_RECORDS
        return sorted(name for name in names if not prometheus.query(name))

    def implausible():
        # Some of the reads have to ask the under store; a rate needs two samples that differ.
        ratios = [float(sample["value"][1]) for sample in prometheus.query("forebay:hit_ratio:rate5m")]
        return [("hit ratio", ratio) for ratio in ratios if not 0 < ratio < 1]

    missing = []

    def complete():
        missing[:] = without_data() + unrecorded() + implausible()
        return not missing

    try:
        under_load("data for all panels and rules", complete)
    except AssertionError:
        raise AssertionError(f"without data: {missing}") from None
    assert complaints_about_metrics(forebay) == []
    # Queries that may have no data must still be valid.
    for panel in panels():
        for target in panel["targets"]:
            prometheus.query(substituted(target["expr"]))
    unhealthy = [(rule["name"], rule.get("lastError")) for rule in prometheus.rules() if rule["health"] != "ok"]
    assert unhealthy == []
    assert [alert for alert in firing(prometheus) if alert != "ForebayBacklogOld"] == []

    behind.kill()
    s3.put_object(Bucket="watched", Key="dirty", Body=b"waits")

    def told():
        return {"ForebayUnderStoreCircuitOpen", "ForebayBacklogOld"} <= set(firing(prometheus))

    eventually("alerts about the outage", told, 60)


def firing(prometheus):
    return sorted({sample["metric"]["alertname"] for sample in prometheus.query('ALERTS{alertstate="firing"}')})
