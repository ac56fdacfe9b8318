/**
 * Actions: each shows the command that does the same, asks before it destroys, and says what is missing when the policy forbids it.
 *
 * An action is data: `{label, command, needs, namespace, run, danger, question, done, fields}`. The server decides; `needs` only
 * spares a refused request.
 */
import { html, useState } from "../../vendor/preact.js";
import { ApiError } from "../core/api.js";
import { plain } from "../core/format.js";
import { missing } from "../core/session.js";
import { Command } from "./copy.js";
import { openDialog } from "./dialog.js";
import { Fields, initial } from "./form.js";
import { toast } from "./toast.js";

/**
 * @typedef {object} Action
 * @property {string} label
 * @property {string | ((values: any) => string)} command the equivalent command line.
 * @property {string[]} [needs] rights, one of which suffices.
 * @property {string} [namespace]
 * @property {(values: any) => Promise<any>} run
 * @property {boolean} [danger] asks, in red.
 * @property {string} [question] what happens to what.
 * @property {import("./form.js").Field[]} [fields] asked for in the dialog.
 * @property {string | ((result: any) => string)} [done] said when it worked.
 * @property {string} [unavailable] why it cannot be done now.
 * @property {(result: any) => void} [then]
 */

const textOf = (action, values) => (typeof action.command === "function" ? action.command(values) : action.command);

/** Why an action cannot be taken, or "". @param {Action} action */
export const obstacle = (action) => action.unavailable || missing(action.needs ?? [], action.namespace ?? "");

/** Run an action and tell how it went. @param {Action} action */
export async function perform(action, values = {}) {
  const result = await action.run(values);
  const done = typeof action.done === "function" ? action.done(result) : action.done;
  toast(done ?? `${action.label}: done`);
  action.then?.(result);
  return result;
}

function Confirmation({ action, close }) {
  const [values, setValues] = useState(initial(action.fields ?? []));
  const [problem, setProblem] = useState("");
  const [busy, setBusy] = useState(false);
  const run = async (event) => {
    event.preventDefault();
    setBusy(true);
    try {
      await perform(action, values);
      close();
    } catch (error) {
      setProblem(error instanceof ApiError || error instanceof TypeError ? error.message : String(error));
      setBusy(false);
    }
  };
  return html`
    <form class="form" onSubmit=${run}>
      ${action.question && html`<p>${plain(action.question)}</p>`}
      <${Fields} fields=${action.fields ?? []} values=${values} change=${setValues} />
      <p class="dim">The same on the command line:</p>
      <${Command} text=${textOf(action, values)} />
      ${problem && html`<p class="bad" role="alert">${plain(problem)}</p>`}
      <div class="buttons">
        <button type="button" onClick=${close}>Cancel</button>
        <button type="submit" class=${action.danger ? "danger" : "primary"} disabled=${busy}>${action.label}</button>
      </div>
    </form>
  `;
}

/** Ask with the action's dialog. @param {Action} action */
export const ask = (action) => openDialog(action.label, ({ close }) => html`<${Confirmation} action=${action} close=${close} />`);

/** @param {{action: Action, kind?: string}} props a button that asks and acts; disabled, it says why. */
export function ActionButton({ action, kind = "" }) {
  const reason = obstacle(action);
  return html`
    <button class=${action.danger ? "danger quiet-danger" : kind} aria-disabled=${Boolean(reason)} data-action=${action.label}
      title=${reason || textOf(action, initial(action.fields ?? []))} onClick=${() => (reason ? toast(reason, "bad") : ask(action))}>
      ${action.label}
    </button>
  `;
}

export const Actions = ({ actions }) => html`
  <div class="actions">${actions.filter(Boolean).map((action) => html`<${ActionButton} key=${action.label} action=${action} />`)}</div>
`;
