/** The search over all objects (fuzzy, by the server) and the pages; a `:` in front shows pages and commands alone. */
import { html, useEffect, useRef, useState } from "../../vendor/preact.js";
import { call, isAbort } from "../core/api.js";
import { plain } from "../core/format.js";
import { bindings, keysOf } from "../core/keys.js";
import { go, href } from "../core/router.js";
import { may } from "../core/session.js";
import { MENU } from "../routes.js";
import { closeDialog, openDialog } from "./dialog.js";

const TYPED_MS = 80;
const SHOWN_MAX = 10;

/**
 * How a match of each context is shown: label and address.
 * @type {Record<string, (match: any) => {label: string, note: string, to: string}|null>}
 */
const KINDS = {
  jobs: ({ ID, Scope }) => ({
    label: ID,
    note: Scope?.[1] && Scope[1] !== ID ? `${Scope[1]} · ${Scope[0]}` : (Scope?.[0] ?? ""),
    to: href(["jobs", Scope?.[1] ?? ID], { namespace: Scope?.[0] }),
  }),
  nodes: ({ ID, Scope }) => ({ label: ID, note: Scope?.[0] ?? "", to: href(["nodes", Scope?.[0] ?? ID]) }),
  allocs: ({ ID, Scope }) => ({ label: ID, note: Scope?.[0] ?? "", to: href(["allocations", Scope?.[1] ?? ID]) }),
  groups: ({ ID, Scope }) => ({
    label: ID,
    note: `group of ${Scope?.[1]}`,
    to: href(["jobs", Scope?.[1] ?? ""], { namespace: Scope?.[0] }),
  }),
  tasks: ({ ID, Scope }) =>
    ({ label: ID, note: `task of ${Scope?.[1]}`, to: href(["jobs", Scope?.[1] ?? ""], { namespace: Scope?.[0] }) }),
  images: ({ ID, Scope }) => ({
    label: ID,
    note: `image of ${Scope?.[1]}`,
    to: href(["jobs", Scope?.[1] ?? ""], { namespace: Scope?.[0] }),
  }),
  commands: ({ ID, Scope }) => ({
    label: ID,
    note: `command of ${Scope?.[1]}`,
    to: href(["jobs", Scope?.[1] ?? ""], { namespace: Scope?.[0] }),
  }),
  services: ({ ID, Scope }) => ({
    label: ID,
    note: `service of ${Scope?.[1]}`,
    to: href(["jobs", Scope?.[1] ?? "", "services"], { namespace: Scope?.[0] }),
  }),
  namespaces: ({ ID }) => ({ label: ID, note: "", to: href(["jobs"], { namespace: ID }) }),
  node_pools: ({ ID }) => ({ label: ID, note: "", to: href(["nodes"], { Pool: ID }) }),
  vars: ({ ID, Scope }) => ({ label: ID, note: Scope?.[0] ?? "", to: href(["variables", ...ID.split("/")], { namespace: Scope?.[0] }) }),
  plugins: ({ ID }) => ({ label: ID, note: "plugin", to: href(["storage"], { tab: "plugins" }) }),
  evals: ({ ID }) => ({ label: ID, note: "", to: href(["evaluations", ID]) }),
};

const CONTEXTS = { allocations: "allocs", variables: "vars", evaluations: "evals" };

/** The groups of hits of an answer of the search: kinds in the order of `KINDS`, hits in the server's (the closest first). */
function hitsOf(data) {
  const order = Object.keys(KINDS);
  const groups = Object.entries(data?.Matches ?? {}).map(
    ([context, found]) => /** @type {[string, string, any]} */ ([CONTEXTS[context] ?? context, context, found]),
  );
  groups.sort(([a], [b]) => order.indexOf(a) - order.indexOf(b));
  return groups.flatMap(([kind, context, found]) => {
    const rows = (found ?? [])
      .slice(0, SHOWN_MAX)
      .map((each) => KINDS[kind]?.(typeof each === "string" ? { ID: each } : each))
      .filter(Boolean);
    const cut = Boolean(data.Truncations?.[context]) || found?.length > SHOWN_MAX;
    return rows.length ? [{ title: kind.replace("_", " "), rows, cut }] : [];
  });
}

function pagesOf(words) {
  const pages = MENU.filter((item) => !item.needs || may(item.needs)).map((item) => ({
    label: item.label,
    note: `g ${item.key}`,
    to: item.to,
  }));
  const actions = bindings.value
    .filter((each) => !each.keys.startsWith("g ") && each.help)
    .map((each) => ({ label: each.help, note: keysOf(each), run: () => each.run(/** @type {any} */ ({ target: document.body })) }));
  const wanted = words.toLowerCase();
  return [...pages, ...actions].filter((each) => each.label.toLowerCase().includes(wanted)).slice(0, 12);
}

async function search(text, signal) {
  const body = { Text: text, Context: "all", Namespace: "*" };
  const { data } = await call("POST", "/v1/search/fuzzy", { body, query: { namespace: "*" }, signal });
  const isId = /^[0-9a-f]{4,}(-[0-9a-f]*)*$/i.test(text);
  if (!isId) return hitsOf(data);
  const byId = await call("POST", "/v1/search", { body: { Prefix: text, Context: "all" }, query: { namespace: "*" }, signal });
  return [...hitsOf(byId.data), ...hitsOf(data)];
}

function Palette({ start }) {
  const [text, setText] = useState(start);
  const [hits, setHits] = useState(/** @type {any[]} */ ([]));
  const [problem, setProblem] = useState("");
  const [at, setAt] = useState(0);
  const input = useRef(/** @type {any} */ (null));
  const isCommand = text.startsWith(":");
  useEffect(() => input.current?.focus(), []);
  useEffect(() => {
    setAt(0);
    setProblem("");
    if (isCommand || text.trim().length < 2) return setHits([]);
    const controller = new AbortController();
    const timer = setTimeout(
      () => search(text.trim(), controller.signal).then(setHits, (error) => isAbort(error) || setProblem(error.message)),
      TYPED_MS,
    );
    return () => {
      clearTimeout(timer);
      controller.abort();
    };
  }, [text]);
  const pages = pagesOf(text.replace(/^:/, "").trim());
  const groups = [
    ...hits,
    ...(isCommand || text.length < 2 || pages.length ? [{ title: "pages and commands", rows: pages, cut: false }] : []),
  ];
  const flat = groups.flatMap((group) => group.rows);
  const open = (row) => {
    closeDialog();
    if (row?.run) row.run();
    else if (row) go(row.to);
  };
  const keys = (event) => {
    if (event.key === "ArrowDown") setAt(Math.min(flat.length - 1, at + 1));
    else if (event.key === "ArrowUp") setAt(Math.max(0, at - 1));
    else if (event.key === "Enter") open(flat[at]);
    else return;
    event.preventDefault();
  };
  return html`
    <div class="palette">
      <input ref=${input} type="search" value=${text} placeholder="Jobs, nodes, allocations, groups, services, ids; : for pages"
        aria-label="Search" role="combobox"
        aria-expanded="true" aria-controls="hits" aria-activedescendant=${flat.length ? `hit-${at}` : undefined}
          onInput=${(event) => setText(event.target.value)} onKeyDown=${keys} />
      ${problem && html`<p class="bad" role="alert">${plain(problem)}</p>`}
      <div id="hits" role="listbox" aria-label="Found" tabindex="-1">
        ${groups.map(
          (group) => html`
          <div key=${group.title} role="group" aria-label=${group.title}>
            <h3>${group.title}${group.cut && html` <small>more are left out</small>`}</h3>
            ${group.rows.map((row) => {
              const index = flat.indexOf(row);
              return html`<div key=${index} id=${`hit-${index}`} role="option" aria-selected=${index === at} class="hit"
                onClick=${() => open(row)}>
                <span>${plain(row.label)}</span><span class="dim">${plain(row.note)}</span></div>`;
            })}
          </div>`,
        )}
        ${text.length > 1 && !flat.length && !problem && html`<p class="empty">Nothing found.</p>`}
      </div>
    </div>
  `;
}

export const openPalette = (start = "") => openDialog("Search", () => html`<${Palette} start=${start} />`, { wide: true });
