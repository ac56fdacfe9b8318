/** The logs of an allocation's tasks. */
import { html } from "../../../vendor/preact.js";
import { query, setQuery } from "../../core/router.js";
import { plain } from "../../core/format.js";
import { LogView } from "../../parts/logs.js";
import { Empty } from "../../parts/page.js";

export function Tab({ alloc, task }) {
  const tasks = Object.keys(alloc.TaskStates ?? {});
  const failed = tasks.find((name) => alloc.TaskStates[name].Failed);
  const name = task || query("task", failed ?? tasks[0] ?? "");
  if (!name) return html`<${Empty}>No task has started, so there is no log.<//>`;
  const tools =
    !task &&
    tasks.length > 1 &&
    html`<label>Task <select value=${name}
      onChange=${(event) => setQuery({ task: event.target.value })}>
      ${tasks.map((each) => html`<option key=${each} value=${each} selected=${each === name}>${plain(each)}</option>`)}</select></label>`;
  return html`<${LogView} key=${name} job=${alloc.JobID} namespace=${alloc.Namespace} allocs=${[alloc.ID]} task=${name}
    tools=${tools} />`;
}
