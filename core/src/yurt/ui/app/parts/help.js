/** The keys that work on this page, and the choice of others. */
import { html, useState } from "../../vendor/preact.js";
import { bindings, keysOf, rebind } from "../core/keys.js";
import { choose, settings } from "../core/settings.js";
import { openDialog } from "./dialog.js";

const MODIFIERS = ["Shift", "Control", "Alt", "Meta", "Tab"];

/** The keys of one binding; a click waits for another key. */
function Keys({ binding, say }) {
  const [waits, setWaits] = useState(false);
  const take = (event) => {
    if (!waits || MODIFIERS.includes(event.key)) return;
    event.preventDefault();
    event.stopPropagation();
    setWaits(false);
    say(event.key === "Escape" ? "" : rebind(binding, event.key));
  };
  return html`
    <button class="quiet keys" aria-label=${`Change the key of: ${binding.help}`} onClick=${() => setWaits(true)} onKeyDown=${take}
      onBlur=${() => setWaits(false)}>${waits ? "press a key" : keysOf(binding).split(" ").map((key) => html`<kbd>${key}</kbd> `)}
        </button>
  `;
}

function Help() {
  const [problem, say] = useState("");
  const groups = Object.groupBy(bindings.value, (each) => each.group ?? "On this page");
  return html`
    <p class="dim">Click keys to choose others. ${Object.keys(settings.value.bound).length > 0 && html`
      <button onClick=${() => choose({ bound: {} })}>Back to the keys of Yurt</button>`}</p>
    ${problem && html`<p class="bad" role="alert">${problem}</p>`}
    <div class="help">
      ${Object.entries(groups).map(([group, found]) => html`
        <section key=${group}>
          <h3>${group}</h3>
          <dl>${found?.map((each) => html`
            <div key=${each.keys}><dt><${Keys} binding=${each} say=${say} /></dt><dd>${each.help}</dd></div>`)}</dl>
        </section>`)}
    </div>
    <label><input type="checkbox" checked=${settings.value.keys}
      onChange=${(event) => choose({ keys: event.target.checked })} /> Use these keys</label>
  `;
}

export const openHelp = () => openDialog("Keys", Help, { wide: true });
