/**
 * All work that waits, longest first: since when, what blocks it, and a link to the smallest change that helps; and the queues of
 * node pools, with the place of each job and when it is expected to start.
 */
import { html, useMemo } from "../../vendor/preact.js";
import { get } from "../core/api.js";
import { count, plain, plural } from "../core/format.js";
import { useList } from "../core/list.js";
import { useData } from "../core/load.js";
import { useQueues } from "../core/queue.js";
import { href, jobHref, place, query, setQuery } from "../core/router.js";
import { Chips, Facets, SearchBox, textQuery, whereOf } from "../parts/facets.js";
import { Empty, Failure, Heading, Section, When } from "../parts/page.js";
import { LocalTable, Table } from "../parts/table.js";

const FACETS = /** @type {[string, string][]} */ ([
  ["Namespace", "Namespace"],
  ["NodePool", "Pool"],
  ["Type", "Type"],
]);
const FIELDS = [
  "ID",
  "Namespace",
  "Name",
  "Type",
  "Status",
  "Waiting",
  "Desired",
  "Running",
  "NodePool",
  "Priority",
  "WaitingSince",
  "WaitingReasons",
];
const whyHref = (row) => href(["jobs", row.ID, "why"], { namespace: row.Namespace === "default" ? "" : row.Namespace });

/** @type {import("../parts/table.js").Column[]} */
const COLUMNS = [
  {
    id: "name",
    title: "Job",
    sort: "ID",
    size: "minmax(4.5rem, 1.5fr)",
    cell: (row) => html`<a href=${jobHref(row)}>${plain(row.Name || row.ID)}</a>`,
  },
  { id: "waiting", title: "Waiting", sort: "Waiting", number: true, from: "md", size: "5rem", cell: (row) => count(row.Waiting) },
  {
    id: "since",
    title: "Since",
    sort: "WaitingSince",
    number: true,
    size: "4.5rem",
    cell: (row) => html`<${When} at=${row.WaitingSince} />`,
  },
  {
    id: "reasons",
    title: "Blocked by",
    size: "minmax(11rem, 3fr)",
    cell: (row) =>
      html`<a href=${whyHref(row)}
        title=${(row.WaitingReasons ?? []).map(plain).join("; ")}>${(row.WaitingReasons ?? []).map(plain).join("; ") || "look"}</a>`,
  },
  { id: "pool", title: "Pool", sort: "NodePool", from: "md", size: "8rem", cell: (row) => plain(row.NodePool) },
  { id: "namespace", title: "Namespace", sort: "Namespace", from: "lg", size: "8rem", cell: (row) => plain(row.Namespace) },
  { id: "priority", title: "Priority", sort: "Priority", from: "md", number: true, size: "5rem", cell: (row) => row.Priority },
];

const queueWhy = (job) => whyHref({ ID: job.JobID, Namespace: job.Namespace });
const starts = (at) => (at > 0 ? html`<${When} at=${at} />` : html`<span class="dim">not known</span>`);

/** @type {import("../parts/table.js").Column[]} */
const QUEUE_COLUMNS = [
  { id: "pool", title: "Pool", value: (job) => job.Pool, size: "minmax(5rem, 1fr)", cell: (job) => plain(job.Pool) },
  { id: "position", title: "Place", value: (job) => job.Position, number: true, size: "4rem", cell: (job) => job.Position + 1 },
  {
    id: "job",
    title: "Job",
    value: (job) => job.JobID,
    size: "minmax(7rem, 2fr)",
    cell: (job) => html`<a href=${queueWhy(job)}>${plain(job.JobID)}</a>`,
  },
  { id: "reason", title: "Reason", from: "md", size: "minmax(8rem, 3fr)", cell: (job) => html`<span title=${plain(job.Reason)}>
    ${plain(job.Reason)}</span>` },
  { id: "start", title: "Likely start", value: (job) => job.ExpectedStart, size: "7rem", cell: (job) => starts(job.ExpectedStart) },
  { id: "by", title: "In 4 of 5 cases by", from: "lg", value: (job) => job.ExpectedBy, size: "9rem",
    cell: (job) => starts(job.ExpectedBy) },
  { id: "latest", title: "At the latest", from: "lg", value: (job) => job.LatestStart, size: "8rem",
    cell: (job) => starts(job.LatestStart) },
];

/** The jobs in the queues of all node pools; nothing where no pool has a queue. */
function Queues({ queues }) {
  if (!queues.jobs.length) return null;
  return html`
    <${Section} title="Queues of node pools" note="batch jobs in the order in which they are placed">
      <${LocalTable} name="queue" label="Queues" columns=${QUEUE_COLUMNS} rows=${queues.jobs}
        keyOf=${(job) => `${job.Namespace}\n${job.JobID}`}
        href=${queueWhy} search=${(job) => `${job.Pool} ${job.JobID} ${job.Namespace} ${job.Reason}`} />
    <//>
  `;
}

export function Waiting() {
  const pools = useData((signal) => get("/v1/node/pools", {}, { signal }), []);
  const queues = useQueues((pools.data ?? []).map((pool) => pool.Name).filter((name) => name !== "all"));
  const address = place.value.query.toString();
  const sort = query("sort", "-Priority,WaitingSince");
  const wanted = useMemo(() => {
    const { search, filter } = textQuery(query("q"));
    return {
      namespace: "*",
      where: whereOf(FACETS.map(([name]) => name)),
      search,
      filter: filter ? `Waiting != 0 and (${filter})` : "Waiting != 0",
    };
  }, [address]);
  const list = useList({ kind: "jobs", query: wanted, fields: FIELDS, facets: FACETS.map(([name]) => name), sort });
  return html`
    <${Heading} title="What waits" crumbs=${[["Jobs", "/ui/jobs"]]}>
      <div class="actions"><a class="button" href="/ui/what-if">What if</a></div><//>
    <div class="filters"><${SearchBox} label="Search what waits" /><${Facets} facets=${FACETS} counts=${list.facets} />
      <span class="dim" role="status">${plural(list.total, "job")}</span></div>
    <${Chips} facets=${FACETS} />
    ${list.error && html`<${Failure} error=${list.error} retry=${list.reload} />`}
    <${Table} label="Jobs that wait" columns=${COLUMNS} rows=${list.rows} total=${list.total}
      keyOf=${(row) => `${row.Namespace}\n${row.ID}`} href=${whyHref} sort=${sort} onSort=${(next) => setQuery({ sort: next })}
      ensure=${list.ensure} main=${true}
      empty=${list.loading ? html`<p class="loading" role="status">Loading…</p>`
        : html`<${Empty}>Nothing waits: every allocation that is wanted has a place.<//>`} />
    <${Queues} queues=${queues} />
  `;
}
