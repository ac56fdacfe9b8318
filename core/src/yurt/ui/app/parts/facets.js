/** Filters with counts: each facet is a menu of values; chosen values stay in the address and are shown as chips. */
import { html, useEffect, useState } from "../../vendor/preact.js";
import { get } from "../core/api.js";
import { count, plain } from "../core/format.js";
import { query, setQuery } from "../core/router.js";

/** The values of a facet in the address, which stand there separated by commas. */
export const chosen = (name) => query(name).split(",").filter(Boolean).map(decodeURIComponent);
const choose = (name, values) => setQuery({ [name]: values.map(encodeURIComponent).join(",") }, { replace: false });

/** `where` of a list for the chosen values of facets. @param {string[]} names */
export const whereOf = (names) => names.flatMap((name) => chosen(name).map((value) => `${name}:${value}`));

/** Says which of some namespaces do not exist, beside an empty list or a page that was not found. @param {{names: string[]}} props */
export function UnknownNamespaces({ names }) {
  const [known, setKnown] = useState(/** @type {string[]|null} */ (null));
  useEffect(() => {
    // Without the list, as where the servers do not answer, there is nothing to say.
    get("/v1/namespaces").then((rows) => setKnown(rows.map((row) => row.Name)), () => {});
  }, []);
  const unknown = known ? names.filter((name) => name !== "*" && !known.includes(name)) : [];
  return unknown.map(
    (name) => html`
    <p key=${name} class="note" role="alert">There is no namespace “${plain(name)}” that you may see.
      <a href="/ui/namespaces">Namespaces</a></p>`,
  );
}

function Facet({ name, label, facet }) {
  const picked = chosen(name);
  const values = [...(facet?.Values ?? [])];
  for (const value of picked) if (!values.some(([known]) => String(known) === value)) values.unshift([value, 0]);
  const toggle = (value) => choose(name, picked.includes(value) ? picked.filter((each) => each !== value) : [...picked, value]);
  return html`
    <details class="facet" name="facet">
      <summary>${label}${picked.length ? ` (${picked.length})` : ""} ▾</summary>
      <div>
        ${values.map(
          ([value, number]) => html`
          <label key=${value}><input type="checkbox" checked=${picked.includes(String(value))} onChange=${() => toggle(String(value))} />
            <span>${plain(value) || "(none)"}</span><span class="dim">${count(number)}</span></label>`,
        )}
        ${!values.length && html`<span class="dim">No values</span>`}
        ${facet?.Omitted > 0 && html`<span class="dim">${count(facet.Omitted)} more values are left out</span>`}
      </div>
    </details>
  `;
}

/** @param {{facets: [string, string][], counts: Record<string, any>}} props names with labels, and what the list counted. */
export const Facets = ({ facets, counts }) =>
  facets.map(([name, label]) => html`<${Facet} key=${name} name=${name} label=${label} facet=${counts[name]} />`);

/** @param {{facets: [string, string][]}} props */
export function Chips({ facets }) {
  const picked = facets.flatMap(([name, label]) => chosen(name).map((value) => ({ name, label, value })));
  if (!picked.length) return null;
  return html`
    <div class="chips">
      ${picked.map(
        ({ name, label, value }) => html`
        <button key=${name + value} aria-label=${`Remove filter ${label} ${value}`} onClick=${() =>
          choose(
            name,
            chosen(name).filter((each) => each !== value),
          )}>
          <span class="dim">${label}</span> ${plain(value) || "(none)"} ✕</button>`,
      )}
      <button onClick=${() => setQuery(Object.fromEntries(facets.map(([name]) => [name, ""])))}>Clear</button>
    </div>
  `;
}

let timer = /** @type {any} */ (0);
let requestedAt = 0;
/** The shortest time between two questions to the server while somebody types; the first letter is asked for at once. */
const TYPED_MS = 60;

/** The search and filter box of a server's list: words, or an expression where the text has an operator. */
export function SearchBox({ label, hint = "" }) {
  const text = query("q");
  return html`
    <input type="search" id="list-search" aria-label=${label} placeholder=${label} title=${hint} value=${text} onInput=${(event) => {
      clearTimeout(timer);
      const value = event.target.value;
      const ask = () => {
        requestedAt = performance.now();
        setQuery({ q: value });
      };
      const wait = requestedAt + TYPED_MS - performance.now();
      if (wait > 0) timer = setTimeout(ask, wait);
      else ask();
    }} />
  `;
}

const OPERATOR = /(==|!=|<=|>=|<|>|\b(contains|matches|in|not in|is empty|is not empty)\b)/;

/** `search` or `filter` of a list, from the text of its box. */
export const textQuery = (text) => (OPERATOR.test(text) ? { filter: text, search: "" } : { search: text, filter: "" });
