/** The history of a job on one time axis: its versions, evaluations and the events of its tasks; idle hours are folded. */
import { html } from "../../../vendor/preact.js";
import { get, segment } from "../../core/api.js";
import { duration, moment, plain } from "../../core/format.js";
import { useData } from "../../core/load.js";
import { jobAllocsTopic } from "../../core/live.js";
import { href } from "../../core/router.js";
import { Empty, Loaded, Time } from "../../parts/page.js";
import { allocationHref } from "../allocations.js";
import { evaluationHref } from "../evaluations.js";

const ALLOCS_MAX = 100;
const SHOWN_MAX = 400;
const IDLE_S = 600;

async function load(job, signal) {
  const path = `/v1/job/${segment(job.ID)}`;
  const query = { namespace: job.Namespace };
  const [versions, evaluations, allocs] = await Promise.all([
    get(`${path}/versions`, query, { signal }),
    get(`${path}/evaluations`, query, { signal }),
    get(`${path}/allocations`, { ...query, per_page: ALLOCS_MAX, reverse: true }, { signal }),
  ]);
  const events = [
    ...(versions.Versions ?? []).map((each) => ({
      at: each.SubmitTime,
      text: `Version ${each.Version} registered`,
      kind: "good",
      to: href(["jobs", job.ID, "versions"], query),
    })),
    ...(evaluations ?? []).map((each) => ({
      at: each.CreateTime,
      text: `Evaluation ${each.ID.slice(0, 8)}: ${each.TriggeredBy}, ${each.Status}`,
      kind: Object.keys(each.FailedTGAllocs ?? {}).length ? "bad" : "",
      to: evaluationHref(each),
    })),
    ...(allocs ?? []).flatMap((alloc) => [
      { at: alloc.CreateTime, text: `${alloc.Name} placed on ${alloc.NodeName}`, kind: "", to: allocationHref(alloc) },
      ...Object.entries(alloc.TaskStates ?? {}).flatMap(([task, state]) =>
        (state.Events ?? []).map((event) => ({
          at: event.Time,
          text: `${alloc.Name} ${task}: ${event.Type}. ${event.DisplayMessage}`,
          kind: event.FailsTask || /fail|kill|oom/i.test(event.Type) ? "bad" : event.Type === "Started" ? "good" : "",
          to: allocationHref(alloc),
        })),
      ),
    ]),
  ];
  return events.filter((event) => event.at > 0).sort((a, b) => b.at - a.at);
}

/** The pause before an event, where it is long. */
function Idle({ event, before }) {
  const seconds = before ? (Number(moment(event.at)) - Number(moment(before.at))) / 1000 : 0;
  return seconds > IDLE_S ? html`<li class="dim">… ${duration(seconds)} without events …</li>` : null;
}

export function Tab({ job }) {
  const state = useData((signal) => load(job, signal), [job.ID, job.Namespace], [jobAllocsTopic(job.Namespace, job.ID)]);
  return html`
    <${Loaded} state=${state}>${(events) => html`
      ${events.length > SHOWN_MAX && html`<p class="dim">The newest ${SHOWN_MAX} of ${events.length} events.</p>`}
      <ol class="timeline" aria-label="Events of the job, newest first">${events.slice(0, SHOWN_MAX).map(
        (event, at) => html`
        <li key=${`${event.at} ${event.text}`}
          class=${event.kind}><b><${Time} at=${event.at} /></b> <a href=${event.to}>${plain(event.text)}</a></li>
          <${Idle} event=${event} before=${events[at + 1]} />`,
      )}</ol>
      ${!events.length && html`<${Empty}>Nothing happened yet.<//>`}
    `}<//>
  `;
}
