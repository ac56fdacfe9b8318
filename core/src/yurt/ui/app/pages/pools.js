/** Node pools. */
import { html } from "../../vendor/preact.js";
import { segment } from "../core/api.js";
import { command, plain } from "../core/format.js";
import { href } from "../core/router.js";
import { Objects } from "../parts/objects.js";
import { Heading } from "../parts/page.js";

/** @type {import("../parts/objects.js").Kind} */
const POOL = {
  noun: "node pool",
  list: "/v1/node/pools",
  path: (row) => `/v1/node/pool/${segment(row.Name)}`,
  write: (row) => `/v1/node/pool/${segment(row.Name ?? "")}`,
  idOf: (row) => row.Name,
  needs: "node_pool:write",
  fresh: { Name: "", Description: "", Meta: {}, SchedulerConfiguration: null },
  fixed: (row) => row.Name === "default" || row.Name === "all",
  command: (verb, row) =>
    verb === "delete" ? command(["node", "pool", "delete"], {}, [row.Name]) : command(["node", "pool", "apply"], {}, ["pool.hcl"]),
  columns: [
    {
      id: "name",
      title: "Pool",
      value: (row) => row.Name,
      cell: (row) => html`<a href=${href(["nodes"], row.Name === "all" ? {} : { Pool: row.Name })}>${plain(row.Name)}</a>`,
    },
    { id: "description", title: "Description", from: "md", cell: (row) => plain(row.Description) },
    {
      id: "scheduler",
      title: "Algorithm",
      from: "md",
      size: "9rem",
      cell: (row) => plain(row.SchedulerConfiguration?.SchedulerAlgorithm ?? "of the cluster"),
    },
    {
      id: "jobs",
      title: "Jobs",
      from: "md",
      size: "5rem",
      cell: (row) => html`<a href=${href(["jobs"], { NodePool: row.Name })}>Jobs</a>`,
    },
  ],
};

export const Pools = () => html`<${Heading} title="Node pools" /><${Objects} kind=${POOL} />`;
