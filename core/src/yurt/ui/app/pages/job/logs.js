/** The logs of all allocations of a job in one view. */
import { html } from "../../../vendor/preact.js";
import { plain } from "../../core/format.js";
import { query, setQuery } from "../../core/router.js";
import { LogView } from "../../parts/logs.js";

function Choice({ tasks, task }) {
  if (tasks.length < 2) return null;
  return html`
    <label>Task <select value=${task} onChange=${(event) => setQuery({ task: event.target.value })}><option value="">all</option>
      ${tasks.map((name) => html`<option key=${name} value=${name} selected=${name === task}>${plain(name)}</option>`)}</select></label>
  `;
}

export function Tab({ job }) {
  const tasks = [...new Set((job.TaskGroups ?? []).flatMap((group) => (group.Tasks ?? []).map((each) => each.Name)))];
  const task = query("task");
  return html`<${LogView} job=${job.ID} namespace=${job.Namespace} task=${task}
    tools=${html`<${Choice} tasks=${tasks} task=${task} />`} />`;
}
