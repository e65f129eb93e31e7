"""Workload files of COSBench against the real server."""

from harness.clients import boto

WORKLOAD = """<?xml version="1.0" encoding="UTF-8" ?>
<workload name="sample" description="all stages">
  <storage type="s3" config="accesskey=none;secretkey=none;proxyhost=;proxyport=;endpoint=http://127.0.0.1:1" />
  <workflow config="cprefix=cosbench">
    <workstage name="init"><work type="init" workers="2" config="containers=r(1,3)" /></workstage>
    <workstage name="prepare" closuredelay="1">
      <work type="prepare" workers="3" config="containers=r(1,3);objects=r(1,10);sizes=c(3)KB" />
    </workstage>
    <workstage name="main">
      <work name="mix" workers="4" totalOps="200" division="object">
        <operation type="read" ratio="60" config="containers=u(1,3);objects=u(1,10);hashCheck=true" />
        <operation type="write" ratio="30" config="containers=c(3);objects=u(11,20);sizes=h(1|2|50,3|4|50)KB" />
        <operation type="list" ratio="10" config="containers=u(1,3)" />
      </work>
      <work name="fill" workers="2" totalOps="15"><operation type="write" config="containers=c(2);objects=s(31,45);sizes=c(5)B" /></work>
      <work name="timed" workers="1" runtime="1"><operation type="read" config="containers=c(1);objects=r(1,10)" /></work>
    </workstage>
    {end}
  </workflow>
</workload>"""
END = """
    <workstage name="cleanup"><work type="cleanup" workers="2" config="containers=r(1,3);objects=r(1,45)" /></workstage>
    <workstage name="dispose"><work type="dispose" workers="1" config="containers=r(1,3)" /></workstage>"""


def write(bench, text):
    file = bench.directory / "workload.xml"
    file.write_text(text)
    return file


def test_a_workload_does_what_its_stages_say(bench, contents):
    report = bench.report("cosbench", write(bench, WORKLOAD.format(end="")))
    runs = {run["name"]: run["median"]["operations"] for run in report["runs"]}
    assert list(runs) == ["init", "prepare", "main/mix", "main/fill", "main/timed"]
    assert runs["init"]["BUCKET"]["count"] == 3 and runs["prepare"]["PUT"]["count"] == 30
    mix = {kind: figures["count"] for kind, figures in runs["main/mix"].items()}
    assert sum(mix.values()) == 200 and mix["GET"] > mix["PUT"] > mix["LIST"] > 0
    assert runs["main/fill"]["PUT"]["count"] == 15 and runs["main/timed"]["GET"]["count"] > 0
    prepared = {f"myobjects{number}": 3000 for number in range(1, 11)}
    assert contents("cosbench1") == prepared
    assert contents("cosbench2") == prepared | {f"myobjects{number}": 5 for number in range(31, 46)}
    written = {key: size for key, size in contents("cosbench3").items() if key not in prepared}
    assert 0 < len(written) <= 10 and set(written.values()) <= {1000, 2000, 3000, 4000}


def test_a_workload_cleans_up_after_itself(bench, worker):
    report = bench.report("cosbench", write(bench, WORKLOAD.format(end=END)))
    assert [run["name"] for run in report["runs"]][-2:] == ["cleanup", "dispose"]
    left = [bucket["Name"] for bucket in boto(worker).list_buckets()["Buckets"]]
    assert not [name for name in left if name.startswith("cosbench")]


def test_what_is_not_known_is_refused_before_anything_is_done(bench, worker):
    for old, new in [('type="list"', 'type="mwrite"'), ('workers="4"', 'workers="4" driver="d"'), ("hashCheck", "colour")]:
        file = write(bench, WORKLOAD.format(end="").replace(old, new))
        line = bench.refused("cosbench", file, "--host", worker.endpoint)
        assert str(file) in line and ("mwrite" in line or "driver" in line or "colour" in line)


def test_more_failures_than_allowed_end_the_workload(bench, worker):
    text = WORKLOAD.format(end=END).replace('totalOps="15"', 'totalOps="15" afr="0"').replace("containers=c(2);objects=s", "containers=c(9);objects=s")
    line = bench.refused("cosbench", write(bench, text), "--host", worker.endpoint, code=1)
    assert "15 operations failed" in line or "main/fill: 15 of 15" in line


def test_hash_check_finds_content_that_nobody_here_has_written(bench, worker):
    s3 = boto(worker)
    s3.create_bucket(Bucket="foreign1")
    s3.put_object(Bucket="foreign1", Key="myobjects1", Body=b"x" * 1000)
    text = (
        '<workload name="w"><storage type="s3"/><workflow><workstage name="s"><work name="w" workers="1" totalOps="20" {check}>'
        '<operation type="read" config="cprefix=foreign;containers=c(1);objects=c(1);hashCheck={hash_check}"/>'
        "</work></workstage></workflow></workload>"
    )
    bench.report("cosbench", write(bench, text.format(check="", hash_check="false")))
    file = write(bench, text.format(check='afr="0"', hash_check="true"))
    done = bench.run("cosbench", file, "--host", worker.endpoint)
    assert done.returncode == 1 and "20 x WrongContent" in done.stdout, (done.stdout, done.stderr)
