"""A real agent sends the trace of a job to a collector."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from yurt.testing.agent import Agent, running_agent, wait_for
from yurt.testing.services.otlp_collector import otlp_collector

JOB = """
job "traced" {
  type = "batch"
  group "good" {
    task "good" {
      driver = "raw_exec"
      config {
        command = "/bin/true"
      }
    }
  }
  group "bad" {
    reschedule { attempts = 0 }
    restart {
      attempts = 0
      mode     = "fail"
    }
    task "bad" {
      driver = "raw_exec"
      config {
        command = "/no/such/program"
      }
    }
  }
}
"""


def test_a_job_is_traced_from_its_submission_to_its_tasks(tmp_path: Path) -> None:
    with (
        otlp_collector() as collector,
        running_agent(tmp_path, extra={"telemetry": {"otlp": {"endpoint": collector.endpoint}}}) as agent,
    ):
        parsed = agent.call("PUT", "/v1/jobs/parse", {"JobHCL": JOB, "Canonicalize": True})
        eval_id = agent.call("PUT", "/v1/jobs", {"Job": parsed})["EvalID"]

        def trace() -> list[Any]:
            trace_id = bytes.fromhex(eval_id.replace("-", ""))
            return [span for span in collector.spans() if span.trace_id == trace_id]

        wait_for("the spans of both tasks", lambda: sum(span.name == "task start" for span in trace()) == 2)
        # The collector has spans before the agent has its answer, and counts them.
        wait_for("four spans counted", lambda: sent(agent) >= 4)
        shown = agent.call("GET", "/v1/agent/self")["config"]["Telemetry"]
    (evaluation,) = (span for span in trace() if span.name == "evaluation job-register")
    allocations = [span for span in trace() if span.name == "allocation start"]
    tasks = [span for span in trace() if span.name == "task start"]
    assert not evaluation.parent_span_id
    assert {span.parent_span_id for span in allocations} == {evaluation.span_id}
    assert {span.parent_span_id for span in tasks} == {span.span_id for span in allocations}
    by_task = {dict(attributes(span))["yurt.task"]: span for span in tasks}
    assert by_task["good"].status.code == 0
    assert [event.name for event in by_task["good"].events][-1] == "Started"
    assert by_task["bad"].status.code == 2 and "/no/such/program" in by_task["bad"].status.message
    assert shown["OTLP"]["Endpoint"] == collector.endpoint


def sent(agent: Agent) -> int:
    """The number of spans that the agent has sent, as its metrics say."""
    counters = agent.get("/v1/metrics")["Counters"]
    return sum(each["Count"] for each in counters if each["Name"] == "nomad.agent.traces.sent")


def attributes(span: Any) -> list[tuple[str, str]]:
    return [(each.key, each.value.string_value) for each in span.attributes]
