/** All nodes: status, reserved and available resources, filters with counts, actions on many. */
import { html, useMemo, useState } from "../../vendor/preact.js";
import { put } from "../core/api.js";
import { command, count, mebibytes, plain, plural } from "../core/format.js";
import { useList } from "../core/list.js";
import { href, place, query, setQuery } from "../core/router.js";
import { missing } from "../core/session.js";
import { ask } from "../parts/action.js";
import { Chips, Facets, SearchBox, textQuery, whereOf } from "../parts/facets.js";
import { Empty, Failure, Heading } from "../parts/page.js";
import { Meter, Status } from "../parts/status.js";
import { Table } from "../parts/table.js";
import { toast } from "../parts/toast.js";
import { drainCommand, drainFields, startDrain } from "./node/drain.js";

const FACETS = /** @type {[string, string][]} */ ([
  ["Status", "Status"],
  ["Pool", "Pool"],
  ["Datacenter", "Datacenter"],
  ["Class", "Class"],
  ["Version", "Version"],
]);
const FIELDS = [
  "ID",
  "Name",
  "Status",
  "Pool",
  "Datacenter",
  "Class",
  "Allocations",
  "CPU",
  "CPUUsed",
  "MemoryMB",
  "MemoryUsedMB",
  "DiskMB",
  "DiskUsedMB",
  "Cards",
  "CardsUsed",
  "VRAMMB",
  "VRAMUsedMB",
  "Version",
  "Address",
  "LastEvent",
  "HostVolumes",
];

export const nodeHref = (row) => href(["nodes", row.ID]);

/** @type {import("../parts/table.js").Column[]} */
const COLUMNS = [
  {
    id: "name",
    title: "Node",
    sort: "Name",
    size: "minmax(7rem, 1.5fr)",
    cell: (row) => html`<a href=${nodeHref(row)} title=${row.ID}>${plain(row.Name)}</a>`,
  },
  {
    id: "status",
    title: "Status",
    sort: "Status",
    size: "minmax(6.5rem, 8rem)",
    cell: (row) => html`<${Status} status=${row.Status} note=${row.LastEvent} />`,
  },
  { id: "pool", title: "Pool", sort: "Pool", from: "md", size: "minmax(5rem, 1fr)", cell: (row) => plain(row.Pool) },
  { id: "dc", title: "Datacenter", sort: "Datacenter", from: "lg", size: "minmax(5rem, 1fr)", cell: (row) => plain(row.Datacenter) },
  { id: "class", title: "Class", sort: "Class", from: "xl", size: "minmax(5rem, 1fr)", cell: (row) => plain(row.Class) },
  { id: "address", title: "Address", sort: "Address", from: "xl", size: "10rem", cell: (row) => plain(row.Address) },
  { id: "volumes", title: "Volumes", from: "xl", size: "5rem", number: true, cell: (row) => row.HostVolumes?.length ?? 0 },
  { id: "allocs", title: "Allocs", sort: "Allocations", size: "4rem", number: true, cell: (row) => row.Allocations },
  {
    id: "cpu",
    title: "CPU",
    sort: "CPUUsed",
    from: "md",
    size: "minmax(10rem, 1.4fr)",
    cell: (row) =>
      html`<${Meter} label="CPU" used=${row.CPUUsed} total=${row.CPU} text=${`${count(row.CPUUsed)} of ${count(row.CPU)}`} />`,
  },
  {
    id: "memory",
    title: "Memory",
    sort: "MemoryUsedMB",
    from: "lg",
    size: "minmax(10rem, 1.4fr)",
    cell: (row) =>
      html`<${Meter} label="Memory" used=${row.MemoryUsedMB} total=${row.MemoryMB}
        text=${`${mebibytes(row.MemoryUsedMB)} of ${mebibytes(row.MemoryMB)}`} />`,
  },
  {
    id: "cards",
    title: "Cards",
    sort: "CardsUsed",
    from: "lg",
    size: "8rem",
    cell: (row) =>
      row.Cards ? html`<${Meter} label="Cards" used=${row.CardsUsed} total=${row.Cards} text=${`${row.CardsUsed} of ${row.Cards}`} />`
        : "",
  },
  { id: "version", title: "Version", sort: "Version", from: "xl", size: "6rem", cell: (row) => plain(row.Version) },
];

const BULK = {
  disable: {
    label: "Take no new allocations",
    fields: [],
    command: (_, id) => command(["node", "eligibility"], { disable: true }, [id]),
    run: (_, id) => put(`/v1/node/${id}/eligibility`, { Eligibility: "ineligible" }),
  },
  enable: {
    label: "Take new allocations",
    fields: [],
    command: (_, id) => command(["node", "eligibility"], { enable: true }, [id]),
    run: (_, id) => put(`/v1/node/${id}/eligibility`, { Eligibility: "eligible" }),
  },
  drain: { label: "Drain", danger: true, fields: drainFields, command: drainCommand, run: startDrain },
};

/** One action on many nodes; how each went is told. */
function bulk(kind, rows, clear) {
  const what = BULK[kind];
  return {
    label: `${what.label}: ${plural(rows.length, "node")}`,
    danger: what.danger,
    question: rows.slice(0, 12).map((row) => row.Name).join(", ") + (rows.length > 12 ? ` and ${rows.length - 12} more` : ""),
    fields: typeof what.fields === "function" ? what.fields() : what.fields,
    command: (values) => rows.map((row) => what.command(values, row.ID)).join("\n"),
    run: async (values) => {
      const results = await Promise.allSettled(rows.map(async (row) => what.run(values, row.ID)));
      const failed = results
        .flatMap((result, at) => (result.status === "rejected" ? [`${rows[at].Name}: ${result.reason.message}`] : []));
      failed.slice(0, 5).forEach((text) => toast(text, "bad"));
      if (failed.length === rows.length) throw new TypeError(failed[0]);
      clear();
    },
  };
}

function Selected({ rows, clear }) {
  if (!rows.length) return null;
  const lacks = missing(["node:write"]);
  return html`
    <div class="bulk" role="region" aria-label="Selected nodes">
      <span>${plural(rows.length, "node")} selected</span>
      ${Object.entries(BULK).map(([kind, what]) => html`
        <button key=${kind} class=${kind === "drain" ? "danger quiet-danger" : ""} aria-disabled=${Boolean(lacks)} title=${lacks}
          onClick=${() => (lacks ? toast(lacks, "bad") : ask(bulk(kind, rows, clear)))}>${what.label}</button>`)}
      <button class="quiet right" onClick=${clear}>Clear selection</button>
    </div>
  `;
}

export function Nodes() {
  const address = place.value.query.toString();
  const sort = query("sort", "Name");
  const wanted = useMemo(() => ({ where: whereOf(FACETS.map(([name]) => name)), ...textQuery(query("q")) }), [address]);
  const list = useList({ kind: "nodes", query: wanted, fields: FIELDS, facets: FACETS.map(([name]) => name), sort });
  const [picked, setPicked] = useState(new Set());
  const empty = list.loading
    ? html`<p class="loading" role="status">Loading…</p>`
    : html`<${Empty}>${query("q") || wanted.where.length ? "No node matches." : "No nodes. An agent with a client registers itself."}
      <//>`;
  return html`
    <${Heading} title="Nodes"><div class="actions"><a class="button" href="/ui/topology">Topology</a></div><//>
    <div class="filters"><${SearchBox} label="Search or filter nodes" hint='Words, or an expression: Class == "gpu" and Cards != 0' />
      <${Facets} facets=${FACETS} counts=${list.facets} /><span class="dim" role="status">${plural(list.total, "node")}</span></div>
    <${Chips} facets=${FACETS} />
    ${list.error && html`<${Failure} error=${list.error} retry=${list.reload} />`}
    <${Table} label="Nodes" columns=${COLUMNS} rows=${list.rows} total=${list.total} keyOf=${(row) => row.ID} href=${nodeHref}
      sort=${sort} onSort=${(next) => setQuery({ sort: next })} ensure=${list.ensure} selection=${picked} select=${setPicked}
      empty=${list.error ? html`<span></span>` : empty} main=${true} />
    <${Selected} rows=${list.rows.filter((row) => picked.has(row.ID))} clear=${() => setPicked(new Set())} />
  `;
}
