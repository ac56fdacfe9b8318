/**
 * Lists that the server filters, sorts and counts (`/v1/yurt/jobs`, `allocations`, `nodes`): the first rows at once, more as the
 * reader scrolls, changed rows by the live stream.
 *
 * Rows change in place, come in where the order puts them, and go. After a resync mark the rows shown are read again. The counts
 * beside filters (facets) follow at most every `FACETS_MS`.
 */
import { useCallback, useLayoutEffect, useRef, useState } from "../../vendor/preact.js";
import { call, isAbort } from "./api.js";
import { onChange } from "./live.js";
import { useRetry } from "./retry.js";

const FIRST_ROWS = 200;
const MORE_ROWS = 1000;
const PAGE_MAX = 10000;
const FACETS_MS = 5000;

/** Columns of the API as row objects. */
export function toRows(columns) {
  const names = Object.keys(columns ?? {});
  const length = names.length ? columns[names[0]].length : 0;
  return Array.from({ length }, (_, at) => Object.fromEntries(names.map((name) => [name, columns[name][at]])));
}

/** The key of a row of each kind. */
export const keyOf = (kind, row) => (kind === "jobs" ? `${row.Namespace}\n${row.ID}` : row.ID);

/** Compares rows as the server sorts them: by `sort` ("-SubmitTime,ID"), then by key. */
export function comparator(kind, sort) {
  const terms = sort
    .split(",")
    .filter(Boolean)
    .map((term) => (term.startsWith("-") ? [term.slice(1), -1] : [term, 1]));
  return (left, right) => {
    for (const [name, sign] of terms) {
      const a = left[name] ?? "";
      const b = right[name] ?? "";
      if (a !== b) return a < b ? -sign : sign;
    }
    const a = keyOf(kind, left);
    const b = keyOf(kind, right);
    return a < b ? -1 : a > b ? 1 : 0;
  };
}

/** Rows with an update of the live stream applied: `{rows, added, gone}`. Rows behind the last one loaded are only counted. */
export function applied(kind, rows, update, { sort, complete }) {
  const changed = new Map(toRows(update.Columns).map((row) => [keyOf(kind, row), row]));
  const gone = new Set((update.Gone ?? []).map((key) => key.join("\n")));
  const kept = [];
  let removed = 0;
  for (const row of rows) {
    const key = keyOf(kind, row);
    if (gone.has(key)) removed += 1;
    else kept.push(changed.has(key) ? { ...row, ...changed.get(key) } : row);
    changed.delete(key);
  }
  const compare = comparator(kind, sort);
  const end = kept[kept.length - 1];
  const fresh = [...changed.values()].filter((row) => complete || !end || compare(row, end) < 0);
  if (fresh.length) kept.push(...fresh);
  kept.sort(compare);
  return { rows: kept, added: changed.size, gone: removed };
}

/**
 * @param {{kind: "jobs"|"allocations"|"nodes", query: Record<string, any>, fields: string[], facets?: string[], sort: string}} wanted
 * @returns a list: `{rows, total, facets, error, loading, ensure(end), reload()}`.
 */
export function useList({ kind, query, fields, facets = [], sort }) {
  const path = `/v1/yurt/${kind}`;
  const [state, setState] = useState(/** @type {any} */ ({ rows: [], total: 0, facets: {}, error: null, loading: true }));
  const held = useRef(/** @type {any} */ ({ rows: [], next: "", busy: false, index: 0, total: 0 }));
  const key = JSON.stringify([kind, query, fields, facets, sort]);
  const [turn, setTurn] = useState(0);
  const reload = useCallback(() => setTurn((before) => before + 1), []);
  const publish = useCallback(
    (changes) => setState((before) => ({ ...before, rows: held.current.rows, total: held.current.total, ...changes })),
    [],
  );

  const more = useCallback(
    async (end) => {
      const now = held.current;
      if (now.busy || !now.next || end <= now.rows.length) return;
      now.busy = true;
      try {
        const size = Math.min(PAGE_MAX, Math.max(MORE_ROWS, end - now.rows.length));
        const { data } = await call("GET", path, {
          query: { ...query, fields: fields.join(","), sort, per_page: size, next_token: now.next },
        });
        if (held.current !== now) return;
        const known = new Set(now.rows.map((row) => keyOf(kind, row)));
        now.rows = [...now.rows, ...toRows(data.Columns).filter((row) => !known.has(keyOf(kind, row)))];
        now.next = data.NextToken ?? "";
        publish({});
      } catch (error) {
        publish({ error });
      } finally {
        now.busy = false;
      }
    },
    [key],
  );

  useLayoutEffect(() => {
    const controller = new AbortController();
    let stop = () => {};
    let timer = /** @type {any} */ (0);
    const now = { rows: /** @type {any[]} */ ([]), next: "", busy: false, index: 0, total: 0 };
    const size = turn ? Math.min(PAGE_MAX, Math.max(FIRST_ROWS, held.current.rows.length)) : FIRST_ROWS;
    const recount = () => {
      timer ||= setTimeout(async () => {
        timer = 0;
        try {
          const { data } = await call("GET", path, {
            query: { ...query, fields: "ID", per_page: 1, facets: facets.join(",") },
            signal: controller.signal,
          });
          now.total = data.Total;
          publish({ facets: data.Facets ?? {} });
        } catch (error) {
          if (!isAbort(error)) publish({ error });
        }
      }, FACETS_MS);
    };
    const take = (update) => {
      if (update.Resync) return reload();
      const result = applied(kind, now.rows, update, { sort, complete: !now.next });
      now.rows = result.rows;
      now.total += (now.next ? 0 : result.added) - result.gone;
      if (result.added || result.gone || facets.length) recount();
      publish({});
    };
    const start = async () => {
      const { data } = await call("GET", path, {
        query: { ...query, fields: fields.join(","), sort, per_page: size, facets: facets.join(",") },
        signal: controller.signal,
      });
      Object.assign(now, { rows: toRows(data.Columns), next: data.NextToken ?? "", index: data.Index, total: data.Total });
      held.current = now;
      setState({ rows: now.rows, total: now.total, facets: data.Facets ?? {}, error: null, loading: false });
      stop = onChange(viewOf(kind, query, fields), take, data.Index);
    };
    setState((before) => (before.loading ? before : { ...before, loading: true }));
    start().catch((error) => isAbort(error) || setState((before) => ({ ...before, error, loading: false })));
    return () => {
      controller.abort();
      clearTimeout(timer);
      stop();
    };
  }, [key, turn]);
  useRetry(state.error, reload);
  return { ...state, ensure: more, reload };
}

/** The view of the live stream that matches a list. */
export function viewOf(kind, query, fields) {
  const where = query.where ?? [];
  const view = /** @type {Record<string, any>} */ ({
    Kind: kind,
    Where: where,
    Search: query.search ?? "",
    Filter: query.filter ?? "",
    Fields: fields,
  });
  if (kind !== "nodes") view.Namespace = query.namespace || "*";
  if (query.parent !== undefined) view.Parent = query.parent;
  if (query.job) view.Job = query.job;
  if (query.node) view.Node = query.node;
  return view;
}
