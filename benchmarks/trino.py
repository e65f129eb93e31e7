"""Two Trino servers over a distant S3: directly, with Trino's own cache of files, and through Forebay."""

import contextlib
import json
import os
import pathlib
import re
import shutil
import statistics
import time
import urllib.request

import peers
from harness import servers
from harness.clients import boto
from report import Section

INSTALLED = peers.ROOT / ".tools" / "trino"
JDK_MINIMUM = 24
BUCKET = "lake"
# Of TPC-H: 600,000 rows of line items.
SCALE = "sf0.1"
# Only what the engine needs for itself must fit: eight servers run at once.
HEAP = "1200M"
CATALOGS = ("hive", "iceberg")
# What is measured, and a copy of it that servers warm up with after their start.
MEASURED, WARM_UP = "measured", "warm_up"
WARM_UP_PASSES = 3
DIRECT, CACHED, THROUGH = "Trino alone", "Trino with `fs.cache`", "Forebay"
# What is left of a query when the S3 is near: no cache of files saves more.
NEAR = "Trino alone, S3 without the 30 ms"
# Forebay's policy: what a query engine writes into tables is not replaced by others.
CONFIG = """
[[policy]]
path = "/"
metadataTtl = "1 h"
"""
# US$ per million requests, by Amazon S3's price list of us-east-1 for S3 Standard.
PRICES = {"GET": 0.4, "HEAD": 0.4, "LIST": 5.0, "other": 5.0}

JVM = f"""-server
-Xmx{HEAP}
-XX:+ExplicitGCInvokesConcurrent
-XX:ReservedCodeCacheSize=256M
-XX:-OmitStackTraceInFastThrow
-Djdk.attach.allowAttachSelf=true
-Djdk.nio.maxCachedBufferSize=2000000
-Dfile.encoding=UTF-8
-XX:+EnableDynamicAgentLoading
"""

TABLES = {
    "lineitem": (
        "SELECT orderkey, partkey, quantity, extendedprice, discount, tax, returnflag, linestatus, shipdate, shipmode, year(shipdate) AS ship_year "
        "FROM tpch.{scale}.lineitem",
        "ship_year",
    ),
    "orders": ("SELECT orderkey, custkey, totalprice, orderdate, orderpriority, year(orderdate) AS order_year FROM tpch.{scale}.orders", "order_year"),
    "customer": ("SELECT custkey, name, nationkey, mktsegment, acctbal FROM tpch.{scale}.customer", None),
    "part": ("SELECT partkey, type, brand, size FROM tpch.{scale}.part", None),
    "nation": ("SELECT nationkey, name, regionkey FROM tpch.{scale}.nation", None),
}

# Tiles of a dashboard, after queries of TPC-H.
QUERIES = {
    "pricing summary": (
        "SELECT returnflag, linestatus, sum(quantity), sum(extendedprice * (1 - discount)), avg(discount), count(*) "
        "FROM lineitem WHERE shipdate <= DATE '1998-09-02' GROUP BY 1, 2 ORDER BY 1, 2"
    ),
    "revenue by month": (
        "SELECT date_trunc('month', shipdate), sum(extendedprice * (1 - discount)) FROM lineitem WHERE ship_year = 1997 GROUP BY 1 ORDER BY 1"
    ),
    "forecast": (
        "SELECT sum(extendedprice * discount) FROM lineitem WHERE ship_year = 1994 AND discount BETWEEN 0.05 AND 0.07 AND quantity < 24"
    ),
    "open orders": (
        "SELECT o.orderkey, sum(l.extendedprice * (1 - l.discount)) AS revenue, o.orderdate FROM customer c "
        "JOIN orders o ON c.custkey = o.custkey JOIN lineitem l ON l.orderkey = o.orderkey "
        "WHERE c.mktsegment = 'BUILDING' AND o.order_year = 1995 AND l.ship_year = 1995 GROUP BY 1, 3 ORDER BY revenue DESC, 3 LIMIT 10"
    ),
    "priorities": "SELECT orderpriority, count(*) FROM orders WHERE order_year = 1996 GROUP BY 1 ORDER BY 1",
    "customers by nation": (
        "SELECT n.name, count(*), sum(c.acctbal) FROM customer c JOIN nation n ON c.nationkey = n.nationkey GROUP BY 1 ORDER BY 3 DESC"
    ),
    "promotions": (
        "SELECT 100.0 * sum(CASE WHEN p.type LIKE 'PROMO%' THEN l.extendedprice * (1 - l.discount) ELSE 0 END) "
        "/ sum(l.extendedprice * (1 - l.discount)) FROM lineitem l JOIN part p ON l.partkey = p.partkey "
        "WHERE l.ship_year = 1995 AND l.shipdate >= DATE '1995-09-01' AND l.shipdate < DATE '1995-10-01'"
    ),
    "latest orders": "SELECT orderkey, totalprice, orderdate FROM orders WHERE order_year = 1998 ORDER BY orderdate DESC, totalprice DESC LIMIT 20",
}


class CountingS3(servers.S3Server):
    """versitygw, which writes down what it is asked for. Several of them may serve the same directory."""

    def __init__(self, directory, objects=None):
        super().__init__(directory)
        self.objects = objects or self.objects
        self.requests = directory / "requests"

    def command(self):
        arguments = ["--port", f"127.0.0.1:{self.port}", "--quiet", "--keep-alive", "--access-log", str(self.requests)]
        return [str(self.binary), *arguments, "posix", str(self.objects)]

    def counts(self):
        """How many requests of each kind it has answered."""
        counts = dict.fromkeys(PRICES, 0)
        kinds = {"s3_GetObject": "GET", "s3_HeadObject": "HEAD", "s3_ListObjectsV2": "LIST"}
        for operation in re.findall(r" (s3_\w+) ", self.requests.read_text()):
            counts[kinds.get(operation, "other")] += 1
        return counts


class Trino(servers.Server):
    """One server with a catalog of Hive and one of Iceberg. Their metastore is a directory, which all servers share."""

    def __init__(self, directory, s3, metastore, caches):
        super().__init__(directory)
        self.s3, self.metastore, self.caches = s3, metastore, caches
        self.cache = directory / "cache"
        etc = directory / "etc"
        (etc / "catalog").mkdir(parents=True)
        files = {
            "jvm.config": JVM,
            "node.properties": properties({"node.environment": "bench", "node.data-dir": directory / "data"}),
            "config.properties": properties(
                {
                    "coordinator": "true",
                    "node-scheduler.include-coordinator": "true",
                    "http-server.http.port": self.port,
                    "discovery.uri": self.endpoint,
                    "plugin.dir": INSTALLED / "plugins",
                    "query.max-memory-per-node": "300MB",
                    "catalog.management": "static",
                }
            ),
            "log.properties": "io.trino=WARN\n",
            "catalog/tpch.properties": properties({"connector.name": "tpch"}),
            "catalog/hive.properties": properties(
                {"connector.name": "hive", "hive.metastore": "file", "hive.non-managed-table-writes-enabled": "true"} | self.files("hive")
            ),
            "catalog/iceberg.properties": properties({"connector.name": "iceberg", "iceberg.catalog.type": "TESTING_FILE_METASTORE"} | self.files("iceberg")),
        }
        for name, text in files.items():
            (etc / name).write_text(text)

    def files(self, catalog):
        """The properties of a catalog's file systems."""
        found = {
            "hive.metastore.catalog.dir": "local:///",
            # The tables lie elsewhere, and such a metastore wants them to be external.
            "hive.metastore.disable-location-checks": "true",
            "fs.native-local.enabled": "true",
            "local.location": self.metastore / catalog,
            "fs.native-s3.enabled": "true",
            "s3.endpoint": self.s3.endpoint,
            "s3.region": servers.REGION,
            "s3.path-style-access": "true",
            "s3.aws-access-key": self.s3.access_key,
            "s3.aws-secret-key": self.s3.secret_key,
        }
        # The coordinator keeps small files of Iceberg in its memory. In a cluster of servers those are metadata, and workers keep nothing of tables.
        # Here one server is both.
        if catalog == "iceberg":
            found["fs.memory-cache.max-content-length"] = "128kB"
        if self.caches:
            directory = self.cache / catalog
            directory.mkdir(parents=True)
            found |= {"fs.cache.enabled": "true", "fs.cache.directories": directory, "fs.cache.max-sizes": "2GB"}
        return found

    def command(self):
        launcher = next(INSTALLED.glob("trino-server-core-*")) / "bin" / "launcher"
        return [str(launcher), "run", "--etc-dir", str(self.directory / "etc"), "--data-dir", str(self.directory / "data")]

    def environment(self):
        return {"JAVA_HOME": str(java_home())}

    def is_ready(self):
        # It answers before its catalogs are loaded.
        if not servers.accepts_connections(self.port):
            return False
        with contextlib.suppress(OSError, QueryFailed):
            return bool(self.query("SELECT count(*) FROM tpch.tiny.nation"))
        return False

    def query(self, statement, catalog="tpch", schema="tiny"):
        """All rows of the result. Each answer names where the next part of the result is; the server holds a request until it has something."""
        headers = {"X-Trino-User": "bench", "X-Trino-Catalog": catalog, "X-Trino-Schema": schema}
        request = urllib.request.Request(f"{self.endpoint}/v1/statement", statement.encode(), headers)
        rows = []
        while request:
            with urllib.request.urlopen(request, timeout=600) as response:
                answer = json.load(response)
            if error := answer.get("error"):
                raise QueryFailed(f"{statement}: {error['message']}")
            rows += answer.get("data", [])
            following = answer.get("nextUri")
            request = urllib.request.Request(following, headers=headers) if following else None
        return rows


class QueryFailed(Exception):
    pass


def properties(values):
    return "".join(f"{name}={value}\n" for name, value in values.items())


def java_home():
    """The newest JDK, if there is one that runs Trino."""

    def version(home):
        release = (home / "release").read_text() if (home / "release").exists() else ""
        found = re.search(r'JAVA_VERSION="(\d+)', release)
        return int(found.group(1)) if found else 0

    homes = [pathlib.Path(os.environ[name]) for name in ("JAVA_HOME",) if name in os.environ]
    homes += pathlib.Path("/usr/lib/jvm").glob("*")
    newest = max(homes, key=version, default=None)
    return newest if newest and version(newest) >= JDK_MINIMUM else None


class Contender:
    """Two servers of Trino that reach the S3 in the same way."""

    def __init__(self, setting, stack, objects, metastore, caches=False, forebay=False, near=False):
        self.store = stack.enter_context(setting.started(CountingS3, objects))
        store = self.store
        if not near:
            store = peers.Distant(self.store).start()
            stack.callback(store.stop)
        self.forebay = stack.enter_context(setting.started(peers.Forebay, behind=store, config=CONFIG)) if forebay else None
        directly = self.forebay or store
        self.trinos = [stack.enter_context(setting.started(Trino, directly, metastore, caches)) for _ in range(2)]

    def restart_trino(self):
        for trino in self.trinos:
            trino.stop()
        for trino in self.trinos:
            trino.start()


def create_tables(trino):
    """Writes each table twice by each catalog: what is measured, and what servers warm up with."""
    for catalog in CATALOGS:
        for schema in (MEASURED, WARM_UP):
            trino.query(f"CREATE SCHEMA {catalog}.{schema}")
            for table, (select, partition) in TABLES.items():
                location, by = {"hive": ("external_location", "partitioned_by"), "iceberg": ("location", "partitioning")}[catalog]
                layout = f"format = 'PARQUET', {location} = 's3://{BUCKET}/{catalog}/{schema}/{table}'"
                layout += f", {by} = ARRAY['{partition}']" if partition else ""
                statement = select.format(scale=f'"{SCALE}"')
                trino.query(f"CREATE TABLE {catalog}.{schema}.{table} WITH ({layout}) AS {statement}")


class Phase:
    """How long each query took at each contender, and what the S3 was asked for meanwhile."""

    def __init__(self, contenders):
        self.contenders = contenders
        self.took = {name: [] for name in contenders}
        self.before = {name: contender.store.counts() for name, contender in contenders.items()}

    def run(self, passes):
        for _ in range(passes):
            for server in range(2):
                for catalog in CATALOGS:
                    for statement in QUERIES.values():
                        self._ask_all(server, catalog, statement)
        return {name: self._row(name) for name in self.contenders}

    def _ask_all(self, server, catalog, statement):
        """All contenders answer the same query, one after the other, and the same."""
        answers = []
        for name, contender in self.contenders.items():
            begin = time.perf_counter()
            answers.append(contender.trinos[server].query(statement, catalog, MEASURED))
            self.took[name].append(1000 * (time.perf_counter() - begin))
        assert answers[0] and all(rounded(answer) == rounded(answers[0]) for answer in answers), (catalog, statement, answers)

    def _row(self, name):
        took, after = sorted(self.took[name]), self.contenders[name].store.counts()
        asked = {kind: after[kind] - self.before[name][kind] for kind in after}
        quarters = statistics.quantiles(took, n=100, method="inclusive")
        dollars = sum(PRICES[kind] * count for kind, count in asked.items()) / len(took)
        counts = {"gets": asked["GET"], "heads": asked["HEAD"], "lists": asked["LIST"], "dollars": dollars}
        return {f"p{share}": quarters[share - 1] for share in (25, 50, 75, 99)} | counts


def rounded(rows):
    """Sums of floating-point numbers differ in their last digits from run to run."""
    return [[float(f"{value:.9g}") if isinstance(value, float) else value for value in row] for row in rows]


def warm_up(contenders):
    """Runs the queries on the copies of the tables, so that the compilers of the Java machines do not decide the figures."""
    for _ in range(WARM_UP_PASSES):
        for contender in contenders.values():
            for trino in contender.trinos:
                for catalog in CATALOGS:
                    for statement in QUERIES.values():
                        trino.query(statement, catalog, WARM_UP)


def trino(setting):
    """A mix of short queries, with cold and warm caches, and after restarts."""
    if not INSTALLED.exists() or java_home() is None:
        print(f"trino: skipped, because Maven or a JDK of version {JDK_MINIMUM} or newer (JAVA_HOME, or below /usr/lib/jvm) is missing", flush=True)
        return []
    objects, metastore = setting.directory / "lake", setting.directory / "metastore"
    objects.mkdir()
    for catalog in CATALOGS:
        (metastore / catalog).mkdir(parents=True)
    with contextlib.ExitStack() as stack:
        contenders = {
            DIRECT: Contender(setting, stack, objects, metastore),
            CACHED: Contender(setting, stack, objects, metastore, caches=True),
            THROUGH: Contender(setting, stack, objects, metastore, forebay=True),
            NEAR: Contender(setting, stack, objects, metastore, near=True),
        }
        boto(contenders[DIRECT].store).create_bucket(Bucket=BUCKET)
        create_tables(contenders[DIRECT].trinos[0])
        warm_up(contenders)
        found = {"cold": Phase(contenders).run(1), "warm": Phase(contenders).run(setting.rounds)}
        for contender in contenders.values():
            contender.restart_trino()
        warm_up(contenders)
        found["after a restart of Trino"] = Phase(contenders).run(1)
        forebay = contenders[THROUGH].forebay
        forebay.stop()
        forebay.start()
        found["after a restart of Forebay"] = Phase(contenders).run(1)
    shutil.rmtree(objects)
    return sections(found, setting.rounds)


def sections(found, rounds):
    columns = ("p25", "p50", "p75", "p99", "gets", "heads", "lists", "dollars")
    each = 2 * len(CATALOGS) * len(QUERIES)
    all_sections = {}
    for phase, rows in found.items():
        passes = rounds if phase == "warm" else 1
        title = f"Trino, {phase}: {passes * each} queries"
        all_sections[phase] = Section(f"trino-{phase.replace(' ', '-')}", title, columns, rows)
    warm, again = found["warm"], found["after a restart of Trino"]
    section = all_sections["warm"]
    for share in ("p50", "p99"):
        section.at_least(f"{share} no worse than with `fs.cache`", warm[CACHED][share] / warm[THROUGH][share], 1, digits=2)
        section.at_least(f"{share} at least 1.5x better than Trino alone", warm[DIRECT][share] / warm[THROUGH][share], 1.5, digits=2)
    asked = {name: row["gets"] + row["lists"] for name, row in warm.items()}
    section.at_least("at least 95 % fewer GETs and LISTs than Trino alone", 100 * (1 - asked[THROUGH] / asked[DIRECT]), 95, " %")
    section.notes.append(
        "A query of Trino alone waits for two or three answers of the S3, one after the other. The rest of its time is Trino's own work. With all servers of "
        "this comparison on the same cores, that is most of it."
    )
    ratio = again[CACHED]["p50"] / again[THROUGH]["p50"]
    restarted = all_sections["after a restart of Trino"]
    restarted.at_least("p50 at least 3x better than with `fs.cache`", ratio, 3, digits=2)
    restarted.notes.append("`fs.cache` finds the files again that it had before the restart.")
    all_sections["after a restart of Forebay"].notes.append(
        f"{len(QUERIES)} queries on tables of TPC-H ({SCALE}, Parquet, line items and orders by year), each by Hive and by Iceberg, and each by two servers "
        "of Trino in turn. The S3 (versitygw) answers 30 ms later than it could. After each start, the servers ran the same queries on copies of the tables."
    )
    all_sections["after a restart of Forebay"].notes.append(
        "Requests are those that reached the S3. Their price is that of S3 Standard in us-east-1: US$ 0.40 per million GETs and HEADs, US$ 5.00 per million LISTs."
    )
    return list(all_sections.values())
