/** All allocations, or those of a job or a node: status with its reason, filters with counts, actions on many. */
import { html, useMemo, useState } from "../../vendor/preact.js";
import { put } from "../core/api.js";
import { command, count, mebibytes, plain, plural } from "../core/format.js";
import { useList } from "../core/list.js";
import { href, place, query, setQuery } from "../core/router.js";
import { missing } from "../core/session.js";
import { ask } from "../parts/action.js";
import { Id } from "../parts/copy.js";
import { Chips, Facets, SearchBox, textQuery, whereOf } from "../parts/facets.js";
import { Empty, Failure, Heading, When } from "../parts/page.js";
import { Status } from "../parts/status.js";
import { Table } from "../parts/table.js";
import { toast } from "../parts/toast.js";

const FIELDS = [
  "ID",
  "Namespace",
  "JobID",
  "TaskGroup",
  "Name",
  "NodeID",
  "NodeName",
  "Status",
  "Reason",
  "JobVersion",
  "Restarts",
  "CPU",
  "MemoryMB",
  "Cards",
  "CreateTime",
  "ModifyTime",
  "FailedTask",
  "Tasks",
  "Canary",
];

export const allocationHref = (row) => href(["allocations", row.ID]);

/** @type {import("../parts/table.js").Column[]} */
const COLUMNS = [
  { id: "id", title: "ID", size: "7.5rem", from: "md", cell: (row) => html`<${Id} id=${row.ID} href=${allocationHref(row)} />` },
  {
    id: "name",
    title: "Name",
    sort: "Name",
    size: "minmax(7rem, 1.5fr)",
    cell: (row) => html`<a href=${allocationHref(row)} title=${plain(row.Name)}>${plain(row.Name)}</a>${row.Canary ? " (canary)" : ""}`,
  },
  {
    id: "status",
    title: "Status",
    sort: "Status",
    size: "minmax(6.5rem, 8rem)",
    cell: (row) => html`<${Status} status=${row.Status} note=${row.Reason} />`,
  },
  {
    id: "reason",
    title: "Last event",
    from: "lg",
    size: "minmax(8rem, 2fr)",
    cell: (row) => html`<span class="dim" title=${plain(row.Reason)}>${plain(row.Reason)}</span>`,
  },
  { id: "group", title: "Group", sort: "TaskGroup", from: "xl", size: "8rem", cell: (row) => plain(row.TaskGroup) },
  {
    id: "node",
    title: "Node",
    sort: "NodeName",
    from: "md",
    size: "minmax(6rem, 1fr)",
    cell: (row) => html`<a href=${href(["nodes", row.NodeID])}>${plain(row.NodeName)}</a>`,
  },
  { id: "version", title: "Version", sort: "JobVersion", from: "lg", size: "5rem", number: true, cell: (row) => row.JobVersion },
  { id: "restarts", title: "Restarts", sort: "Restarts", from: "lg", size: "5.5rem", number: true, cell: (row) => row.Restarts },
  {
    id: "books",
    title: "Books",
    sort: "MemoryMB",
    from: "xl",
    size: "10rem",
    number: true,
    cell: (row) => `${count(row.CPU)} MHz, ${mebibytes(row.MemoryMB)}${row.Cards ? `, ${row.Cards} cards` : ""}`,
  },
  {
    id: "changed",
    title: "Changed",
    sort: "ModifyTime",
    size: "6rem",
    number: true,
    cell: (row) => html`<${When} at=${row.ModifyTime} />`,
  },
];

const BULK = {
  restart: {
    label: "Restart",
    danger: false,
    words: ["alloc", "restart"],
    run: (row) => put(`/v1/client/allocation/${row.ID}/restart`, {}, { namespace: row.Namespace }),
  },
  stop: {
    label: "Stop",
    danger: true,
    words: ["alloc", "stop"],
    run: (row) => put(`/v1/allocation/${row.ID}/stop`, {}, { namespace: row.Namespace }),
  },
};

function bulk(kind, rows, clear) {
  const what = BULK[kind];
  return {
    label: `${what.label} ${plural(rows.length, "allocation")}`,
    danger: what.danger,
    question: rows
      .slice(0, 12)
      .map((row) => row.Name)
      .join(", "),
    command: rows.map((row) => command(what.words, {}, [row.ID])).join("\n"),
    run: async () => {
      const results = await Promise.allSettled(rows.map(what.run));
      results.forEach((result, at) => result.status === "rejected" && toast(`${rows[at].Name}: ${result.reason.message}`, "bad"));
      clear();
    },
  };
}

/** @param {{job?: string, node?: string, namespace?: string, main?: boolean}} props */
export function AllocationList({ job = "", node = "", namespace = "*", main = true }) {
  const facets = /** @type {[string, string][]} */ ([
    ["Status", "Status"],
    ["TaskGroup", "Group"],
    ...(job
      ? [["JobVersion", "Version"]]
      : [
          ["JobID", "Job"],
          ["Namespace", "Namespace"],
        ]),
    ...(node ? [] : [["NodeName", "Node"]]),
  ]);
  const address = place.value.query.toString();
  const sort = query("sort", "-CreateTime");
  const wanted = useMemo(
    () => ({ namespace, job, node, where: whereOf(facets.map(([name]) => name)), ...textQuery(query("q")) }),
    [address, job, node, namespace],
  );
  const list = useList({ kind: "allocations", query: wanted, fields: FIELDS, facets: facets.map(([name]) => name), sort });
  const [picked, setPicked] = useState(new Set());
  const rows = list.rows.filter((row) => picked.has(row.ID));
  const filtered = query("q") || wanted.where.length;
  const empty = list.loading
    ? html`<p class="loading" role="status">Loading…</p>`
    : html`<${Empty}>${filtered ? "No allocation matches." : "No allocations."}<//>`;
  return html`
    <div class="filters">
      <${SearchBox} label="Search or filter allocations" hint='Words, or an expression: TaskGroup == "app" and Restarts != 0' />
      <${Facets} facets=${facets} counts=${list.facets} />
      <span class="dim" role="status">${plural(list.total, "allocation")}</span>
    </div>
    <${Chips} facets=${facets} />
    ${list.error && html`<${Failure} error=${list.error} retry=${list.reload} />`}
    <${Table} label="Allocations" columns=${COLUMNS} rows=${list.rows} total=${list.total} keyOf=${(row) => row.ID} href=${allocationHref}
      sort=${sort} onSort=${(next) => setQuery({ sort: next })}
      ensure=${list.ensure} selection=${picked} select=${setPicked} empty=${list.error ? html`<span></span>` : empty} main=${main} />
    ${
      rows.length > 0 &&
      html`
      <div class="bulk" role="region" aria-label="Selected allocations">
        <span>${plural(rows.length, "allocation")} selected</span>
        ${Object.keys(BULK).map(
          (kind) =>
            html`<button key=${kind} class=${BULK[kind].danger ? "danger quiet-danger" : ""} onClick=${() => {
              const reason = rows.map((row) => missing(["alloc-lifecycle"], row.Namespace)).find(Boolean);
              if (reason) toast(reason, "bad");
              else ask(/** @type {any} */ (bulk(kind, rows, () => setPicked(new Set()))));
            }}>${BULK[kind].label}</button>`,
        )}
      </div>`
    }
  `;
}

export const Allocations = () => html`<${Heading} title="Allocations" /><${AllocationList} />`;
