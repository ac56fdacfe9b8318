/**
 * The one way to show a table: rows of fixed height of which only those in sight are in the document.
 *
 * Works with rows in the browser and with rows that a server's list loads as the reader scrolls (`ensure`). Keyboard: j and k or
 * the arrows move, Enter opens, x selects. The focus stays with a row's key when rows move. Roles and indices tell screen readers
 * what is not in the document.
 */
import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../../vendor/preact.js";
import { useKeys } from "../core/keys.js";
import { go, query, setQuery } from "../core/router.js";
import { width } from "../core/width.js";
import { count, plain } from "../core/format.js";

export const ROW_HEIGHT = 40;
const BEYOND = 8;

/**
 * @typedef {object} Column
 * @property {string} id
 * @property {string} title
 * @property {(row: any) => any} cell
 * @property {string} [size] of the grid: "1fr", "8rem".
 * @property {string} [sort] the name that the list sorts by.
 * @property {(row: any) => any} [value] sorts rows in the browser.
 * @property {"md"|"lg"|"xl"} [from] the narrowest window that shows it.
 * @property {boolean} [number]
 */

/** The rows in sight of a list in the page's scroll. */
function useWindow(length, body) {
  const [range, setRange] = useState([0, 40]);
  useLayoutEffect(() => {
    let frame = 0;
    const measure = () => {
      frame = 0;
      const top = body.current?.getBoundingClientRect().top ?? 0;
      const first = Math.max(0, Math.floor(-top / ROW_HEIGHT) - BEYOND);
      const last = Math.min(length, Math.ceil((innerHeight - top) / ROW_HEIGHT) + BEYOND);
      setRange((before) => (before[0] === first && before[1] === last ? before : [first, Math.max(first, last)]));
    };
    const later = () => (frame ||= requestAnimationFrame(measure));
    measure();
    addEventListener("scroll", later, { passive: true });
    addEventListener("resize", later);
    return () => {
      cancelAnimationFrame(frame);
      removeEventListener("scroll", later);
      removeEventListener("resize", later);
    };
  }, [length]);
  return range;
}

function Head({ columns, sort, onSort, selectAll, allSelected }) {
  return html`
    <div role="rowgroup" class="table-head">
      <div role="row" class="row">
        ${selectAll && html`
          <div role="columnheader"
          class="pick"><input type="checkbox" aria-label="Select all rows" checked=${allSelected} onChange=${selectAll} /></div>`}
        ${columns.map((column) => {
          const key = column.sort ?? (column.value ? column.id : "");
          const order = sort === key ? "ascending" : sort === `-${key}` ? "descending" : undefined;
          return html`
            <div key=${column.id} role="columnheader" class=${column.number ? "number" : ""}
              aria-sort=${key ? (order ?? "none") : undefined}>
              ${
                key
                  ? html`<button class="sort" onClick=${() => onSort(order === "ascending" ? `-${key}` : key)}>${column.title}
                <span aria-hidden="true">${order ? (order === "ascending" ? "▲" : "▼") : ""}</span></button>`
                  : column.title
              }
            </div>
          `;
        })}
      </div>
    </div>
  `;
}

/** @param {{row: any, at: number, columns: Column[], current: boolean, selected: boolean|undefined, table: {current: any}}} props */
function Row({ row, at, columns, current, selected, table }) {
  const href = row && table.current.href?.(row);
  const open = (event) => {
    if (event.target.closest("a, button, input, label") || !href || getSelection()?.toString()) return;
    go(href);
  };
  return html`
    <div role="row" class=${`row ${current ? "current" : ""} ${href ? "opens" : ""}`} aria-rowindex=${at + 2}
      aria-selected=${selected} style=${{ top: `${at * ROW_HEIGHT}px` }}
      tabindex=${current ? 0 : -1} onClick=${open} onFocus=${() => row && table.current.setKey(table.current.keyOf(row))}>
      ${selected !== undefined && html`
        <div role="cell" class="pick"><input type="checkbox" aria-label="Select row" checked=${selected}
          onChange=${() => table.current.toggle(row)} /></div>`}
      ${columns.map(
        (column) => html`<div key=${column.id} role="cell" class=${column.number ? "number" : ""}>${row ? column.cell(row) : "…"}</div>`)}
    </div>
  `;
}

/**
 * The rows in sight. A row that is shown as before is the same object as before, so that neither the framework nor the browser
 * looks at it again: while the reader scrolls, a frame costs the rows that come into sight, not all. So cells and links may read
 * only their row and signals, nothing else that changes while the columns stay the same.
 */
function useRows(rows, [first, last], columns, at, selection, table) {
  const before = useRef(/** @type {{columns: any, shown: Map<any, any>}} */ ({ columns: null, shown: new Map() }));
  const earlier = before.current.columns === columns ? before.current.shown : new Map();
  const shown = new Map();
  for (let index = first; index < last; index += 1) {
    const row = rows[index];
    const found = row ? table.current.keyOf(row) : index;
    const key = shown.has(found) ? `${found}\n${index}` : found;
    const current = index === at || (at < 0 && index === first);
    const selected = row && selection ? selection.has(found) : undefined;
    const cached = earlier.get(key);
    const same = cached && cached.row === row && cached.index === index && cached.current === current && cached.selected === selected;
    const node = same
      ? cached.node
      : html`<${Row} key=${key} row=${row} at=${index} columns=${columns} current=${current} selected=${selected} table=${table} />`;
    shown.set(key, same ? cached : { row, index, current, selected, node });
  }
  before.current = { columns, shown };
  return [...shown.values()].map((each) => each.node);
}

/** The movement of the current row by keys. */
function useCurrent(rows, keyOf, hrefOf, toggle, main) {
  const [key, show] = useState("");
  const chosen = useRef(key); // Ahead of what is drawn: the next key may come first.
  const moved = useRef(false);
  const at = useMemo(() => rows.findIndex((row) => row && keyOf(row) === key), [rows, key]);
  const body = useRef(/** @type {any} */ (null));
  const now = () => rows.findIndex((row) => row && keyOf(row) === chosen.current);
  const setKey = (next) => {
    chosen.current = next;
    show(next);
  };
  const move = (step) => {
    const next = Math.max(0, Math.min(rows.length - 1, now() + step));
    if (!rows[next]) return;
    moved.current = true;
    setKey(keyOf(rows[next]));
    const top = body.current.getBoundingClientRect().top + next * ROW_HEIGHT;
    if (top < 110) scrollBy(0, top - 110);
    if (top + ROW_HEIGHT * 2 > innerHeight) scrollBy(0, top + ROW_HEIGHT * 2 - innerHeight);
  };
  useLayoutEffect(() => {
    if (moved.current) body.current?.querySelector(".row.current")?.focus({ preventScroll: true });
    moved.current = false;
  }, [key]);
  const open = (event) => {
    if (event.target.closest("a, button")) event.target.click();
    else if (now() >= 0 && hrefOf?.(rows[now()])) go(hrefOf(rows[now()]));
  };
  const keys = [
    { keys: "j", help: "Next row", run: () => move(1) },
    { keys: "k", help: "Row before", run: () => move(-1) },
    { keys: "ArrowDown", help: "Next row", run: () => move(1) },
    { keys: "ArrowUp", help: "Row before", run: () => move(-1) },
    { keys: "Enter", help: "Open the row", run: open },
    { keys: "x", help: "Select the row", run: () => now() >= 0 && toggle?.(rows[now()]) },
  ];
  useKeys(main ? keys : []);
  return { at, body, setKey };
}

/**
 * @param {{label: string, columns: Column[], rows: any[], total?: number, keyOf: (row: any) => string, href?: (row: any) => string,
 *   sort?: string, onSort?: (sort: string) => void, ensure?: (end: number) => void, selection?: Set<string>,
 *   select?: (keys: Set<string>) => void, empty?: any, main?: boolean}} props
 */
export function Table(props) {
  const { label, rows, keyOf, href, sort = "", onSort = () => {}, ensure, selection, select, main = false } = props;
  const total = Math.max(rows.length, props.total ?? 0);
  const columns = useMemo(
    () => props.columns.filter((column) => !column.from || width.value.includes(column.from)),
    [props.columns, width.value],
  );
  const toggle =
    select &&
    ((row) => {
      const next = new Set(selection);
      if (!next.delete(keyOf(row))) next.add(keyOf(row));
      select(next);
    });
  const { at, body, setKey } = useCurrent(rows, keyOf, href, toggle, main);
  const [first, last] = useWindow(total, body);
  const table = useRef(/** @type {any} */ ({}));
  table.current = { keyOf, href, toggle, setKey };
  const shown = useRows(rows, [first, last], columns, at, select && (selection ?? new Set()), table);
  useEffect(() => ensure?.(last), [last, rows.length]);
  if (!total) return props.empty ?? html`<p class="empty">Nothing here.</p>`;
  const narrow = !width.value.includes("md");
  const share = (column, at) => (column.number ? 0.8 : at ? 1 : 1.2);
  const sizes = columns.map((column, at) => (narrow ? `minmax(0, ${share(column, at)}fr)` : (column.size ?? "minmax(0, 1fr)")));
  const grid = [select ? "1.5rem" : "", ...sizes].filter(Boolean).join(" ");
  const all = Boolean(selection?.size) && selection?.size === rows.length;
  const selectAll = select && (() => select(all ? new Set() : new Set(rows.map(keyOf))));
  return html`
    <div class="table" role="table" aria-label=${label} aria-rowcount=${total + 1} style=${{ "--grid": grid }}>
      <${Head} columns=${columns} sort=${sort} onSort=${onSort} selectAll=${selectAll} allSelected=${all} />
      <div role="rowgroup" class="table-body" ref=${body} style=${{ height: `${total * ROW_HEIGHT}px` }}>${shown}</div>
    </div>
  `;
}

const compared = (a, b) => (a === b ? 0 : a === undefined || a === null ? 1 : b === undefined || b === null ? -1 : a < b ? -1 : 1);

/**
 * A table of rows that are all in the browser: sorted and searched here; both are kept in the address under `name`.
 * @param {{name: string, label: string, columns: Column[], rows: any[], keyOf: (row: any) => string,
 *   href?: (row: any) => string, search?: (row: any) => string,
 *   sort?: string, empty?: any, main?: boolean, tools?: any, selection?: Set<string>, select?: (keys: Set<string>) => void}} props
 */
export function LocalTable(props) {
  const sort = query(`${props.name}-sort`, props.sort ?? "");
  const words = query(`${props.name}-q`).toLowerCase();
  const rows = useMemo(() => {
    const found =
      words && props.search
        ? props.rows.filter((row) => /** @type {any} */ (props).search(row).toLowerCase().includes(words))
        : [...props.rows];
    const column = props.columns.find((each) => each.id === sort.replace(/^-/, ""));
    if (column?.value) {
      const sign = sort.startsWith("-") ? -1 : 1;
      const value = column.value;
      found.sort((a, b) => sign * compared(value(a), value(b)));
    }
    return found;
  }, [props.rows, words, sort]);
  const tooMany = props.search && props.rows.length > 5;
  const empty = words ? html`<p class="empty">Nothing matches “${plain(words)}”.</p>` : props.empty;
  return html`
    ${
      (tooMany || words || props.tools) &&
      html`
      <div class="filters">
        ${
          (tooMany || words) &&
          html`<input type="search" aria-label=${`Filter ${props.label}`} placeholder="Filter" value=${words}
          onInput=${(event) => setQuery({ [`${props.name}-q`]: event.target.value })} />`
        }
        ${props.tools}
        <span class="dim">${count(rows.length)}${rows.length === props.rows.length ? "" : ` of ${count(props.rows.length)}`}</span>
      </div>`
    }
    <${Table} ...${props} rows=${rows} sort=${sort} onSort=${(next) => setQuery({ [`${props.name}-sort`]: next })} empty=${empty} />
  `;
}
