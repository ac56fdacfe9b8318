/** The keys that work on this page. */
import { html } from "../../vendor/preact.js";
import { bindings } from "../core/keys.js";
import { choose, settings } from "../core/settings.js";
import { openDialog } from "./dialog.js";

function Help() {
  const groups = Object.groupBy(bindings.value, (each) => each.group ?? "On this page");
  return html`
    <div class="help">
      ${Object.entries(groups).map(
        ([group, found]) => html`
        <section key=${group}>
          <h3>${group}</h3>
          <dl>${found?.map(
            (each) => html`
            <div key=${each.keys}><dt>${each.keys.split(" ").map((key) => html`<kbd>${key}</kbd> `)}</dt><dd>${each.help}</dd></div>`)}
            </dl>
        </section>`,
      )}
      <label><input type="checkbox" checked=${settings.value.keys}
        onChange=${(event) => choose({ keys: event.target.checked })} /> Use these keys</label>
    </div>
  `;
}

export const openHelp = () => openDialog("Keys", Help, { wide: true });
