/** A system job node by node: where it runs, where it does not. */
import { html, useMemo } from "../../../vendor/preact.js";
import { get } from "../../core/api.js";
import { plain } from "../../core/format.js";
import { toRows } from "../../core/list.js";
import { useData } from "../../core/load.js";
import { jobAllocsTopic } from "../../core/live.js";
import { href } from "../../core/router.js";
import { Empty, Loaded } from "../../parts/page.js";
import { Status } from "../../parts/status.js";
import { LocalTable } from "../../parts/table.js";
import { allocationHref } from "../allocations.js";

const ROWS_MAX = 10000;
const COLUMNS = [
  { id: "node", title: "Node", value: (row) => row.Name, cell: (row) => html`<a href=${href(["nodes", row.ID])}>${plain(row.Name)}</a>` },
  {
    id: "job",
    title: "The job there",
    value: (row) => row.alloc?.Status ?? "not placed",
    cell: (row) => html`<${Status} status=${row.alloc?.Status ?? "not placed"} note=${row.alloc?.Reason} />`,
  },
  {
    id: "alloc",
    title: "Allocation",
    from: /** @type {"md"} */ ("md"),
    cell: (row) => row.alloc && html`<a href=${allocationHref(row.alloc)}>${plain(row.alloc.Name)}</a>`,
  },
  {
    id: "status",
    title: "Node status",
    from: /** @type {"md"} */ ("md"),
    value: (row) => row.Status,
    cell: (row) => html`<${Status} status=${row.Status} />`,
  },
  { id: "dc", title: "Datacenter", from: /** @type {"lg"} */ ("lg"), value: (row) => row.Datacenter,
    cell: (row) => plain(row.Datacenter) },
  { id: "class", title: "Class", from: /** @type {"lg"} */ ("lg"), value: (row) => row.Class, cell: (row) => plain(row.Class) },
];

export function Tab({ job }) {
  const state = useData(
    async (signal) => {
      const [nodes, allocs] = await Promise.all([
        get(
          "/v1/yurt/nodes",
          { where: job.NodePool && job.NodePool !== "all" ? `Pool:${job.NodePool}` : "", per_page: ROWS_MAX },
          { signal },
        ),
        get(
          "/v1/yurt/allocations",
          {
            namespace: job.Namespace,
            job: job.ID,
            sort: "CreateIndex",
            per_page: ROWS_MAX,
            fields: "ID,Namespace,Name,NodeID,Status,Reason",
          },
          { signal },
        ),
      ]);
      return { nodes: toRows(nodes.Columns), allocs: toRows(allocs.Columns) };
    },
    [job.ID, job.Namespace],
    [jobAllocsTopic(job.Namespace, job.ID)],
  );
  return html`<${Loaded} state=${state}>${(data) => html`<${Rows} data=${data} />`}<//>`;
}

function Rows({ data }) {
  const rows = useMemo(() => {
    const newest = new Map(data.allocs.map((alloc) => [alloc.NodeID, alloc]));
    return data.nodes.map((node) => ({ ...node, alloc: newest.get(node.ID) }));
  }, [data]);
  return html`<${LocalTable} name="nodes" label="Nodes" columns=${COLUMNS} rows=${rows} keyOf=${(row) => row.ID}
    href=${(row) => row.alloc && allocationHref(row.alloc)} main=${true} sort="job"
    search=${(row) => `${row.Name} ${row.Datacenter} ${row.Class} ${row.alloc?.Status ?? "not placed"}`}
      empty=${html`<${Empty}>No nodes in the job's pool.<//>`} />`;
}
