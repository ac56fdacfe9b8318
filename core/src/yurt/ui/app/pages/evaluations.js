/** Evaluations: the list, one with its relatives as a graph, what it could not place, and its replay step by step. */
import { html } from "../../vendor/preact.js";
import { call, get } from "../core/api.js";
import { command, count, plain, plural, short } from "../core/format.js";
import { useData, useInterval } from "../core/load.js";
import { href, query, setQuery } from "../core/router.js";
import { CodeView } from "../parts/editor.js";
import { Id } from "../parts/copy.js";
import { EvaluationGraph } from "../parts/graph.js";
import { Empty, Facts, Heading, Loaded, Section, Tabs, Time, When } from "../parts/page.js";
import { Status } from "../parts/status.js";
import { LocalTable } from "../parts/table.js";
import { allocationHref } from "./allocations.js";
import { Replay } from "./replay.js";

const PAGE = 200;
const STEP_S = 10;
const TRIGGERS = [
  "job-register",
  "job-deregister",
  "periodic-job",
  "node-update",
  "node-drain",
  "alloc-stop",
  "scheduled",
  "rolling-update",
  "deployment-watcher",
  "failed-follow-up",
  "max-plan-attempts",
  "alloc-failure",
  "queued-allocs",
  "preemption",
  "job-scaling",
  "max-disconnect-timeout",
  "reconnect",
];

export const evaluationHref = (row) => href(["evaluations", row.ID]);

/** @type {import("../parts/table.js").Column[]} */
export const EVALUATION_COLUMNS = [
  { id: "id", title: "ID", size: "7.5rem", cell: (row) => html`<${Id} id=${row.ID} href=${evaluationHref(row)} />` },
  {
    id: "status",
    title: "Status",
    value: (row) => row.Status,
    size: "7rem",
    cell: (row) => html`<${Status} status=${row.Status} note=${row.StatusDescription} />`,
  },
  {
    id: "job",
    title: "Job",
    value: (row) => row.JobID,
    from: "md",
    cell: (row) =>
      row.JobID
        ? html`<a href=${href(["jobs", row.JobID], { namespace: row.Namespace === "default" ? "" : row.Namespace })}>${plain(row.JobID)}
          </a>`
        : "",
  },
  { id: "trigger", title: "Trigger", value: (row) => row.TriggeredBy, cell: (row) => plain(row.TriggeredBy) },
  {
    id: "failures",
    title: "Not placed",
    value: (row) => Object.keys(row.FailedTGAllocs ?? {}).length,
    from: "md",
    cell: (row) =>
      Object.keys(row.FailedTGAllocs ?? {})
        .map(plain)
        .join(", "),
  },
  { id: "priority", title: "Priority", value: (row) => row.Priority, from: "lg", number: true, size: "5rem",
    cell: (row) => row.Priority },
  {
    id: "created",
    title: "Created",
    value: (row) => row.CreateTime || row.CreateIndex,
    number: true,
    size: "7rem",
    cell: (row) => html`<${When} at=${row.CreateTime} />`,
  },
];

const expression = (terms) =>
  terms
    .filter(([, value]) => value)
    .map(([name, value]) => `${name} == ${JSON.stringify(value)}`)
    .join(" and ");

function Choice({ name, label, options }) {
  return html`<label>
    ${label} <select value=${query(name)}
    onChange=${(event) => setQuery({ [name]: event.target.value, after: "" })}><option value="">all</option>
    ${options.map((each) => html`<option key=${each} value=${each} selected=${query(name) === each}>${each}</option>`)}</select></label>`;
}

export function Evaluations() {
  const filter = expression([
    ["Status", query("status")],
    ["TriggeredBy", query("trigger")],
    ["Type", query("type")],
  ]);
  const job = query("job");
  const after = query("after");
  const state = useData(
    async (signal) => {
      const { data, next } = await call("GET", "/v1/evaluations", {
        query: { namespace: query("namespace") || "*", filter, job, per_page: PAGE, next_token: after, reverse: true },
        signal,
      });
      return { rows: data ?? [], next };
    },
    [filter, job, after, query("namespace")],
  );
  useInterval(state.reload, STEP_S);
  return html`
    <${Heading} title="Evaluations" />
    <div class="filters">
      <${Choice} name="status" label="Status" options=${["pending", "blocked", "complete", "failed", "canceled"]} />
        <${Choice} name="trigger" label="Trigger" options=${TRIGGERS} />
        <${Choice} name="type" label="Type" options=${["service", "batch", "system", "sysbatch", "_core"]} />
      <input type="search" aria-label="Job" placeholder="Job id" value=${job}
        onChange=${(event) => setQuery({ job: event.target.value, after: "" })} /><button onClick=${state.reload}>Refresh</button>
    </div>
    <${Loaded} state=${state}>${({ rows, next }) => html`
      <${LocalTable} name="evals" label="Evaluations" columns=${EVALUATION_COLUMNS} rows=${rows} keyOf=${(row) => row.ID}
        href=${evaluationHref} search=${(row) => `${row.ID} ${row.JobID}`} sort="-created" main=${true}
        empty=${html`<${Empty}>No evaluation matches; they are collected some time after they end.<//>`} />
      <p class="buttons">${after && html`<button onClick=${() => setQuery({ after: "" }, { replace: false })}>First page</button>`}
        ${next && html`<button onClick=${() => setQuery({ after: next }, { replace: false })}>Next ${PAGE}</button>`}</p>
    `}<//>
  `;
}

function Failures({ failed }) {
  const groups = Object.entries(failed ?? {});
  if (!groups.length) return null;
  return html`
    <${Section} title="Not placed">${groups.map(
      ([name, metric]) => html`
      <h3 key=${name}>${plain(name)} <small class="dim">${plural((metric.CoalescedFailures ?? 0) + 1, "allocation")}</small></h3>
      <${Facts} facts=${[
        ["Nodes looked at", count(metric.NodesEvaluated)],
        ["filtered", count(metric.NodesFiltered)],
        ["without room", count(metric.NodesExhausted)],
        ...Object.entries({
          ...metric.ConstraintFiltered,
          ...metric.ClassFiltered,
          ...metric.DimensionExhausted,
          ...metric.ClassExhausted,
        }).map(([text, number]) => [text, plural(number, "node")]),
        ["quota", (metric.QuotaExhausted ?? []).join(", ")],
      ]} />`,
    )}<//>
  `;
}

const TABS = /** @type {[string, string][]} */ ([
  ["", "Overview"],
  ["replay", "Replay"],
  ["json", "JSON"],
]);

export function Evaluation({ id }) {
  const state = useData(
    async (signal) => {
      const row = await get(`/v1/evaluation/${id}`, { namespace: "*", related: true }, { signal });
      const allocs = await get(`/v1/evaluation/${row.ID}/allocations`, { namespace: row.Namespace }, { signal }).catch(() => []);
      return { row, allocs: allocs ?? [] };
    },
    [id],
  );
  const row = state.data?.row;
  const tab = query("tab");
  return html`
    <${Heading} title=${`Evaluation ${short(id)}`} kind="evaluation"
      crumbs=${[["Evaluations", "/ui/evaluations"],
      ...(row?.JobID ? [[row.JobID, href(["jobs", row.JobID], { namespace: row.Namespace })]] : [])]}>
      ${row && html`<${Status} status=${row.Status} /><${Id} id=${row.ID} />`}
    <//>
    <${Tabs} tabs=${TABS} current=${tab} to=${(name) => href(["evaluations", id], { tab: name })} />
    <${Loaded} state=${state}>${({ allocs }) =>
      tab === "json"
        ? html`<${CodeView} text=${JSON.stringify(row, null, 2)} language="json" label="Evaluation" />`
        : tab === "replay"
          ? html`<${Replay} evaluation=${row} />`
          : html`
      <${Section} title="Facts"><${Facts} facts=${[
        ["Trigger", row.TriggeredBy],
        ["Status", row.StatusDescription],
        ["Type", row.Type],
        ["Priority", String(row.Priority)],
        ["Created", html`<${Time} at=${row.CreateTime} />`],
        ["Changed", html`<${Time} at=${row.ModifyTime} />`],
        ["Node", row.NodeID && html`<a href=${href(["nodes", row.NodeID])}>${short(row.NodeID)}</a>`],
        ["Wait until", row.WaitUntil && !String(row.WaitUntil).startsWith("0001") && html`<${Time} at=${new Date(row.WaitUntil)} />`],
      ]} /><//>
      <${Failures} failed=${row.FailedTGAllocs} />
      ${Object.keys(row.FailedTGAllocs ?? {}).length > 0
        && html`<p><a href=${href(["jobs", row.JobID, "why"], { namespace: row.Namespace })}>Why, and what would help</a></p>`}
      <${Section} title="Related evaluations"><${EvaluationGraph} current=${row} related=${row.RelatedEvals ?? []} /><//>
      <${Section} title="Allocations it placed or changed">
        ${allocs.length
        ? html`<ul class="list">
        ${allocs.map(
        (alloc) => html`
        <li key=${alloc.ID}><${Status} status=${alloc.ClientStatus} /> <a href=${allocationHref(alloc)}>${plain(alloc.Name)}
        </a> <span class="dim">on ${plain(alloc.NodeName)}</span></li>`)}</ul>` : html`<${Empty}>None.<//>`}<//>
      <p class="dim"><code>${command(["eval", "status"], {}, [row.ID])}</code></p>
    `}<//>
  `;
}
