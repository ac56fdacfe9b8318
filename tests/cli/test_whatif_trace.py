"""`yurt whatif -trace`: formats of traces, figures, checks, and what is wrong with a file."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from backports import zstd
from yurt.cli.errors import CliError
from yurt.cli.files import tracefile
from yurt.cli.files.tracefile import read_trace
from yurt.sdk.value import NANOSECONDS, replace
from yurt.state import Snapshot, Tables
from yurt.storage.archive import write_archive
from yurt.structs.cluster import NodePool
from yurt.structs.node import NodeDevice, NodeDeviceResource
from yurt.structs.queueing.batch_queue import BatchQueue, FifoQueue
from yurt.testing import factories

PHILLY = """timestamp,duration,num_gpus,gpu_time,cluster
2017-10-09 07:10:00,300.0,1,300.0,a1
2017-10-09 07:00:00,600.0,4,2400.0,a1
2017-10-09 07:01:00,60.0,2,120.0,b2
"""
LINES = """{"submit": 0, "duration": 600, "gpus": 4, "tenant": "a1"}

{"submit": 60, "duration": 60, "gpus": 2, "tenant": "b2", "user": "ann", "limit": 120}
"""
SWF = """; Version: 2.2
  1     0  -1  600   1 -1 -1  2 900 -1 1 7 3 -1 1 -1 -1 -1
  2    60  -1   -1   1 -1 -1  1  60 -1 0 7 3 -1 1 -1 -1 -1
  3    90  -1   30   1 -1 -1 -1  -1 -1 1 8 -1 -1 1 -1 -1 -1
"""


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """A cluster of one node with four GPUs in a pool with a queue."""
    edit = Snapshot.empty().edit(40)
    edit.put(Tables.node_pools, "gpu", NodePool(name="gpu", batch_queue=BatchQueue(fifo=FifoQueue())))
    cards = tuple(NodeDevice(id=f"card-{number}", healthy=True) for number in range(4))
    device = NodeDeviceResource(vendor="nvidia", type="gpu", name="h100", instances=cards)
    node = replace(factories.node(factories.number_id(1)), name="one", node_pool="gpu", meta={"rack": "r1"})
    node = replace(node, node_resources=replace(node.node_resources, devices=(device,)))
    edit.put(Tables.nodes, node.id, node)
    path = tmp_path / "state.snap"
    with path.open("wb") as file:
        write_archive(edit.commit(), file, version="1")
    return path


@pytest.fixture
def file(tmp_path: Path) -> Callable[[str, str | bytes], str]:
    def made(name: str, content: str | bytes) -> str:
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(path)

    return made


def test_a_trace_is_played_over_a_snapshot(run: Any, archive: Path, file: Any) -> None:
    code, out, err = run("whatif", "-snapshot", str(archive), "-trace", file("philly.csv", PHILLY), "-json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert (found["Unit"], found["Capacity"], found["Submissions"], found["Started"], found["Ended"]) == (
        "gpu", 4, 3, 3, 3,
    )  # fmt: skip
    assert found["Waits"]["all"] == {"Jobs": 3, "MeanS": 180, "MedianS": 0, "P95S": 0, "LongestS": 540}
    assert found["Waits"]["2-7"]["LongestS"] == 540
    assert set(found["Rho"]) == {"a1", "b2"}
    code, out, _ = run(
        "whatif", "-snapshot", str(archive), "-trace", file("philly.csv", PHILLY), "-add", "1:one", "-json"
    )
    assert (code, json.loads(out)["Waits"]["all"]["LongestS"]) == (0, 0)


def test_the_figures_are_a_table_or_a_template(run: Any, archive: Path, file: Any) -> None:
    trace = file("philly.csv", PHILLY)
    code, out, _ = run("whatif", "-snapshot", str(archive), "-trace", trace, "-forecasts")
    assert code == 0
    for text in (
        "3; 3 started, 3 ended",
        "4 GPUs",
        "Mean Wait",
        "9m0s",
        "Jain's Index",
        "No job waited whose start could be",
    ):
        assert text in out
    code, out, _ = run("whatif", "-snapshot", str(archive), "-trace", trace, "-t", "{{.Waits.all.LongestS}}")
    assert (code, out) == (0, "540\n")


def test_a_check_that_does_not_hold_is_the_exit_code(run: Any, archive: Path, file: Any) -> None:
    asked = ("whatif", "-snapshot", str(archive), "-trace", file("philly.csv", PHILLY))
    assert run(*asked, "-check", "longest_wait <= 9m", "-check", "utilisation > 1%", "-check", "unplaced<=0")[0] == 0
    code, out, _ = run(*asked, "-check", "longest_wait:2-7 <= 5m")
    assert code == 2
    assert "longest_wait:2-7 <= 5m" in out
    assert "NO" in out
    code, out, _ = run(*asked, "-check", "longest_wait:2-7 <= 5m", "-json")
    assert json.loads(out)["Checks"] == [
        {"Check": "longest_wait:2-7 <= 5m", "Value": 540, "Limit": 300, "Holds": False}
    ]


def test_the_trace_may_come_faster_or_in_part(run: Any, archive: Path, file: Any) -> None:
    asked = ("whatif", "-snapshot", str(archive), "-trace", file("philly.csv", PHILLY), "-json")
    assert json.loads(run(*asked, "-rate", "2")[1])["Waits"]["all"]["LongestS"] == 570
    assert json.loads(run(*asked, "-skip", "1", "-submissions", "1")[1])["Submissions"] == 1


def test_a_failed_rack_is_down_in_the_trace(run: Any, archive: Path, file: Any) -> None:
    asked = ("whatif", "-snapshot", str(archive), "-trace", file("philly.csv", PHILLY))
    code, _, err = run(*asked, "-fail", "meta.rack=r1")
    assert (code, err) == (1, 'the node pool "gpu" has no ready node\n')
    assert 'no node has the value "r9"' in run(*asked, "-fail", "meta.rack=r9")[2]


@pytest.mark.parametrize(
    ("ending", "compress"),
    [("", bytes), (".gz", gzip.compress), (".bz2", bz2.compress), (".xz", lzma.compress), (".zst", zstd.compress)],
)
def test_formats_and_compressions(file: Any, ending: str, compress: Callable[[bytes], bytes]) -> None:
    rows = read_trace(file("t.jsonl" + ending, compress(LINES.encode()))).rows
    assert [(row.gpus, row.tenant, row.user, row.limit) for row in rows] == [
        (4, "a1", "", 0), (2, "b2", "ann", 120 * NANOSECONDS),
    ]  # fmt: skip
    rows = read_trace(file("t.csv" + ending, compress(PHILLY.encode()))).rows
    assert [row.gpus for row in rows] == [4, 2, 1], "in the order of their submission"


def test_the_standard_workload_format(run: Any, archive: Path, file: Any) -> None:
    trace = read_trace(file("t.swf", SWF))
    assert [(row.cores, row.tenant, row.user, row.limit // NANOSECONDS) for row in trace.rows] == [
        (2, "group-3", "user-7", 900), (1, "default", "user-8", 0),
    ]  # fmt: skip
    assert trace.skipped == 1
    code, out, _ = run("whatif", "-snapshot", str(archive), "-trace", file("t.swf", SWF), "-json")
    assert (code, json.loads(out)["Unit"], json.loads(out)["Capacity"]) == (0, "core", 4)


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("t.csv", "timestamp,duration,num_gpu,color\n", "t.csv:1: unknown column 'color'; known are"),
        ("t.csv", "timestamp,duration,tenannt\n", "unknown column 'tenannt' (did you mean \"tenant\"?)"),
        ("t.csv", "timestamp,gpus\n", "t.csv:1: a trace has the columns timestamp and duration"),
        ("t.csv", "timestamp,duration,gpus,num_gpus\n", "tells the gpus once more"),
        ("t.csv", "", "t.csv: the file is empty"),
        ("t.csv", "timestamp,duration,gpus\n", "no submission is left to play"),
        ("t.csv", "timestamp,duration,gpus\n1,2,3\n1,-2,3\n", "t.csv:3: duration is negative ('-2')"),
        ("t.csv", "timestamp,duration,gpus\n-1,2,3\n", "t.csv:2: timestamp is negative ('-1')"),
        ("t.csv", "timestamp,duration,gpus\nnoon,2,3\n", "t.csv:2: timestamp 'noon' is neither a time"),
        ("t.csv", "timestamp,duration,gpus\n1,nan,3\n", "t.csv:2: duration 'nan' is not a number"),
        ("t.csv", "timestamp,duration,gpus\n1,2,1.5\n", "t.csv:2: gpus '1.5' is not a whole number"),
        ("t.csv", "timestamp,duration,gpus\n1,2\n", "t.csv:2: 2 cells, but 3 columns"),
        ("t.csv", "timestamp,duration,gpus\n1,1e300,1\n", "t.csv:2: duration of '1e300' s is more than 10 years"),
        ("t.csv", "timestamp,duration,gpus,tenant\n1,2,1,a b\n", "t.csv:2: tenant 'a b' must match"),
        (
            "t.csv",
            b"timestamp,duration\xff\n",
            "t.csv: not a UTF-8 text: it is text in another encoding",
        ),
        ("t.csv.gz", b"no gzip", "t.csv.gz: cannot be read"),
        ("t.csv.zst", b"no zstd", "t.csv.zst: cannot be read"),
        ("t.jsonl", '{"submit": 1, "duration": 2, "gpus": 1}\n{"submit"', "t.jsonl:2: not valid JSON"),
        ("t.jsonl", "[1]\n", "t.jsonl:1: a line is one JSON object"),
        ("t.jsonl", '{"submit": true, "duration": 2, "gpus": 1}', "t.jsonl:1: timestamp True is not a number"),
        ("t.jsonl", '{"submit": 1, "duration": [], "gpus": 1}', "t.jsonl:1: duration '[]' is not a number"),
        ("t.csv", "timestamp,duration,gpus\n,2,3\n", "t.csv:2: timestamp is empty"),
        ("t.csv", "timestamp,duration,gpus\n1,,3\n", "t.csv:2: duration is empty"),
        ("t.csv", "timestamp,duration,gpus\n9999-12-31,2,3\n", "t.csv:2: timestamp '9999-12-31' is not a time between"),
        ("t.csv", "timestamp,duration,gpus\n1960-01-01,2,3\n", "t.csv:2: timestamp '1960-01-01' is not a time between"),
        ("t.csv", "timestamp,deletion_time,gpus\n1,2020-01-01,3\n", "more than 10 years after the submission"),
        ("t.csv", "timestamp,duration,gpus\n1,2,3\n9000000000,2,3\n", "the trace lasts 104167 days"),
        ("t.csv", "timestamp,duration,gpus\n\x1b[2Jx,2,3\n", "timestamp '\\x1b[2Jx' is neither"),
        ("t.csv", "timestamp,duration,gpus\n" + "9" * 65_000 + ",2,3\n", "timestamp '" + "9" * 63 + "... is not"),
        ("t.jsonl", '{"submit": null, "duration": 2, "gpus": 1}', "t.jsonl:1: timestamp is empty"),
        ("t.jsonl", '{"submit": 1, "duration": 1%s, "gpus": 1}' % ("0" * 400), "t.jsonl:1: duration"),
        ("t.jsonl", " " * 70_000, "t.jsonl:1: the line has more than 65536 characters"),
        ("t.csv.gz", gzip.compress(b"", mtime=0)[:10] + b"\xff" * 40, "t.csv.gz: cannot be read"),
        ("t.swf", "1 2 3\n", "t.swf:1: 3 fields; a line of the Standard Workload Format has 18"),
    ],
)
def test_what_is_wrong_with_a_trace_is_said(
    run: Any, archive: Path, file: Any, name: str, content: str | bytes, problem: str
) -> None:
    code, out, err = run("whatif", "-snapshot", str(archive), "-trace", file(name, content))
    assert (code, out) == (1, "")
    assert problem in err


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (("-trace", "none.csv"), "none.csv: there is no such file"),
        (("-forecasts",), "-forecasts has a meaning only with -trace"),
        (("-skip", "1"), "-skip has a meaning only with -trace"),
        (("-submissions", "1"), "-submissions has a meaning only with -trace"),
        (("-trace", ""), "-trace names no file"),
        (("-check", "mean_wait<1h"), "-check has a meaning only with -trace"),
        (("-trace", "FILE", "-check", "mean_wait"), "write FIGURE OPERATOR LIMIT"),
        (("-trace", "FILE", "-check", "men_wait<1h"), 'is not a figure of the report (did you mean "mean_wait"?)'),
        (("-trace", "FILE", "-check", "mean_wait<1"), "waits have a limit with a unit of time"),
        (("-trace", "FILE", "-check", "jain:8+>1"), "only waits have a size class"),
        (("-trace", "FILE", "-rate", "0"), "-rate 0: write a number from 0.01 to 100"),
        (("-trace", "FILE", "-node-pool", "none"), 'there is no node pool "none"'),
        (("-trace", "FILE", "-skip", "-1"), "take no negative numbers"),
        (("-trace", "FILE", "-fail", "meta.rack"), "write ATTRIBUTE=VALUE"),
    ],
)
def test_wrong_flags_are_said(run: Any, archive: Path, file: Any, flags: tuple[str, ...], problem: str) -> None:
    words = [file("t.csv", PHILLY) if word == "FILE" else word for word in flags]
    code, out, err = run("whatif", "-snapshot", str(archive), *words)
    assert (code, out) == (1, "")
    assert problem in err


def test_columns_may_be_left_out(file: Any) -> None:
    path = file("t.csv", "timestamp,duration,gpus,color\n1,2,3,red\n")
    assert read_trace(path, ignored=["color"]).rows[0].gpus == 3


def test_a_text_without_end_in_a_small_file_is_refused(file: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    path = file("t.csv.gz", gzip.compress(b"timestamp,duration,gpus\n" + b"\n" * 100_000))
    monkeypatch.setattr(tracefile, "LINES_MAX", 10_000)
    with pytest.raises(CliError, match="more than 10000 lines"):
        read_trace(path)
    monkeypatch.setattr(tracefile, "LINES_MAX", 1 << 30)
    monkeypatch.setattr(tracefile, "TEXT_MAX", 50_000)
    with pytest.raises(CliError, match="MiB of text"):
        read_trace(path)


def test_jobs_without_gpus_are_counted(run: Any, archive: Path, file: Callable[[str, str | bytes], str]) -> None:
    mixed = "submit,duration,gpus,cpu\n0,600,4,100\n10,60,0,100\n20,60,1,100\n"
    asked = ("whatif", "-snapshot", str(archive), "-trace", file("mixed.csv", mixed))
    code, out, _ = run(*asked, "-json", "-check", "longest_wait:0 <= 0s")
    found = json.loads(out)
    assert (code, found["Unit"], found["WithoutUnits"], found["Warnings"]) == (0, "gpu", 1, [])
    assert [found["Waits"][name]["Jobs"] for name in ("0", "1", "2-7")] == [1, 1, 1]
    out = run(*asked)[1]
    assert "Without GPUs                  = 1 job, which take CPU and memory only" in out
    plain = run("whatif", "-snapshot", str(archive), "-trace", file("philly.csv", PHILLY))[1]
    assert "Without" not in plain
    assert not any(line.startswith("0 ") for line in plain.splitlines())
