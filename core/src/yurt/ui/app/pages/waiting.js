/** All work that waits, longest first: since when, what is in the way, and the way to the smallest change that helps. */
import { html, useMemo } from "../../vendor/preact.js";
import { count, plain, plural } from "../core/format.js";
import { useList } from "../core/list.js";
import { href, place, query, setQuery } from "../core/router.js";
import { Chips, Facets, SearchBox, textQuery, whereOf } from "../parts/facets.js";
import { Empty, Failure, Heading, When } from "../parts/page.js";
import { Table } from "../parts/table.js";
import { jobHref } from "./jobs.js";

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
    size: "minmax(7rem, 1.5fr)",
    cell: (row) => html`<a href=${jobHref(row)}>${plain(row.Name || row.ID)}</a>`,
  },
  { id: "waiting", title: "Waiting", sort: "Waiting", number: true, size: "5rem", cell: (row) => count(row.Waiting) },
  {
    id: "since",
    title: "Since",
    sort: "WaitingSince",
    number: true,
    size: "6rem",
    cell: (row) => html`<${When} at=${row.WaitingSince} />`,
  },
  {
    id: "reasons",
    title: "In the way",
    size: "minmax(8rem, 3fr)",
    cell: (row) =>
      html`<a href=${whyHref(row)}
        title=${(row.WaitingReasons ?? []).map(plain).join("; ")}>${(row.WaitingReasons ?? []).map(plain).join("; ") || "look"}</a>`,
  },
  { id: "pool", title: "Pool", sort: "NodePool", from: "md", size: "8rem", cell: (row) => plain(row.NodePool) },
  { id: "namespace", title: "Namespace", sort: "Namespace", from: "lg", size: "8rem", cell: (row) => plain(row.Namespace) },
  { id: "priority", title: "Priority", sort: "Priority", from: "md", number: true, size: "5rem", cell: (row) => row.Priority },
];

export function Waiting() {
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
    <${Heading} title="What waits" crumbs=${[["Jobs", "/ui/jobs"]]} />
    <div class="filters"><${SearchBox} label="Search what waits" /><${Facets} facets=${FACETS} counts=${list.facets} />
      <span class="dim" role="status">${plural(list.total, "job")}</span></div>
    <${Chips} facets=${FACETS} />
    ${list.error && html`<${Failure} error=${list.error} retry=${list.reload} />`}
    <${Table} label="Jobs that wait" columns=${COLUMNS} rows=${list.rows} total=${list.total}
      keyOf=${(row) => `${row.Namespace}\n${row.ID}`} href=${whyHref} sort=${sort} onSort=${(next) => setQuery({ sort: next })}
      ensure=${list.ensure} main=${true}
      empty=${list.loading ? html`<p class="loading" role="status">Loading…</p>`
        : html`<${Empty}>Nothing waits: every allocation that is wanted has a place.<//>`} />
  `;
}
