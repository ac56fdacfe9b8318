/** The logs of all allocations of a job in one view. */
import { html, useMemo } from "../../../vendor/preact.js";
import { get, segment } from "../../core/api.js";
import { useData } from "../../core/load.js";
import { query, setQuery } from "../../core/router.js";
import { LogView } from "../../parts/logs.js";
import { Empty, Loaded } from "../../parts/page.js";

const SOURCES_MAX = 4;

function sourcesOf(allocs, task) {
  const live = allocs
    .filter((alloc) => ["running", "pending", "failed"].includes(alloc.ClientStatus))
    .sort((a, b) => b.CreateIndex - a.CreateIndex);
  return live.flatMap((alloc) =>
    Object.keys(alloc.TaskStates ?? {})
      .filter((name) => !task || name === task)
      .map((name) => ({ alloc: alloc.ID, task: name, label: `${alloc.Name.replace(/^.*\./, "")} ${name}` })),
  );
}

export function Tab({ job }) {
  const state = useData((signal) => get(`/v1/job/${segment(job.ID)}/allocations`, { namespace: job.Namespace }, { signal }), [job.ID]);
  return html`<${Loaded} state=${state}>${(allocs) => html`<${Merged} job=${job} allocs=${allocs ?? []} />`}<//>`;
}

function Merged({ job, allocs }) {
  const task = query("task");
  const tasks = [...new Set((job.TaskGroups ?? []).flatMap((group) => (group.Tasks ?? []).map((each) => each.Name)))];
  const all = useMemo(() => sourcesOf(allocs, task), [allocs, task]);
  const sources = all.slice(0, SOURCES_MAX);
  if (!all.length) return html`<${Empty}>No allocation of the job has a log here.<//>`;
  const tools = html`
    ${tasks.length > 1
    && html`<label>Task <select value=${task}
    onChange=${(event) => setQuery({ task: event.target.value })}><option value="">all</option>
    ${tasks.map((name) => html`<option key=${name} value=${name} selected=${name === task}>${name}</option>`)}</select></label>`}
    ${all.length > sources.length && html`<span class="dim">the newest ${sources.length} of ${all.length} logs</span>`}`;
  return html`<${LogView} key=${sources.map((each) => each.alloc + each.task).join()} sources=${sources} namespace=${job.Namespace}
    tools=${tools} />`;
}
