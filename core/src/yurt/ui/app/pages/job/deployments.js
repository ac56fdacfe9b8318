/** A job's deployments: groups with canaries and health, their allocations, promote, fail, pause. */
import { html, useState } from "../../../vendor/preact.js";
import { get, segment } from "../../core/api.js";
import { plain } from "../../core/format.js";
import { useData } from "../../core/load.js";
import { jobTopic } from "../../core/live.js";
import { Actions } from "../../parts/action.js";
import { Id } from "../../parts/copy.js";
import { Empty, Loaded, Section } from "../../parts/page.js";
import { Status } from "../../parts/status.js";
import { LocalTable } from "../../parts/table.js";
import { allocationHref } from "../allocations.js";
import { deploymentActions } from "./actions.js";
import { DeploymentGroups } from "./summary.js";

const needsPromotion = (deployment) =>
  Object.values(deployment.TaskGroups ?? {}).some((group) => group.DesiredCanaries > 0 && !group.Promoted);
const COLUMNS = [
  { id: "id", title: "Allocation", size: "9rem", cell: (alloc) => html`<${Id} id=${alloc.ID} href=${allocationHref(alloc)} />` },
  { id: "group", title: "Group", from: "md", value: (alloc) => alloc.TaskGroup, cell: (alloc) => plain(alloc.TaskGroup) },
  {
    id: "status",
    title: "Status",
    value: (alloc) => alloc.ClientStatus,
    cell: (alloc) => html`<${Status} status=${alloc.ClientStatus} />`,
  },
  {
    id: "canary",
    title: "Canary",
    from: "md",
    value: (alloc) => Boolean(alloc.DeploymentStatus?.Canary),
    cell: (alloc) => (alloc.DeploymentStatus?.Canary ? "canary" : ""),
  },
  {
    id: "health",
    title: "Health",
    value: (alloc) => alloc.DeploymentStatus?.Healthy,
    cell: (alloc) =>
      html`<${Status}
        status=${alloc.DeploymentStatus?.Healthy === true ? "healthy" : alloc.DeploymentStatus?.Healthy === false ? "unhealthy"
        : "pending"} />`,
  },
  { id: "node", title: "Node", from: "md", value: (alloc) => alloc.NodeName, cell: (alloc) => plain(alloc.NodeName) },
];

function Allocations({ deployment }) {
  const state = useData(
    (signal) => get(`/v1/deployment/allocations/${deployment.ID}`, { namespace: deployment.Namespace }, { signal }),
    [deployment.ID, deployment.ModifyIndex],
  );
  return html`<${Loaded}
    state=${state}>
    ${(rows) => html`
    <${LocalTable} name=${`d${deployment.ID.slice(0, 4)}`} label="Allocations of the deployment" columns=${COLUMNS} rows=${rows}
    keyOf=${(alloc) => alloc.ID} href=${allocationHref} />`}<//>`;
}

function Deployment({ job, deployment, reload, first }) {
  const [open, setOpen] = useState(first);
  const actions = deploymentActions(
    job,
    deployment.ID,
    deployment.Status,
    needsPromotion(deployment) && deployment.Status === "running",
    reload,
  );
  return html`
    <${Section} title=${`Deployment ${deployment.ID.slice(0, 8)}`}
      note=${html`version ${deployment.JobVersion} · <${Status} status=${deployment.Status} /> ${plain(deployment.StatusDescription)}`}
      tools=${html`<${Actions} actions=${actions} />`}>
      <${DeploymentGroups} deployment=${deployment} />
      <p><button aria-expanded=${open} onClick=${() => setOpen(!open)}>Allocations</button></p>
      ${open && html`<${Allocations} deployment=${deployment} />`}
    <//>
  `;
}

export function Tab({ job, reload }) {
  const state = useData(
    (signal) => get(`/v1/job/${segment(job.ID)}/deployments`, { namespace: job.Namespace }, { signal }),
    [job.ID, job.Namespace],
    [jobTopic(job.Namespace, job.ID)],
  );
  const again = () => {
    state.reload();
    reload();
  };
  return html`
    <${Loaded} state=${state}>${(rows) => {
      const sorted = [...(rows ?? [])].sort((a, b) => b.CreateIndex - a.CreateIndex);
      return sorted.length
        ? sorted.map((each, at) => html`<${Deployment} key=${each.ID} job=${job} deployment=${each} reload=${again} first=${at === 0} />`)
        : html`<${Empty}>No deployments. A service job has one for each version.<//>`;
    }}<//>
  `;
}
