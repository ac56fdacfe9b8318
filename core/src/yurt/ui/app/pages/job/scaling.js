/** Counts of groups within their bounds, and the events of scaling. */
import { html } from "../../../vendor/preact.js";
import { get, put, segment } from "../../core/api.js";
import { command, plain } from "../../core/format.js";
import { useData } from "../../core/load.js";
import { jobTopic } from "../../core/live.js";
import { ActionButton } from "../../parts/action.js";
import { Empty, Loaded, Section, When } from "../../parts/page.js";
import { Status } from "../../parts/status.js";

/** Changing the count of a group, within its bounds. */
export function scale(job, group, count, reload) {
  const bounds = (job.TaskGroups ?? []).find((each) => each.Name === group)?.Scaling;
  return {
    label: "Scale",
    needs: ["scale-job", "submit-job"],
    namespace: job.Namespace,
    then: reload,
    done: `Group "${group}" is being scaled`,
    fields: [
      {
        name: "count",
        label: `Count of group "${group}"`,
        kind: /** @type {"number"} */ ("number"),
        value: count,
        min: bounds?.Min ?? 0,
        max: bounds?.Max,
        required: true,
        hint: bounds ? `from ${bounds.Min} to ${bounds.Max}, as the job's scaling block says` : "",
      },
      { name: "message", label: "Reason", value: "" },
    ],
    command: (values) =>
      command(["job", "scale"], { namespace: job.Namespace === "default" ? "" : job.Namespace }, [job.ID, group, String(values.count)]),
    run: (values) =>
      put(
        `/v1/job/${segment(job.ID)}/scale`,
        { Count: values.count, Target: { Group: group, Job: job.ID }, Message: values.message || "scaled in the web UI" },
        { namespace: job.Namespace },
      ),
  };
}

function Events({ events }) {
  if (!events?.length) return html`<${Empty}>No scaling events.<//>`;
  return html`
    <ul class="timeline">${events.map(
      (event, at) => html`
      <li key=${at}
        class=${event.Error ? "bad" : ""}><b>${event.PreviousCount} → ${event.Count ?? event.PreviousCount}</b>
        <${When} at=${event.Time} />
        ${event.Error && html` <${Status} status="failed" />`}<div>${plain(event.Message)}</div></li>`,
    )}</ul>
  `;
}

export function Tab({ job, reload }) {
  const state = useData(
    (signal) => get(`/v1/job/${segment(job.ID)}/scale`, { namespace: job.Namespace }, { signal }),
    [job.ID, job.Namespace],
    [jobTopic(job.Namespace, job.ID)],
  );
  const again = () => {
    state.reload();
    reload();
  };
  return html`
    <${Loaded} state=${state}>${(data) =>
      Object.entries(data.TaskGroups ?? {}).map(
        ([name, group]) => html`
      <${Section} key=${name} title=${`Group ${plain(name)}`}
        note=${`${group.Desired} desired, ${group.Placed} placed, ${group.Running} running, ${group.Healthy} healthy`}
        tools=${html`<div class="actions"><${ActionButton} action=${scale(job, name, group.Desired, again)} /></div>`}>
        <${Events} events=${group.Events} />
      <//>`,
      )}<//>
  `;
}
