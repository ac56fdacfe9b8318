/** A plan: the differences, what each group would do, what cannot be placed and why, what would be preempted. */
import { html } from "../../vendor/preact.js";
import { call } from "../core/api.js";
import { count, plain, short } from "../core/format.js";
import { useData } from "../core/load.js";
import { href } from "../core/router.js";
import { JobDiff } from "./diff.js";
import { Loaded, Section } from "./page.js";

const NAMES = {
  Place: "place",
  Stop: "stop",
  Migrate: "migrate",
  InPlaceUpdate: "update in place",
  DestructiveUpdate: "replace",
  Canary: "canary",
  Preemptions: "preempt",
  Ignore: "leave",
  RescheduleNow: "reschedule now",
  RescheduleLater: "reschedule later",
  Disconnect: "disconnect",
  Reconnect: "reconnect",
};

const Updates = ({ updates }) => html`
  <ul class="list">${Object.entries(updates ?? {}).map(
    ([group, numbers]) => html`
    <li key=${group}><strong>${plain(group)}</strong> ${
      Object.entries(numbers)
        .filter(([, number]) => number > 0)
        .map(([name, number]) => `${count(number)} ${NAMES[name] ?? name}`)
        .join(", ") || "nothing to do"
    }</li>`,
  )}</ul>
`;

function Failures({ failed }) {
  const groups = Object.entries(failed ?? {});
  if (!groups.length) return null;
  return html`
    <${Section} title="Cannot be placed">
      <ul class="list">${groups.map(
        ([
          name,
          metric,
        ]) => html`<li key=${name}><strong>${plain(name)}</strong> <span class="bad">${count((metric.CoalescedFailures ?? 0) + 1)}</span>
        ${[...Object.entries(metric.ConstraintFiltered ?? {}), ...Object.entries(metric.DimensionExhausted ?? {}),
          ...Object.entries(metric.ClassFiltered ?? {})].map(([text, number]) => `${plain(text)} (${number} nodes)`).join(", ")}</li>`,
      )}</ul>
    <//>
  `;
}

/** Where the job's groups would go now, asked of the server without registering anything. */
function Preview({ job }) {
  const state = useData(
    async (signal) =>
      (
        await call("POST", "/v1/yurt/job/why-not", {
          body: { Job: job, Namespace: job.Namespace },
          query: { namespace: job.Namespace },
          signal,
        })
      ).data,
    [job],
  );
  return html`
    <${Section} title="Where it would go">
      <${Loaded} state=${state}>${(found) =>
        html`<ul class="list">${(found.Groups ?? []).map(
          (group) => html`
        <li key=${group.Name}><strong>${plain(group.Name)}
          </strong> ${group.Unplaced ? html`<span class="bad">${group.Unplaced} cannot be placed</span>` : "all can be placed"}
          ${
            group.Scores?.length > 0 &&
            html`<span class="dim">best nodes: ${[...group.Scores]
              .sort((a, b) => b.NormScore - a.NormScore)
              .slice(0, 5)
              .map(
                (row) => html`<a key=${row.NodeID} href=${href(["nodes", row.NodeID])}>${plain(row.NodeName || short(row.NodeID))}</a> `,
              )}</span>`
          }
          ${group.SmallestChange && html`<div>It would help to ${plain(group.SmallestChange.Text)}.</div>`}</li>`,
        )}</ul>`}<//>
    <//>
  `;
}

function Preempted({ allocs }) {
  if (!allocs?.length) return null;
  return html`<${Section}
    title="Would be preempted">
    <ul class="list">
    ${allocs.map(
    (alloc) => html`
    <li key=${alloc.ID}><a href=${href(["allocations", alloc.ID])}>${plain(alloc.Name)}</a> <span class="dim">of ${plain(alloc.JobID)}
    </span></li>`)}</ul><//>`;
}

/** @param {{job: any, answer: any}} props */
export function PlanView({ job, answer }) {
  return html`
    ${answer.Warnings && html`<div class="note"><pre>${plain(answer.Warnings)}</pre></div>`}
    <${Section} title="Plan" note=${answer.JobModifyIndex ? `against index ${answer.JobModifyIndex}` : "a new job"}>
      <${Updates} updates=${answer.Annotations?.DesiredTGUpdates} /><${JobDiff} diff=${answer.Diff} />
    <//>
    <${Failures} failed=${answer.FailedTGAllocs} />
    <${Preempted} allocs=${answer.Annotations?.PreemptedAllocs} />
    <${Preview} job=${job} />
  `;
}
