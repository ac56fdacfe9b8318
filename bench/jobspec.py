"""Reading job files: import, first parse, median parse of a realistic file, beside other parsers where they are
installed, all in processor time. Run with `python -m bench jobspec`.
"""

from __future__ import annotations

import importlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench.table import Row, print_table

SOURCE = """
variable "image" { default = "web:1" }
locals { tags = [for n in ["a", "b", "c"] : upper(n)] }
job "web" {
  datacenters = ["dc1", "dc2"]
  constraint {
    attribute = "${attr.kernel.name}"
    value     = "linux"
  }
  group "front" {
    count = 3
    network {
      port "http" { to = 8080 }
    }
    dynamic "task" {
      for_each = ["one", "two"]
      labels   = ["t-${task.value}"]
      content {
        driver = "docker"
        config {
          image = "${var.image}-${task.value}"
          args  = ["--port", "${NOMAD_PORT_http}", join(",", local.tags)]
        }
        template {
          destination = "local/config"
          data        = <<-EOF
            name = ${task.value}
            port = {{ env "NOMAD_PORT_http" }}
          EOF
        }
        resources {
          cpu    = 500
          memory = 256
        }
      }
    }
  }
}
"""
GROUP = """
  # The web front end, one of several.
  group "front-NUMBER" {
    count = 3

    network {
      mode = "bridge"
      port "http" {
        to = 8080
      }
    }

    service {
      name     = "front-NUMBER"
      port     = "http"
      provider = "nomad"
      tags     = ["urlprefix-/", "front"]

      check {
        type     = "http"
        path     = "/health"
        interval = "10s"
        timeout  = "2s"
      }
    }

    task "server" {
      driver = "docker"

      config {
        image = "registry.example.com/team/front:${var.tag}"
        ports = ["http"]
        args  = ["--config", "${NOMAD_TASK_DIR}/front.conf", "--verbose"]
      }

      env {
        LOG_LEVEL = "info"
        DATABASE  = "postgres://db.service.example:5432/front"
      }

      resources {
        cpu    = 500
        memory = 256
      }
    }
  }
"""
LONG = (
    'variable "tag" {\n  default = "1.0"\n}\n\njob "long" {\n  datacenters = ["dc1"]\n'
    + "".join(GROUP.replace("NUMBER", str(number)) for number in range(10))
    + "}\n"
)
RUNS = 200
KB = 1024
CORPUS = Path(__file__).resolve().parents[2] / "shared" / "corpus" / "jobspecs"
COLD_RUNS = 5
OTHERS = {
    "python-hcl2": ("hcl2", "loads", "a tree of texts; nothing is evaluated"),
    "pygohcl": ("pygohcl", "loads", "Go's HCL parser through cffi; nothing is made of the data"),
}
"""Distribution: the module, its function, and what that does less than reading a job."""


def main() -> None:
    """Measure and print."""
    from yurt.rules.canonical import canonicalize_job
    from yurt_jobspec import parse_job, write_job

    median = milliseconds(lambda: canonicalize_job(parse_job(SOURCE, filename="bench.nomad.hcl")))
    long = milliseconds(lambda: parse_job(LONG, filename="bench.nomad.hcl"))
    first = statistics.median(cold())
    rows = [
        Row(f"parse and canonicalise, median of {RUNS}", "0.54 ms (Go)", f"{median:.2f} ms", "1.5 ms"),
        Row(
            f"parse a file of {len(LONG) // 1024} KB without comments, per KB",
            "",
            f"{per_kb(long, LONG):.2f} ms",
            "0.3 ms",
        ),
        *corpus_rows(),
        Row(f"import and first parse, median of {COLD_RUNS}", "", f"{first:.0f} ms", "60 ms"),
    ]
    print_table("job files", rows)
    plain = write_job(parse_job(SOURCE, filename="bench.nomad.hcl")).text.replace("${", "$${")
    ours = milliseconds(lambda: canonicalize_job(parse_job(plain, filename="bench.nomad.hcl")))
    print(f"The same job with all expressions worked out, {len(plain)} characters:")
    print(f"  yurt          {ours:8.2f} ms  parse, decode and canonicalise")
    for name, (module, function, what) in OTHERS.items():
        print(f"  {name:12}  {other(module, function, plain)}  {what}")
    print()


def corpus_rows() -> list[Row]:
    """Real job files of other people, where their folder lies beside the checkout; the best of three calls each."""
    from yurt_jobspec import JobspecError, parse_job

    found: list[tuple[float, str]] = []
    for path in sorted(CORPUS.rglob("*.hcl")):
        text = path.read_text("utf-8", "surrogateescape")
        try:
            found.append((min(timed(lambda: parse_job(text, filename=path.name)) for _ in range(3)), text))  # noqa: B023
        except JobspecError:
            continue
    larger = [per_kb(each, text) for each, text in found if len(text) >= KB]
    if not larger:
        return []
    median = statistics.median(each for each, _ in found)
    together = per_kb(sum(each for each, _ in found), "".join(text for _, text in found))
    return [
        Row(f"{len(found)} real job files, median", "", f"{median:.2f} ms", "1.5 ms"),
        Row("all of them together, per KB", "", f"{together:.2f} ms", "0.3 ms"),
        Row(
            f"those of 1 KB and more ({len(larger)}), median per KB",
            "",
            f"{statistics.median(larger):.2f} ms",
            "0.3 ms",
        ),
    ]


def per_kb(duration: float, text: str) -> float:
    """A duration divided by the length of the text in KB."""
    return duration / (len(text) / KB)


def milliseconds(call: Callable[[], object]) -> float:
    """The median of many calls; the first one is not counted."""

    timed(call)
    return statistics.median(timed(call) for _ in range(RUNS))


def timed(call: Callable[[], object]) -> float:
    """Milliseconds of processor time of one call; what else the machine does meanwhile does not count."""
    begin = time.process_time()
    call()
    return (time.process_time() - begin) * 1000


def other(module: str, function: str, text: str) -> str:
    """The time of another parser, where it is installed."""
    try:
        loads = getattr(importlib.import_module(module), function)
    except ImportError:
        return "not installed"
    return f"{milliseconds(lambda: loads(text)):8.2f} ms"


def cold() -> list[float]:
    """Milliseconds of import and first parse in fresh interpreters, their own start not counted; byte code is kept from
    one to the next, as in an installed package.
    """
    code = (
        "import time; b = time.process_time(); from yurt_jobspec import parse_job; "
        f"parse_job({SOURCE!r}, filename='x'); print((time.process_time() - b) * 1000)"
    )
    with tempfile.TemporaryDirectory(prefix="yurt-bench-") as folder:
        environ = {**os.environ, "PYTHONPYCACHEPREFIX": folder, "PYTHONDONTWRITEBYTECODE": ""}
        runs = [
            subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environ)
            for _ in range(COLD_RUNS + 1)
        ]
    return [float(run.stdout) for run in runs[1:]]
