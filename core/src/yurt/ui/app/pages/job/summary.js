/** The first tab of a job: what it is, how it does, and the evidence of what fails. */
import { html } from "../../../vendor/preact.js";
import { get, lines, segment } from "../../core/api.js";
import { count, mebibytes, plain, plural } from "../../core/format.js";
import { toRows } from "../../core/list.js";
import { useData } from "../../core/load.js";
import { jobAllocsTopic } from "../../core/live.js";
import { href } from "../../core/router.js";
import { config, missing } from "../../core/session.js";
import { ActionButton, Actions } from "../../parts/action.js";
import { Ansi } from "../../parts/ansi.js";
import { Markdown, safeLink } from "../../parts/markdown.js";
import { Empty, Facts, Loaded, Section, Time, When } from "../../parts/page.js";
import { Counts, Status } from "../../parts/status.js";
import { deploymentActions } from "./actions.js";
import { allocationHref } from "../allocations.js";
import { scale } from "./scaling.js";

const FIELDS = "ID,Namespace,JobID,TaskGroup,Name,NodeID,NodeName,Status,Reason,FailedTask,ModifyTime,JobVersion,Tasks";
const RECENT = 5;
const LAST_LINES = 5;
const LAST_BYTES = 4096;

async function load(job, signal) {
  const path = `/v1/job/${segment(job.ID)}`;
  const query = { namespace: job.Namespace };
  const [summary, deployment, bad, recent] = await Promise.all([
    get(`${path}/summary`, query, { signal }),
    get(`${path}/deployment`, query, { signal }).catch(() => null),
    get(
      "/v1/yurt/allocations",
      {
        ...query,
        job: job.ID,
        where: ["Status:failed", "Status:lost", "Status:unhealthy", "Status:restarting"],
        // What earlier versions have left behind is over; only what still runs of them counts.
        filter: `JobVersion == ${job.Version} or Status == "unhealthy" or Status == "restarting"`,
        sort: "-ModifyTime",
        per_page: 5,
        fields: FIELDS,
      },
      { signal },
    ),
    get("/v1/yurt/allocations", { ...query, job: job.ID, sort: "-CreateTime", per_page: RECENT, fields: FIELDS }, { signal }),
  ]);
  return { summary, deployment, bad: toRows(bad.Columns), recent: toRows(recent.Columns), total: recent.Total };
}

function Why({ job, row, to }) {
  if (!row.Waiting && !row.WaitingReasons?.length) return null;
  const reasons = (row.WaitingReasons ?? []).map(plain).join("; ");
  return html`
    <div class="note" role="status"><strong>${plural(row.Waiting, "allocation")} wait${row.Waiting === 1 ? "s" : ""}</strong>
      ${row.WaitingSince > 0 && html` since <${When} at=${row.WaitingSince} />`}
        ${reasons ? `: ${reasons}` : ""}. <a href=${to("why")}>Why, and what would help</a></div>
  `;
}

/** What fails, with its last event: the reader should not have to look for it. */
function Evidence({ job, rows }) {
  if (!rows.length) return null;
  return html`
    <${Section} title="What fails">
      <ul class="list">${rows.map(
        (alloc) => html`
        <li key=${alloc.ID}><${Status} status=${alloc.Status} /> <a href=${allocationHref(alloc)}>${plain(alloc.Name)}
          </a> <span class="dim">on ${plain(alloc.NodeName)}, version ${alloc.JobVersion}</span>
          <span>${plain(alloc.Reason)}</span>
          <a class="right"
            href=${href(["allocations", alloc.ID, alloc.FailedTask || alloc.Tasks?.[0] || ""],
            { tab: "logs", type: "stderr" })}>Log</a> <${When} at=${alloc.ModifyTime} /></li>`,
      )}</ul>
      <${LastLines} job=${job} alloc=${rows[0]} />
    <//>
  `;
}

/** The end of the log of what failed last; nothing where there is none, or where the reader may not see it. */
function LastLines({ job, alloc }) {
  const task = alloc.FailedTask || alloc.Tasks?.[0] || "";
  const state = useData(async (signal) => {
    let text = "";
    const wanted = { namespace: job.Namespace, alloc: alloc.ID, task, type: "both", tail: LAST_BYTES };
    for await (const line of lines(`/v1/yurt/job/${segment(job.ID)}/logs`, wanted, signal)) text += line.Text ?? "";
    return text.trimEnd().split("\n").slice(-LAST_LINES).join("\n");
  }, [alloc.ID, task, alloc.ModifyTime]);
  if (!state.data) return null;
  return html`<pre class="code" tabindex="0" aria-label=${`Last lines of ${task}`}><${Ansi} text=${state.data} /></pre>`;
}

/** The newest allocations, with their logs and terminals one click away. */
function Recent({ job, rows, total, to }) {
  const exec = config.value.Exec !== false && !missing(["alloc-exec"], job.Namespace);
  if (!rows.length) return null;
  return html`
    <${Section} title="Newest allocations" tools=${total > rows.length && html`<a href=${to("allocations")}>All ${count(total)}</a>`}>
      <ul class="list">${rows.map((alloc) => {
        const open = (tab) => href(["allocations", alloc.ID, alloc.Tasks?.[0] ?? ""], { tab });
        return html`
          <li key=${alloc.ID}><${Status} status=${alloc.Status} note=${alloc.Reason} />
            <a href=${allocationHref(alloc)}>${plain(alloc.Name)}</a>
            <span class="dim">on <a href=${href(["nodes", alloc.NodeID])}>${plain(alloc.NodeName)}</a>, version ${alloc.JobVersion}</span>
            <span class="right actions"><a href=${open("logs")}>Logs</a>
              ${exec && alloc.Status === "running" && html`<a href=${open("exec")}>Terminal</a>`}<${When} at=${alloc.ModifyTime} /></span>
                </li>`;
      })}</ul>
    <//>
  `;
}

const sum = (group, name) => (group.Tasks ?? []).reduce((total, task) => total + (task.Resources?.[name] ?? 0), 0);

function Groups({ job, summary, to, reload }) {
  const scales = job.Type === "service" || job.Type === "batch";
  return html`
    <${Section} title="Task groups">
      <div class="scroll" tabindex="0"><table class="plain-table">
        <thead><tr><th>Group</th><th>Count</th><th>Allocations</th><th>Reserves for each</th><th>Tasks</th><th></th></tr></thead>
        <tbody>${(job.TaskGroups ?? []).map((group) => {
          const counts = Object.fromEntries(
            Object.entries(summary?.Summary?.[group.Name] ?? {}).map(([name, number]) => [name.toLowerCase(), number]),
          );
          const cards = (group.Tasks ?? []).flatMap((task) => task.Resources?.Devices ?? []);
          return html`<tr key=${group.Name}>
            <td><a href=${`${to("allocations")}${to("").includes("?") ? "&" : "?"}TaskGroup=${encodeURIComponent(group.Name)}`}>
              ${plain(group.Name)}</a></td><td>${group.Count}</td><td><${Counts} counts=${counts} /></td>
            <td class="text">${count(sum(group, "CPU"))} MHz, ${mebibytes(sum(group, "MemoryMB"))}
              ${group.EphemeralDisk ? `, ${mebibytes(group.EphemeralDisk.SizeMB)} disk` : ""}
              ${cards.map((card) => `, ${card.Count} × ${plain(card.Name)}`)}</td>
            <td class="text">${(group.Tasks ?? []).map((task) => `${plain(task.Name)} (${plain(task.Driver)})`).join(", ")}</td>
            <td>${scales && !job.Stop && html`<${ActionButton} action=${scale(job, group.Name, group.Count, reload)} />`}</td></tr>`;
        })}</tbody></table></div>
    <//>
  `;
}

/** A deployment's groups with their placed, healthy and unhealthy allocations. */
export function DeploymentGroups({ deployment }) {
  return html`
    <div class="scroll" tabindex="0"><table class="plain-table">
      <thead><tr><th>Group</th><th>Desired</th><th>Placed</th><th>Healthy</th><th>Unhealthy</th><th>Canaries</th><th>Deadline</th></tr>
        </thead>
      <tbody>${Object.entries(deployment.TaskGroups ?? {}).map(
        ([name, group]) => html`
        <tr key=${name}><td>${plain(name)}</td><td>${group.DesiredTotal}</td><td>${group.PlacedAllocs}</td><td>${group.HealthyAllocs}</td>
          <td>${group.UnhealthyAllocs}</td>
          <td>${group.DesiredCanaries
            ? `${(group.PlacedCanaries ?? []).length} of ${group.DesiredCanaries}${group.Promoted ? ", promoted" : ""}` : "none"}</td>
          <td>${group.RequireProgressBy ? html`<${When} at=${new Date(group.RequireProgressBy)} />` : ""}</td></tr>`,
      )}</tbody></table></div>
  `;
}

function Deployment({ job, deployment, row, reload }) {
  if (!deployment || deployment.JobVersion !== job.Version || deployment.Status === "successful") return null;
  const tools = html`<${Actions} actions=${deploymentActions(job, deployment.ID, deployment.Status, row.NeedsPromotion, reload)} />`;
  return html`
    <${Section} title="Deployment" note=${html`<${Status} status=${deployment.Status} /> ${plain(deployment.StatusDescription)}`}
      tools=${tools}><${DeploymentGroups} deployment=${deployment} /><//>
  `;
}

/** The job's own description and links (`ui` block). */
function Description({ job }) {
  const links = (job.UI?.Links ?? []).map((link) => ({ label: link.Label, to: safeLink(link.URL ?? link.Url) }))
    .filter((link) => link.to);
  if (!job.UI?.Description && !links.length) return null;
  return html`
    <${Section} title="About">
      ${job.UI.Description && html`<${Markdown} text=${job.UI.Description} />`}
      ${links.length > 0
        && html`<p>${links
        .map((link) =>
        html`<a key=${link.to} class="button" href=${link.to} target="_blank"
        rel="noopener noreferrer">${plain(link.label || link.to)} ↗</a> `)}</p>`}
    <//>
  `;
}

function Parent({ job, row, to }) {
  if (!row.Kind) return null;
  const periodic = job.Periodic;
  return html`
    <${Section} title=${row.Kind === "periodic" ? "Periodic" : "Parameterized"} tools=${html`<a href=${to("children")}>All children</a>`}>
      <${Facts} facts=${[
        ["Schedule", periodic && [periodic.Spec, ...(periodic.Specs ?? [])].filter(Boolean).join(", ")],
        ["Time zone", periodic?.TimeZone],
        ["Overlap", periodic && (periodic.ProhibitOverlap ? "prohibited" : "allowed")],
        ["Required metadata", job.ParameterizedJob?.MetaRequired?.join(", ")],
        ["Optional metadata", job.ParameterizedJob?.MetaOptional?.join(", ")],
        ["Payload", job.ParameterizedJob?.Payload],
        ["Children", `${count(row.ChildrenPending)} pending, ${count(row.ChildrenRunning)} running, ${count(row.ChildrenDead)} ended`],
      ]} />
    <//>
  `;
}

function payloadText(payload) {
  try {
    return new TextDecoder().decode(Uint8Array.from(atob(payload), (char) => char.charCodeAt(0)));
  } catch {
    return payload;
  }
}

export function JobSummary({ job, row, to, reload }) {
  const state = useData((signal) => load(job, signal), [job.ID, job.Namespace, job.ModifyIndex], [jobAllocsTopic(job.Namespace, job.ID)]);
  const facts = /** @type {[string, any][]} */ ([
    ["Type", job.Type],
    ["Version", String(job.Version)],
    ["Priority", String(job.Priority)],
    ["Node pool", html`<a href=${href(["nodes"], { Pool: job.NodePool })}>${plain(job.NodePool)}</a>`],
    ["Datacenters", (job.Datacenters ?? []).join(", ")],
    ["Region", job.Region],
    ["Submitted", html`<${Time} at=${job.SubmitTime} />`],
    ["Registered status", job.Status + (job.StatusDescription ? `: ${job.StatusDescription}` : "")],
    ...Object.entries(job.Meta ?? {}).map(([name, value]) => [`meta ${name}`, String(value)]),
  ]);
  return html`
    <${Why} job=${job} row=${row} to=${to} />
    ${row.Reason && html`<p class="dim">${plain(row.Reason)}</p>`}
    <${Loaded} state=${state}>${(data) => html`
      <${Evidence} job=${job} rows=${data.bad} />
      <${Deployment} job=${job} deployment=${data.deployment} row=${row} reload=${reload} />
      ${job.TaskGroups?.length ? html`<${Groups} job=${job} summary=${data.summary} to=${to} reload=${reload} />`
        : html`<${Empty}>No task groups.<//>`}
      <${Recent} job=${job} rows=${data.recent} total=${data.total} to=${to} />
    `}<//>
    <${Parent} job=${job} row=${row} to=${to} />
    <${Description} job=${job} />
    <${Section} title="Facts"><${Facts} facts=${facts} /><//>
    ${job.Payload && html`<${Section} title="Payload"><pre class="code">${plain(payloadText(job.Payload))}</pre><//>`}
  `;
}
