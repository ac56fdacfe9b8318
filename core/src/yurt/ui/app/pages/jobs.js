/** All jobs: derived status, counts, filters, saved views, actions on many. */
import { html, useMemo, useState } from "../../vendor/preact.js";
import { get, put, remove, segment } from "../core/api.js";
import { command, plain, plural } from "../core/format.js";
import { useKeys } from "../core/keys.js";
import { useList } from "../core/list.js";
import { go, href, jobHref, place, query, setQuery } from "../core/router.js";
import { missing } from "../core/session.js";
import { choose, settings } from "../core/settings.js";
import { ask } from "../parts/action.js";
import { Chips, chosen, Facets, SearchBox, textQuery, UnknownNamespaces, whereOf } from "../parts/facets.js";
import { Empty, Failure, Heading, When } from "../parts/page.js";
import { Counts, Status } from "../parts/status.js";
import { Table } from "../parts/table.js";
import { toast } from "../parts/toast.js";

const FACETS = /** @type {[string, string][]} */ ([
  ["Status", "Status"],
  ["Type", "Type"],
  ["Namespace", "Namespace"],
  ["NodePool", "Pool"],
  ["Meta.owner", "Owner"],
]);
const FIELDS = [
  "ID",
  "Namespace",
  "Name",
  "Type",
  "Kind",
  "Status",
  "Reason",
  "Desired",
  "Running",
  "Starting",
  "Waiting",
  "Failed",
  "Lost",
  "Complete",
  "NodePool",
  "Priority",
  "Version",
  "SubmitTime",
  "NeedsPromotion",
  "ChildrenPending",
  "ChildrenRunning",
  "ChildrenDead",
  "ParentID",
];
const EXAMPLE = 'Words, or an expression: Type == "service" and Waiting != 0';

/** The columns of lists of jobs. @type {import("../parts/table.js").Column[]} */
export const JOB_COLUMNS = [
  {
    id: "name",
    title: "Job",
    sort: "ID",
    size: "minmax(7rem, 2fr)",
    cell: (row) => html`<a href=${jobHref(row)} title=${plain(row.ID)}>${plain(row.Name || row.ID)}</a>`,
  },
  {
    id: "status",
    title: "Status",
    sort: "Status",
    size: "minmax(6.5rem, 8rem)",
    cell: (row) => html`<${Status} status=${row.Status} note=${row.Reason} />`,
  },
  {
    id: "counts",
    title: "Allocations",
    sort: "Running",
    from: "md",
    size: "minmax(11rem, 1.4fr)",
    cell: (row) => html`<${JobCounts} row=${row} />`,
  },
  {
    id: "reason",
    title: "Why",
    from: "lg",
    size: "minmax(8rem, 2fr)",
    cell: (row) =>
      html`<span title=${plain(row.Reason)} class="dim">${row.NeedsPromotion ? "Needs promotion. " : ""}${plain(row.Reason)}</span>`,
  },
  { id: "namespace", title: "Namespace", sort: "Namespace", from: "lg", size: "6.5rem", cell: (row) => plain(row.Namespace) },
  { id: "type", title: "Type", sort: "Type", from: "md", size: "7rem", cell: (row) => row.Kind || row.Type },
  { id: "pool", title: "Pool", sort: "NodePool", from: "xl", size: "8rem", cell: (row) => plain(row.NodePool) },
  { id: "priority", title: "Priority", sort: "Priority", from: "xl", size: "5rem", number: true, cell: (row) => row.Priority },
  {
    id: "submitted",
    title: "Submitted",
    sort: "SubmitTime",
    size: "7.5rem",
    number: true,
    cell: (row) => html`<${When} at=${row.SubmitTime} />`,
  },
];

function JobCounts({ row }) {
  if (row.Kind)
    return html`<span>
      ${plural(row.ChildrenRunning + row.ChildrenPending + row.ChildrenDead, "child")
      .replace("childs", "children")}, ${row.ChildrenRunning} running</span>`;
  return html`<${Counts}
    counts=${{ running: row.Running, starting: row.Starting, queued: row.Waiting, failed: row.Status === "running" ? 0 : row.Failed,
    lost: row.Status === "running" ? 0 : row.Lost, complete: row.Complete }} />`;
}

/** What the list asks the server for, from the address. */
function useJobs(parent) {
  const address = place.value.query.toString();
  const sort = query("sort", "-SubmitTime");
  const wanted = useMemo(
    () => ({
      namespace: "*",
      where: whereOf(FACETS.map(([name]) => name)),
      ...(parent === undefined ? (query("children") ? {} : { parent: "" }) : { parent, namespace: query("namespace") || "default" }),
      ...textQuery(query("q")),
    }),
    [address, parent],
  );
  return { list: useList({ kind: "jobs", query: wanted, fields: FIELDS, facets: FACETS.map(([name]) => name), sort }), sort };
}

const BULK = {
  stop: {
    label: "Stop",
    danger: true,
    needs: ["submit-job", "deregister-job"],
    words: ["job", "stop"],
    run: (row) => remove(`/v1/job/${segment(row.ID)}`, { namespace: row.Namespace }),
  },
  purge: {
    label: "Purge",
    danger: true,
    needs: ["submit-job", "purge-job"],
    words: ["job", "stop"],
    flags: { purge: true },
    run: (row) => remove(`/v1/job/${segment(row.ID)}`, { namespace: row.Namespace, purge: true }),
  },
  start: { label: "Start", needs: ["submit-job"], words: ["job", "start"], run: startJob },
  evaluate: {
    label: "Evaluate",
    needs: ["submit-job", "evaluate-job"],
    words: ["job", "eval"],
    run: (row) => put(`/v1/job/${segment(row.ID)}/evaluate`, { JobID: row.ID }, { namespace: row.Namespace }),
  },
};

/** Registers a stopped job again as it was. */
export async function startJob(row) {
  const job = await get(`/v1/job/${segment(row.ID)}`, { namespace: row.Namespace });
  const submission = await get(`/v1/job/${segment(row.ID)}/submission`, { namespace: row.Namespace, version: job.Version }).catch(
    () => null,
  );
  return put(
    "/v1/jobs",
    { Job: { ...job, Stop: false }, Submission: submission ?? undefined, EnforceIndex: true, JobModifyIndex: job.JobModifyIndex },
    { namespace: row.Namespace },
  );
}

/** Do one thing to each row; say how each went. */
async function each(rows, run) {
  const results = await Promise.allSettled(rows.map(run));
  const failed = results.flatMap((result, at) => (result.status === "rejected" ? [`${rows[at].ID}: ${result.reason.message}`] : []));
  for (const text of failed.slice(0, 5)) toast(text, "bad");
  if (failed.length > 5) toast(`${failed.length - 5} more failed`, "bad");
  return { done: rows.length - failed.length, failed: failed.length };
}

function bulkAction(kind, rows, clear) {
  const what = BULK[kind];
  return {
    label: `${what.label} ${plural(rows.length, "job")}`,
    danger: what.danger,
    question: `${what.label}: ${rows
      .slice(0, 12)
      .map((row) => row.ID)
      .join(", ")}${rows.length > 12 ? ` and ${rows.length - 12} more` : ""}.`,
    unavailable: rows.map((row) => missing(what.needs, row.Namespace)).find(Boolean),
    command: () =>
      rows
        .map((row) => command(what.words, { namespace: row.Namespace === "default" ? "" : row.Namespace, ...what.flags }, [row.ID]))
        .join("\n"),
    run: async () => {
      const { done } = await each(rows, what.run);
      toast(`${what.label}: ${plural(done, "job")}`);
      clear();
    },
  };
}

function Views() {
  const views = settings.value.views;
  const save = () =>
    ask(
      /** @type {any} */ ({
        label: "Save this view",
        fields: [{ name: "name", label: "Name", required: true }],
        command: () => `# ${location.href}`,
        run: async ({ name }) =>
          choose({ views: [...views.filter((view) => view.name !== name), { name, url: location.pathname + location.search }] }),
      }),
    );
  return html`
    <details class="facet" name="facet">
      <summary>Views ▾</summary>
      <div>
        ${views.map(
          (view) => html`<span key=${view.name}><a href=${view.url}>${plain(view.name)}</a>
          <button class="quiet" aria-label=${`Forget view ${view.name}`}
            onClick=${() => choose({ views: views.filter((saved) => saved !== view) })}>✕</button></span>`,
        )}
        <button onClick=${save}>Save this view</button>
      </div>
    </details>
  `;
}

/** A list of jobs with its filters; children of `parent` where one is given. */
export function JobList({ parent = /** @type {string|undefined} */ (undefined), main = true }) {
  const { list, sort } = useJobs(parent);
  const [picked, setPicked] = useState(new Set());
  const rows = list.rows.filter((row) => picked.has(`${row.Namespace}\n${row.ID}`));
  useKeys([{ keys: "F", help: "Filter jobs", run: () => document.getElementById("list-search")?.focus() }]);
  const filtered = query("q") || whereOf(FACETS.map(([name]) => name)).length;
  const empty = list.loading
    ? html`<p class="loading" role="status">Loading…</p>`
    : filtered
      ? html`<${UnknownNamespaces} names=${chosen("Namespace")} /><${Empty}>No job matches. <button
        onClick=${() => setQuery(Object.fromEntries([["q", ""], ...FACETS.map(([name]) => [name, ""])]))}>Clear filters</button><//>`
      : parent === undefined
        ? html`<${Empty}>No jobs. <a
          href=${href([
          "jobs", "run"])}>Write one</a>, or run <code>yurt job init</code> and <code>yurt job run example.nomad.hcl</code>.<//>`
        : html`<${Empty}>No children.<//>`;
  return html`
    <div class="filters">
      <${SearchBox} label="Search or filter jobs" hint=${EXAMPLE} />
      <${Facets} facets=${FACETS} counts=${list.facets} />
      ${parent === undefined
        && html`<label>
        <input type="checkbox" checked=${Boolean(query("children"))}
        onChange=${(event) => setQuery({ children: event.target.checked ? "1" : "" })} /> Children</label>`}
      <${Views} />
      <span class="dim" role="status">${plural(list.total, "job")}</span>
    </div>
    <${Chips} facets=${FACETS} />
    ${list.error && html`<${Failure} error=${list.error} retry=${list.reload} />`}
    <${Table} label="Jobs" columns=${JOB_COLUMNS} rows=${list.rows} total=${list.total} keyOf=${(row) => `${row.Namespace}\n${row.ID}`}
      href=${jobHref} sort=${sort}
      onSort=${(next) => setQuery({ sort: next })} ensure=${list.ensure} selection=${picked} select=${setPicked}
        empty=${list.error ? html`<span></span>` : empty} main=${main} />
    ${
      rows.length > 0 &&
      html`
      <div class="bulk" role="region" aria-label="Selected jobs">
        <span>${plural(rows.length, "job")} selected</span>
        ${Object.keys(BULK).map(
          (kind) =>
            html`<button key=${kind} class=${BULK[kind].danger ? "danger quiet-danger" : ""} onClick=${() => {
              const action = bulkAction(kind, rows, () => setPicked(new Set()));
              if (action.unavailable) toast(action.unavailable, "bad");
              else ask(/** @type {any} */ (action));
            }}>${BULK[kind].label}</button>`,
        )}
        <button class="quiet right" onClick=${() => setPicked(new Set())}>Clear selection</button>
      </div>`
    }
  `;
}

export function Jobs() {
  return html`
    <${Heading} title="Jobs">
      <div class="actions"><a class="button" href="/ui/waiting">What waits</a>
      <button class="primary" onClick=${() => go(href(["jobs", "run"]))}>Run a job</button></div><//>
    <${JobList} />
  `;
}
