"""A job of `make bench BENCH=tenants`, run by the Python of Spark's own environment. Its only argument is JSON: a `Job` of tenants.py.

It starts Spark, warms up, says so with an empty line, and waits for one. Then it repeats, and prints how many seconds each run takes. Python only drives it:
all work is done in the JVM.
"""

import json
import sys
import time

from pyspark.sql import DataFrame, SparkSession


def main():
    job = json.loads(sys.argv[1])
    builder = SparkSession.builder
    for name, value in job["settings"].items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    warm = time.monotonic() + job["warm_up_seconds"]
    while time.monotonic() < warm:
        run(spark, job["warm_up_path"], job)
    print(flush=True)
    sys.stdin.readline()
    while True:
        begin = time.perf_counter()
        for _ in range(job["reads"]):
            run(spark, job["path"], job)
        print(time.perf_counter() - begin, flush=True)


def run(spark, path, job):
    # Records of a fixed length: the search for the ends of lines would take longer than reading does.
    records = spark.sparkContext._jsc.binaryRecords(path, job["record_bytes"]).rdd()
    encoder = spark._jvm.org.apache.spark.sql.Encoders.BINARY()
    frame = DataFrame(spark._jsparkSession.createDataset(records, encoder).toDF(), spark)
    return frame.selectExpr(job["expression"]).collect()


main()
