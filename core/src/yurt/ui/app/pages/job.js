/** One job: its heading with actions, and tabs. Ids may hold slashes: a last segment that names a tab is the tab. */
import { html } from "../../vendor/preact.js";
import { get, segment } from "../core/api.js";
import { plain } from "../core/format.js";
import { useKeys } from "../core/keys.js";
import { useData } from "../core/load.js";
import { jobTopic } from "../core/live.js";
import { go, href, query } from "../core/router.js";
import { Actions, ask, obstacle } from "../parts/action.js";
import { UnknownNamespaces } from "../parts/facets.js";
import { Heading, Loaded, Tabs } from "../parts/page.js";
import { Status } from "../parts/status.js";
import { toRows } from "../core/list.js";
import { jobActions } from "./job/actions.js";
import { JobSummary } from "./job/summary.js";

const LATER = {
  allocations: () => import("./job/allocations.js"),
  why: () => import("./job/why.js"),
  versions: () => import("./job/versions.js"),
  deployments: () => import("./job/deployments.js"),
  evaluations: () => import("./job/evaluations.js"),
  services: () => import("./job/services.js"),
  definition: () => import("./job/definition.js"),
  scaling: () => import("./job/scaling.js"),
  children: () => import("./job/children.js"),
  commands: () => import("./job/commands.js"),
  logs: () => import("./job/logs.js"),
  timeline: () => import("./job/timeline.js"),
  nodes: () => import("./job/nodes.js"),
};
const NAMES = {
  allocations: "Allocations",
  why: "Why it waits",
  versions: "Versions",
  deployments: "Deployments",
  evaluations: "Evaluations",
  services: "Services",
  definition: "Definition",
  scaling: "Scaling",
  children: "Children",
  commands: "Actions",
  logs: "Logs",
  timeline: "Timeline",
  nodes: "Nodes",
};

/** The parts of an address below `/ui/jobs/`: `web@default/versions`. */
export function readAddress(rest, namespace) {
  const parts = rest.split("/");
  const tab = parts.length > 1 && parts[parts.length - 1] in LATER ? parts.pop() : "";
  const joined = parts.join("/");
  const at = joined.lastIndexOf("@");
  return at > 0 && !namespace
    ? { id: joined.slice(0, at), namespace: joined.slice(at + 1), tab }
    : { id: joined, namespace: namespace || "default", tab };
}

/** The tabs of a job, as its kind and the caller's view of it want. */
function tabsOf(job) {
  const parent = job.Periodic || job.ParameterizedJob;
  const hasCommands = (job.TaskGroups ?? []).some((group) => group.Tasks?.some((task) => task.Actions?.length));
  const ids = [
    "",
    parent && !job.Dispatched ? "children" : "",
    parent ? "" : "allocations",
    "why",
    parent ? "" : "logs",
    "timeline",
    job.Type.startsWith("sys") ? "nodes" : "",
    job.Type === "service" || job.Type === "system" ? "deployments" : "",
    "versions",
    "evaluations",
    parent ? "" : "services",
    "definition",
    job.Type === "service" || job.Type === "batch" ? "scaling" : "",
    hasCommands ? "commands" : "",
  ];
  return /** @type {[string, string][]} */ ([["", "Overview"], ...ids.filter(Boolean).map((id) => [id, NAMES[id]])]);
}

async function load(id, namespace, signal) {
  const options = { signal };
  const [job, rows] = await Promise.all([
    get(`/v1/job/${segment(id)}`, { namespace }, options),
    get("/v1/yurt/jobs", { namespace, where: `ID:${id}`, per_page: 1, fields: FIELDS.join(",") }, options).then(
      (list) => toRows(list.Columns)[0],
    ),
  ]);
  return { job, row: rows ?? {} };
}

const FIELDS = [
  "ID",
  "Namespace",
  "Status",
  "Reason",
  "Desired",
  "Running",
  "Starting",
  "Waiting",
  "Failed",
  "Lost",
  "Complete",
  "NeedsPromotion",
  "DeploymentID",
  "DeploymentStatus",
  "WaitingSince",
  "WaitingReasons",
  "ChildrenPending",
  "ChildrenRunning",
  "ChildrenDead",
  "Kind",
];

export function Job({ rest }) {
  const { id, namespace, tab } = readAddress(rest, query("namespace"));
  const state = useData((signal) => load(id, namespace, signal), [id, namespace], [jobTopic(namespace, id)]);
  const to = (name) => href(["jobs", id, ...(name ? [name] : [])], { namespace: namespace === "default" ? "" : namespace });
  const actions = state.data ? jobActions(state.data.job, state.data.row, state.reload) : [];
  const byName = (label) => {
    const action = actions.find((each) => each && each.label.startsWith(label));
    if (action && !obstacle(action)) ask(action);
  };
  useKeys([
    { keys: "w", help: "Why it waits", run: () => go(to("why")) },
    { keys: "l", help: "Logs of the job", run: () => go(to("logs")) },
    { keys: "d", help: "Versions and differences", run: () => go(to("versions")) },
    { keys: "e", help: "Edit the job", run: () => go(href(["jobs", "run"], { edit: id, namespace })) },
    { keys: "s", help: "Scaling", run: () => go(to("scaling")) },
    { keys: "S", help: "Stop or start the job", run: () => (state.data?.job.Stop ? byName("Start") : byName("Stop")) },
    { keys: "P", help: "Promote the deployment", run: () => byName("Promote") },
    ...[...Array(9).keys()].map((at) => ({
      keys: String(at + 1),
      help: `Tab ${at + 1}`,
      group: "Tabs",
      run: () => state.data && tabsOf(state.data.job)[at] && go(to(tabsOf(state.data.job)[at][0])),
    })),
  ]);
  const job = state.data?.job;
  const crumbs = /** @type {[string, string][]} */ ([
    ["Jobs", "/ui/jobs"],
    ...(job?.ParentID ? [[job.ParentID, href(["jobs", job.ParentID], { namespace })]] : []),
  ]);
  return html`
    <${Heading} title=${job?.Name ?? id} kind="job" crumbs=${crumbs}>
      ${job && html`
        <${Status} status=${state.data.row.Status ?? job.Status} note=${state.data.row.Reason} /><span class="dim">${plain(namespace)}
        </span><${Actions} actions=${actions} />`}
    <//>
    ${state.error?.status === 404 && html`<${UnknownNamespaces} names=${[namespace]} />`}
    <${Loaded} state=${state}>${() => html`
      <${Tabs} tabs=${tabsOf(job)} current=${tab} to=${to} />
      ${tab ? html`<${Later} key=${tab} load=${LATER[tab]} job=${job} row=${state.data.row} reload=${state.reload} />`
        : html`<${JobSummary} job=${job} row=${state.data.row} to=${to} reload=${state.reload} />`}
    `}<//>
  `;
}

/** A tab whose module is loaded when it is first shown. */
export function Later({ load: find, ...rest }) {
  const state = useData(() => find(), [find]);
  return html`<${Loaded} state=${state}>${(module) => html`<${module.Tab} ...${rest} />`}<//>`;
}
