"""Reading job files: import, first parse, median parse of a realistic file. Run with `python -m bench jobspec`."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

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
RUNS = 200


def main() -> None:
    """Measure and print."""
    from yurt.api.canonical import canonicalize_job
    from yurt_jobspec import parse_job

    def once() -> float:
        begin = time.perf_counter()
        canonicalize_job(parse_job(SOURCE, filename="bench.nomad.hcl"))
        return (time.perf_counter() - begin) * 1000

    once()
    median = statistics.median(once() for _ in range(RUNS))
    rows = [
        Row("parse and canonicalise, median of 200", "0.54 ms (Go)", f"{median:.2f} ms", "1.5 ms"),
        Row("the same per KB", "", f"{median / (len(SOURCE) / 1024):.2f} ms", "0.3 ms"),
        Row(
            "import and first parse, median of 5", "", f"{statistics.median(cold() for _ in range(5)):.0f} ms", "60 ms"
        ),
    ]
    print_table("job files", rows)


def cold() -> float:
    """Milliseconds of import and first parse in a fresh interpreter, its own start not counted."""
    code = (
        "import time; b = time.perf_counter(); from yurt_jobspec import parse_job; "
        f"parse_job({SOURCE!r}, filename='x'); print((time.perf_counter() - b) * 1000)"
    )
    return float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
