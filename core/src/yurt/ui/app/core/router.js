/**
 * The address is the whole state of a page: path and query. Links change it without loading the document again.
 *
 * Routes are data: a pattern, the module that shows the page, and a title. A pattern's `:name` takes one segment, `*name` the rest.
 */
import { html, signal } from "../../vendor/preact.js";

export const BASE = "/ui";

const read = () => ({ path: location.pathname, query: new URLSearchParams(location.search), hash: location.hash });
/** The address shown now. */
export const place = signal(read());

/** Follow the browser's back and forward buttons and clicks on links. */
export function startRouter() {
  addEventListener("popstate", () => (place.value = read()));
  document.addEventListener("click", (event) => {
    const link = /** @type {HTMLElement} */ (event.target).closest?.("a[href]");
    if (!(link instanceof HTMLAnchorElement) || event.defaultPrevented || event.button !== 0) return;
    if (event.metaKey || event.ctrlKey || event.shiftKey || event.altKey || link.target || link.hasAttribute("download")) return;
    if (link.origin !== location.origin || !link.pathname.startsWith(BASE) || link.pathname.startsWith(`${BASE}/plain`)) return;
    event.preventDefault();
    go(link.pathname + link.search + link.hash);
  });
}

/** Ask before leaving a page with work that would be lost; set to a question, or null. @type {{question: string|null}} */
export const guard = { question: null };

/** Show another address. */
export function go(target, { replace = false } = {}) {
  if (guard.question && !replace && !confirm(guard.question)) return;
  guard.question = null;
  history[replace ? "replaceState" : "pushState"](null, "", target);
  place.value = read();
  if (!replace) scrollTo(0, 0);
}

/** Change parts of the query and keep the rest; an empty value removes a part. */
export function setQuery(changes, { replace = true } = {}) {
  const query = new URLSearchParams(place.peek().query);
  for (const [name, value] of Object.entries(changes)) {
    if (value === "" || value === null || value === undefined) query.delete(name);
    else query.set(name, String(value));
  }
  const text = query.toString();
  history[replace ? "replaceState" : "pushState"](null, "", location.pathname + (text ? `?${text}` : ""));
  place.value = read();
}

/** The value of a part of the query. */
export const query = (name, otherwise = "") => place.value.query.get(name) ?? otherwise;

/** A link to a page; `parts` are encoded segments below the base. */
export function href(parts, params = {}) {
  const query = new URLSearchParams(Object.entries(params).filter(([, value]) => value !== undefined && value !== "" && value !== null));
  const text = query.toString();
  return `${BASE}/${parts.map(encodeURIComponent).join("/")}${text ? `?${text}` : ""}`;
}

/** The page of a job. @param {{ID: string, Namespace?: string}} row */
export const jobHref = (row) => href(["jobs", row.ID], { namespace: row.Namespace === "default" ? "" : row.Namespace });

/** @param {string} pattern @returns {Record<string, string>|null} the parts of a path that the pattern names. */
export function match(pattern, path) {
  const wanted = pattern.split("/").filter(Boolean);
  const segments = path.slice(BASE.length).split("/").filter(Boolean);
  const found = /** @type {Record<string, string>} */ ({});
  for (let at = 0; at < wanted.length; at += 1) {
    const part = wanted[at];
    if (part.startsWith("*")) {
      if (at >= segments.length) return null;
      found[part.slice(1)] = segments.slice(at).map(decode).join("/");
      return found;
    }
    if (at >= segments.length) return null;
    if (part.startsWith(":")) found[part.slice(1)] = decode(segments[at]);
    else if (part !== segments[at]) return null;
  }
  return wanted.length === segments.length ? found : null;
}

function decode(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** A link within the UI. */
export const Link = ({ to, children, ...rest }) => html`<a href=${to} ...${rest}>${children}</a>`;
