/** All deployments: those in progress first. */
import { html, useMemo } from "../../vendor/preact.js";
import { get } from "../core/api.js";
import { plain } from "../core/format.js";
import { useData } from "../core/load.js";
import { anyJob } from "../core/live.js";
import { href } from "../core/router.js";
import { Id } from "../parts/copy.js";
import { Empty, Heading, Loaded } from "../parts/page.js";
import { Status } from "../parts/status.js";
import { LocalTable } from "../parts/table.js";

const PAGE = 500;
const ACTIVE = ["running", "paused", "pending", "blocked", "unblocking", "initializing"];
const jobHref = (row) => href(["jobs", row.JobID, "deployments"], { namespace: row.Namespace === "default" ? "" : row.Namespace });
const health = (row) =>
  Object.values(row.TaskGroups ?? {}).reduce((sum, group) => [sum[0] + group.HealthyAllocs, sum[1] + group.DesiredTotal], [0, 0]);

const COLUMNS = [
  { id: "id", title: "ID", from: /** @type {"md"} */ ("md"), size: "7.5rem", cell: (row) => html`<${Id} id=${row.ID} />` },
  {
    id: "job",
    title: "Job",
    value: (row) => row.JobID,
    size: "minmax(7rem, 2fr)",
    cell: (row) => html`<a href=${jobHref(row)}>${plain(row.JobID)}</a>`,
  },
  {
    id: "status",
    title: "Status",
    value: (row) => `${ACTIVE.includes(row.Status) ? 0 : 1}${row.Status}`,
    size: "8rem",
    cell: (row) => html`<${Status} status=${row.Status} note=${row.StatusDescription} />`,
  },
  {
    id: "version",
    title: "Version",
    from: /** @type {"md"} */ ("md"),
    value: (row) => row.JobVersion,
    number: true,
    size: "5rem",
    cell: (row) => row.JobVersion,
  },
  {
    id: "healthy",
    title: "Healthy",
    from: /** @type {"md"} */ ("md"),
    number: true,
    size: "6rem",
    cell: (row) => health(row).join(" of "),
  },
  {
    id: "text",
    title: "Description",
    from: /** @type {"lg"} */ ("lg"),
    size: "minmax(8rem, 3fr)",
    cell: (row) => plain(row.StatusDescription),
  },
  { id: "created", title: "Index", value: (row) => row.CreateIndex, number: true, size: "5rem", cell: (row) => row.CreateIndex },
];

export function Deployments() {
  const state = useData(
    (signal) => get("/v1/deployments", { namespace: "*", per_page: PAGE, reverse: true }, { signal }), [], [anyJob()]);
  return html`<${Heading} title="Deployments" /><${Loaded} state=${state}>${(found) => html`<${Rows} found=${found ?? []} />`}<//>`;
}

function Rows({ found }) {
  const rows = useMemo(
    () => [...found]
      .sort((a, b) => Number(ACTIVE.includes(b.Status)) - Number(ACTIVE.includes(a.Status)) || b.CreateIndex - a.CreateIndex),
    [found],
  );
  return html`
    ${found.length === PAGE && html`<p class="dim">The newest ${PAGE}.</p>`}
    <${LocalTable} name="deployments" label="Deployments" columns=${COLUMNS} rows=${rows} keyOf=${(row) => row.ID} href=${jobHref}
      search=${(row) => `${row.JobID} ${row.Status} ${row.ID}`} main=${true} empty=${html`<${Empty}>No deployments.<//>`} />
  `;
}
