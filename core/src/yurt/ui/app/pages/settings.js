/** What a reader chooses for this browser. */
import { html } from "../../vendor/preact.js";
import { choose, settings } from "../core/settings.js";
import { Fields } from "../parts/form.js";
import { Heading, Section } from "../parts/page.js";

const FIELDS = /** @type {import("../parts/form.js").Field[]} */ ([
  {
    name: "theme",
    label: "Theme",
    kind: "select",
    options: [
      ["system", "as the system"],
      ["light", "light"],
      ["dark", "dark"],
    ],
  },
  { name: "utc", label: "Show times in UTC", kind: "checkbox" },
  { name: "keys", label: "Use keys (press ? for the list)", kind: "checkbox" },
  { name: "wrap", label: "Allow log lines to wrap", kind: "checkbox" },
  { name: "logKind", label: "Log to show first", kind: "select", options: ["stdout", "stderr", "both"] },
  { name: "execCommand", label: "Command of the terminal" },
]);

export const Settings = () => html`
  <${Heading} title="Settings" />
  <${Section} title="This browser"
    note="kept here, not on the server"><div class="form"><${Fields} fields=${FIELDS} values=${settings.value} change=${choose} /></div>
    <//>
`;
