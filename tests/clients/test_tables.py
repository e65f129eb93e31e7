"""Engines that keep tables in S3 write, read and scan Parquet files there, each with its default settings."""

import os
import pathlib

import duckdb
import duckdb_extension_httpfs
import polars
import pyarrow
import pyarrow.compute
import pyarrow.dataset
import pyarrow.parquet
import pytest

from adapters.pyarrow_fs import PyArrow
from adapters.s3fs_client import S3fs
from harness.servers import REGION

pytestmark = pytest.mark.deployments(
    ("directory", "WRITE_THROUGH"),
    ("directory", "WRITE_BACK"),
    ("directory", "TRANSIENT"),
    ("directory", "NO_CACHE"),
)

ROWS = 100_000
# So that a reader of some rows reads some ranges of the file alone.
ROW_GROUP = 10_000
DAYS = 7
# More than an engine asks for at once.
FILES = 40


class Polars:
    """As a user writes it who has all data in memory. Names of files come as bucket/key, here and below."""

    def __init__(self, server, directory):
        self.options = {
            "aws_endpoint_url": server.endpoint,
            "aws_access_key_id": server.access_key,
            "aws_secret_access_key": server.secret_key,
            "aws_region": REGION,
            "aws_allow_http": "true",
        }

    def close(self):
        """It keeps nothing open."""

    def write(self, table, name):
        polars.from_arrow(table).write_parquet(f"s3://{name}", row_group_size=ROW_GROUP, storage_options=self.options)

    def write_partitioned(self, table, directory):
        polars.from_arrow(table).write_parquet(f"s3://{directory}/", partition_by="day", storage_options=self.options)

    def read(self, name):
        return polars.read_parquet(f"s3://{name}", storage_options=self.options).to_arrow()

    def query(self, name, columns, minimum):
        """Some columns of the rows whose id is `minimum` or above."""
        rows = polars.scan_parquet(f"s3://{name}", storage_options=self.options).filter(polars.col("id") >= minimum)
        return rows.select(columns).collect().to_arrow()

    def query_many(self, directory, columns, minimum):
        """The same of all files of a directory."""
        return self.query(f"{directory}/*.parquet", columns, minimum)

    def query_day(self, directory, columns, day):
        """Some columns of one partition."""
        rows = polars.scan_parquet(f"s3://{directory}/", hive_partitioning=True, storage_options=self.options)
        return rows.filter(polars.col("day") == day).select(columns).collect().to_arrow()


class PolarsStreaming(Polars):
    """As a user writes it who has more data than memory."""

    def write(self, table, name):
        polars.from_arrow(table).lazy().sink_parquet(f"s3://{name}", row_group_size=ROW_GROUP, storage_options=self.options)

    def write_partitioned(self, table, directory):
        target = polars.PartitionBy(f"s3://{directory}/", key="day", include_key=False)
        polars.from_arrow(table).lazy().sink_parquet(target, storage_options=self.options)

    def read(self, name):
        return polars.scan_parquet(f"s3://{name}", storage_options=self.options).collect(engine="streaming").to_arrow()


class DuckDb:
    """With its extension httpfs from the package that brings it as a file."""

    def __init__(self, server, directory):
        self.connection = duckdb.connect()
        extensions = pathlib.Path(duckdb_extension_httpfs.__file__).parent / "extensions"
        self.connection.execute(f"LOAD '{extensions / f'v{duckdb.__version__}' / 'httpfs.duckdb_extension'}'")
        self.connection.execute(
            f"CREATE SECRET (TYPE s3, KEY_ID '{server.access_key}', SECRET '{server.secret_key}', REGION '{REGION}', "
            f"ENDPOINT '{server.endpoint.removeprefix('http://')}', URL_STYLE 'path', USE_SSL false)"
        )

    def close(self):
        self.connection.close()

    def write(self, table, name):
        self.connection.register("written", table)
        self.connection.execute(f"COPY written TO 's3://{name}' (FORMAT parquet, ROW_GROUP_SIZE {ROW_GROUP})")

    def write_partitioned(self, table, directory):
        self.connection.register("written", table)
        self.connection.execute(f"COPY written TO 's3://{directory}' (FORMAT parquet, PARTITION_BY (day))")

    def select(self, columns, name, condition="true"):
        return self.connection.execute(
            f"SELECT {', '.join(columns)} FROM read_parquet('s3://{name}') WHERE {condition}"
        ).to_arrow_table()

    def read(self, name):
        return self.select("*", name)

    def query(self, name, columns, minimum):
        return self.select(columns, name, f"id >= {minimum}")

    def query_many(self, directory, columns, minimum):
        return self.query(f"{directory}/*.parquet", columns, minimum)

    def query_day(self, directory, columns, day):
        return self.select(columns, f"{directory}/*/*.parquet", f"day = {day}")


class ArrowDatasets:
    """pyarrow with its own file system."""

    def __init__(self, server, directory):
        self.client = PyArrow(server, directory)
        self.fs = self.client.fs

    def close(self):
        self.client.close()

    def write(self, table, name):
        pyarrow.parquet.write_table(table, name, row_group_size=ROW_GROUP, filesystem=self.fs)

    def write_partitioned(self, table, directory):
        layout = {"partitioning": ["day"], "partitioning_flavor": "hive"}
        pyarrow.dataset.write_dataset(table, directory, format="parquet", filesystem=self.fs, **layout)

    def scan(self, name, columns=None, rows=None):
        return pyarrow.dataset.dataset(name, filesystem=self.fs, partitioning="hive").to_table(columns=columns, filter=rows)

    def read(self, name):
        return self.scan(name)

    def query(self, name, columns, minimum):
        return self.scan(name, columns, pyarrow.compute.field("id") >= minimum)

    def query_many(self, directory, columns, minimum):
        return self.query(directory, columns, minimum)

    def query_day(self, directory, columns, day):
        return self.scan(directory, columns, pyarrow.compute.field("day") == day)


class ArrowOnS3fs:
    """pyarrow with s3fs as its file system, in the process of that client."""

    def __init__(self, server, directory):
        self.client = S3fs(server, directory)

    def close(self):
        self.client.close()

    def sent(self, call, table, **parameters):
        path = self.client.file()
        pyarrow.parquet.write_table(table, path)
        self.client.call(call, path=str(path), **parameters)
        path.unlink()

    def received(self, call, **parameters):
        path = self.client.file()
        self.client.call(call, into=str(path), **parameters)
        table = pyarrow.parquet.read_table(path)
        path.unlink()
        return table

    def write(self, table, name):
        self.sent("write_table", table, file=name, row_group=ROW_GROUP)

    def write_partitioned(self, table, directory):
        self.sent("write_partitioned", table, directory=directory, column="day")

    def read(self, name):
        return self.received("read_table", names=name, columns=None, rows=None)

    def query(self, name, columns, minimum):
        return self.received("read_table", names=name, columns=columns, rows=[["id", ">=", minimum]])

    def query_many(self, directory, columns, minimum):
        return self.received("read_glob", pattern=f"{directory}/*.parquet", columns=columns, rows=[["id", ">=", minimum]])

    def query_day(self, directory, columns, day):
        return self.received("read_table", names=directory, columns=columns, rows=[["day", "=", day]])


ENGINES = [Polars, PolarsStreaming, DuckDb, ArrowDatasets, ArrowOnS3fs]


@pytest.fixture(scope="session", params=ENGINES, ids=lambda engine: engine.__name__)
def engine(request, server, tmp_path_factory):
    connected = request.param(server, tmp_path_factory.mktemp(request.param.__name__))
    yield connected
    connected.close()


def table_of(rows, first=0):
    """Ids in order, so that a reader can leave row groups out, and bytes that do not compress."""
    ids = range(first, first + rows)
    noise = os.urandom(32 * rows)
    return pyarrow.table(
        {
            "id": pyarrow.array(ids, pyarrow.int64()),
            "name": [f"größe {number}" for number in ids],
            "noise": [noise[32 * number : 32 * (number + 1)] for number in range(rows)],
        }
    )


def assert_same(found, expected):
    """Engines have types of their own for strings, and may change the order of rows."""
    assert found.select(expected.column_names).cast(expected.schema).sort_by("id").equals(expected)


def test_write_and_read(engine, bucket):
    table = table_of(ROWS)
    engine.write(table, f"{bucket}/table.parquet")
    assert_same(engine.read(f"{bucket}/table.parquet"), table)


def test_projection_and_predicate(engine, bucket):
    table = table_of(ROWS)
    engine.write(table, f"{bucket}/table.parquet")
    for first in (ROWS - 5, ROWS // 2, 0):
        found = engine.query(f"{bucket}/table.parquet", ["id", "name"], first)
        assert_same(found, table.select(["id", "name"]).slice(first))


def test_scan_of_many_files(engine, bucket):
    table = table_of(FILES * 100)
    for first in range(0, FILES * 100, 100):
        engine.write(table.slice(first, 100), f"{bucket}/many/part {first:05}.parquet")
    found = engine.query_many(f"{bucket}/many", ["id", "noise"], 1234)
    assert_same(found, table.select(["id", "noise"]).slice(1234))


def test_overwrite(engine, bucket):
    """A reader gets the new table, longer or shorter, and nothing of the old one."""
    for rows in (1000, ROWS, 10):
        table = table_of(rows, first=rows)
        engine.write(table, f"{bucket}/table.parquet")
        assert_same(engine.read(f"{bucket}/table.parquet"), table)


def test_partitions(engine, bucket, s3):
    table = table_of(ROWS // 10)
    days = pyarrow.array([number % DAYS for number in range(table.num_rows)], pyarrow.int64())
    engine.write_partitioned(table.append_column("day", days), f"{bucket}/by day")
    listed = s3.list_objects_v2(Bucket=bucket)["Contents"]
    directories = {item["Key"].rsplit("/", 1)[0] for item in listed if item["Key"].endswith(".parquet")}
    assert directories == {f"by day/day={day}" for day in range(DAYS)}
    found = engine.query_day(f"{bucket}/by day", ["id", "name"], 3)
    assert_same(found, table.select(["id", "name"]).filter(pyarrow.compute.equal(days, 3)))
