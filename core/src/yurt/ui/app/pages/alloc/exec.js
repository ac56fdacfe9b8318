/** The terminal of a task. */
import { html } from "../../../vendor/preact.js";
import { plain } from "../../core/format.js";
import { query, setQuery } from "../../core/router.js";
import { Empty } from "../../parts/page.js";
import { Exec } from "../../parts/terminal.js";

export function Tab({ alloc, task }) {
  const tasks = Object.keys(alloc.TaskStates ?? {});
  const name = task || query("task", tasks.find((each) => alloc.TaskStates[each].State === "running") ?? tasks[0] ?? "");
  if (!name) return html`<${Empty}>No task has started.<//>`;
  return html`
    ${!task && tasks.length > 1
      && html`<p><label>Task <select value=${name}
      onChange=${(event) => setQuery({ task: event.target.value })}>
      ${tasks.map((each) => html`<option key=${each} value=${each} selected=${each === name}>${plain(each)}</option>`)}</select></label>
      </p>`}
    <${Exec} key=${name} alloc=${alloc} task=${name} running=${alloc.TaskStates?.[name]?.State === "running"} />
  `;
}
