/** What every page is made of: a heading with breadcrumbs, tabs, sections, facts, and states of loading, emptiness and error. */
import { html, useEffect, useRef } from "../../vendor/preact.js";
import { ago, isoTime, moment, plain } from "../core/format.js";
import { now } from "../core/clock.js";
import { width } from "../core/width.js";

const SIGN_IN = "/ui/sign-in";

/**
 * The top of a page; sets the document's title.
 * @param {{title: string, crumbs?: [string, string][], children?: any, kind?: string}} props
 */
export function Heading({ title, crumbs = [], kind = "", children }) {
  useEffect(() => {
    document.title = `${plain(title)} · Yurt`;
  }, [title]);
  return html`
    <header class="heading">
      <nav aria-label="Breadcrumbs" class="crumbs">
        ${crumbs.map(([label, to], place) => {
          const isLast = place === crumbs.length - 1 && !kind;
          return html`<a key=${to} href=${to}>${plain(label)}</a>${!isLast && html`<span aria-hidden="true">›</span>`}`;
        })}
        ${kind && html`<span>${kind}</span>`}
      </nav>
      <div class="headline"><h1 tabindex="-1">${plain(title)}</h1>${children}</div>
    </header>
  `;
}

/** @param {{tabs: [string, string][], current: string, to: (tab: string) => string}} props */
export function Tabs({ tabs, current, to }) {
  const nav = useRef(/** @type {any} */ (null));
  useEffect(() => {
    const [bar, tab] = [nav.current, nav.current.querySelector("[aria-current]")];
    // The current tab is in sight also where the others need more room than there is.
    if (tab) bar.scrollLeft = tab.offsetLeft + tab.offsetWidth / 2 - bar.offsetLeft - bar.clientWidth / 2;
  }, [current, tabs.length, width.value.length]);
  return html`
  <nav class="tabs" aria-label="Sections of this page" ref=${nav}>
    ${tabs.map(
      ([id, label]) => html`<a key=${id} href=${to(id)} data-tab=${id} aria-current=${id === current ? "page" : undefined}>${label}</a>`,
    )}
  </nav>
`;
}

/** @param {{title: string, note?: any, tools?: any, children?: any}} props */
export const Section = ({ title, note = "", tools = null, children }) => html`
  <section class="section" aria-label=${title}>
    <div class="section-head"><h2>${title}</h2>${note && html`<span class="dim">${note}</span>`}${tools}</div>
    ${children}
  </section>
`;

/** Names with values; empty values are left out. @param {{facts: [string, any][]}} props */
export const Facts = ({ facts }) => html`
  <dl class="facts">
    ${facts
      .filter(([, value]) => value !== undefined && value !== null && value !== "" && value !== false)
      .map(
        ([name, value]) =>
          html`<div key=${name}><dt>${plain(name)}</dt><dd>${typeof value === "string" ? plain(value) : value}</dd></div>`,
      )}
  </dl>
`;

/** A time of the API as its age; on a phone the largest unit alone. @param {{at: number|Date|null}} props */
export function When({ at }) {
  const date = at instanceof Date || at === null ? at : moment(at);
  if (!date) return html`<span class="dim">never</span>`;
  // The clock moves in steps: a row newer than its last step is not from the future.
  const present = date.getTime() > now.value ? Date.now() : now.value;
  return html`<time datetime=${date.toISOString()} title=${isoTime(date)}>${ago(date, present, width.value.length ? 2 : 1)}</time>`;
}

/** A time in full. */
export function Time({ at }) {
  const date = at instanceof Date ? at : moment(at);
  return date
    ? html`<time datetime=${date.toISOString()} title=${ago(date, now.value)}>${isoTime(date)}</time>`
    : html`<span class="dim">never</span>`;
}

const TITLES = { 0: "No answer", 401: "Not signed in", 403: "Not allowed", 404: "Not found", 429: "Too many requests" };

/** @param {{error: any, retry?: () => void}} props what went wrong, and what helps. */
export function Failure({ error, retry }) {
  const leaderless = /no cluster leader/i.test(error.message);
  const title = leaderless ? "No leader" : (TITLES[error.status] ?? "The server could not answer");
  const help = leaderless
    ? "The servers are electing a leader, or most of them are gone. `yurt server members` and `yurt operator autopilot health` show more."
    : error.status === 403 || error.status === 401
      ? "Sign in with a token whose policies allow it."
      : "";
  return html`
    <div class="failure" role="alert">
      <h2>${title}</h2>
      <p>${plain(error.message)}</p>
      ${help && html`<p class="dim">${help}</p>`}
      <div class="buttons">
        ${retry && html`<button onClick=${retry}>Try again</button>`}
        ${(error.status === 403 || error.status === 401) && html`<a class="button" href=${SIGN_IN}>Sign in</a>`}
      </div>
    </div>
  `;
}

export const Empty = ({ children }) => html`<p class="empty">${children}</p>`;
export const Loading = () => html`<p class="loading" role="status">Loading…</p>`;

/** Shows data, or that it is loading, or why it is not there. @param {{state: any, children: (data: any) => any}} props */
export function Loaded({ state, children }) {
  if (state.error && state.data === undefined) return html`<${Failure} error=${state.error} retry=${state.reload} />`;
  if (state.data === undefined) return html`<${Loading} />`;
  return html`
    ${state.error
      && html`<p class="stale"
      role="alert">Not up to date: ${plain(state.error.message)} <button onClick=${state.reload}>Try again</button></p>`}
    ${children(state.data)}
  `;
}
