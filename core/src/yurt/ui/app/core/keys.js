/**
 * The keyboard: single keys and two-key sequences (`g j`), each with a text for the help. Keys typed into inputs are text.
 *
 * Nothing destructive is on a key: actions only open their dialog. A reader may choose other keys (`settings.bound`); what a binding
 * names are the keys that it has by itself.
 */
import { signal, useLayoutEffect, useRef } from "../../vendor/preact.js";
import { choose, settings } from "./settings.js";

const SEQUENCE_MS = 900;
/** @typedef {{keys: string, help: string, run: (event: KeyboardEvent) => void, group?: string}} Binding */
/** @type {import("../../vendor/preact.js").Signal<Binding[]>} */
export const bindings = signal([]);
let prefix = "";
let timer = /** @type {any} */ (0);

const isText = (target) =>
  target instanceof HTMLElement &&
  (target.isContentEditable || /^(input|textarea|select)$/i.test(target.tagName) || target.closest(".cm-host, .xterm"));

/** What a choice of other keys is kept under. @param {Binding} binding */
const nameOf = (binding) => `${binding.keys}|${binding.help}`;

/** The keys that run a binding now. @param {Binding} binding */
export const keysOf = (binding) => settings.value.bound[nameOf(binding)] ?? binding.keys;

/** Let one key run a binding; returns why it cannot, or "". @param {Binding} binding @param {string} key */
export function rebind(binding, key) {
  const other = bindings.value.find((each) => each !== binding && (keysOf(each) === key || keysOf(each).startsWith(`${key} `)));
  if (other) return `${key} is used for: ${other.help}`;
  choose({ bound: { ...settings.value.bound, [nameOf(binding)]: key } });
  return "";
}

/** Add bindings; returns what removes them. @param {Binding[]} added */
export function bind(added) {
  bindings.value = [...added, ...bindings.value];
  return () => (bindings.value = bindings.value.filter((each) => !added.includes(each)));
}

/**
 * Bindings of a page, while it is shown. A key runs what the newest drawing of the page gave: quick keys must not see old rows.
 * @param {Binding[]} added
 */
export function useKeys(added) {
  const latest = useRef(added);
  latest.current = added;
  const run = (at) => (event) => latest.current[at]?.run(event);
  useLayoutEffect(() => bind(added.map((each, at) => ({ ...each, run: run(at) }))), [JSON.stringify(added)]);
}

export function startKeys() {
  document.addEventListener("keydown", (event) => {
    if (!settings.value.keys || event.ctrlKey || event.metaKey || event.altKey) return;
    if (isText(event.target) || document.querySelector("dialog[open]")) return;
    const typed = prefix ? `${prefix} ${event.key}` : event.key;
    const found = bindings.value.find((each) => keysOf(each) === typed);
    const begins = !found && bindings.value.some((each) => keysOf(each).startsWith(`${typed} `));
    clearTimeout(timer);
    prefix = begins ? typed : "";
    if (begins) timer = setTimeout(() => (prefix = ""), SEQUENCE_MS);
    if (found || begins) event.preventDefault();
    found?.run(event);
  });
}
