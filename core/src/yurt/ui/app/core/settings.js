/**
 * What a reader of the pages chose: theme, time zone, page options and saved views. Kept in this browser, never secrets.
 */
import { effect, signal } from "../../vendor/preact.js";

const STORE = "yurt-ui";
const DEFAULTS = {
  theme: "system",
  utc: false,
  wrap: true,
  keys: true,
  logKind: "stdout",
  minutes: 5,
  execCommand: "/bin/sh",
  drain: { Deadline: "1h", IgnoreSystemJobs: false },
  views: /** @type {{name: string, url: string}[]} */ ([]),
  bound: /** @type {Record<string, string>} */ ({}),
};

function stored() {
  try {
    return { ...DEFAULTS, ...JSON.parse(localStorage.getItem(STORE) ?? "{}") };
  } catch {
    return { ...DEFAULTS };
  }
}

/** All settings; replace the object to change one. */
export const settings = signal(stored());

/** Changes some settings and keeps them. @param {Partial<typeof DEFAULTS>} changes */
export function choose(changes) {
  settings.value = { ...settings.value, ...changes };
  try {
    localStorage.setItem(STORE, JSON.stringify(settings.value));
  } catch {
    // A browser without storage keeps the choice until the page closes.
  }
}

/** The theme that is shown: "light" or "dark". */
export const shownTheme = signal("light");

/** Sets the theme on the document; "system" follows the operating system. */
export function startTheme() {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const show = () => {
    const theme = settings.value.theme;
    const shown = theme === "system" ? (dark.matches ? "dark" : "light") : theme;
    document.documentElement.dataset.theme = shown;
    shownTheme.value = shown;
  };
  dark.addEventListener("change", show);
  effect(show);
}
