/** The first page: what needs attention, what changed, and how much capacity is left. */
import { html, useEffect, useState } from "../../vendor/preact.js";
import { get } from "../core/api.js";
import { count, mebibytes, plain } from "../core/format.js";
import { useData } from "../core/load.js";
import { onChange } from "../core/live.js";
import { href, jobHref } from "../core/router.js";
import { may } from "../core/session.js";
import { Empty, Heading, Loaded, Section, When } from "../parts/page.js";
import { Meter, Status } from "../parts/status.js";

const ORDER = ["failed", "degraded", "waiting", "deploying", "starting", "running", "complete", "scheduled", "scaled-down", "stopped"];

function Figure({ label, value, to, kind = "" }) {
  return html`<a class="figure" href=${to}><b class=${value ? kind : ""}>${count(value)}</b>${label}</a>`;
}

const PLACES = {
  node: (each) => href(["nodes", each.ID]),
  nodes: () => href(["nodes"]),
  server: () => href(["servers"]),
  authority: () => href(["servers"]),
};
/** What a problem is of, before its name. */
const WORDS = { job: "", authority: "certificate authority ", nodes: "certificates " };

function Attention({ data }) {
  const found = data.Attention ?? [];
  return html`
    <${Section} title="Needs attention" note=${data.AttentionOmitted ? `and ${count(data.AttentionOmitted)} more` : ""}>
      ${
        found.length
          ? html`
        <ul class="list">${found.map(
          (each) => html`
          <li key=${each.Kind + each.Namespace + each.ID}>
            <${Status} status=${each.Status} /> <a
              href=${(PLACES[each.Kind] ?? jobHref)(each)}>${WORDS[each.Kind] ?? `${each.Kind} `}${plain(each.Name || each.ID)}</a>
            <span class="dim">${plain(each.Reason)}</span>
              ${each.Since > 0 && html`<span class="right"><${When} at=${each.Since} /></span>`}
          </li>`,
        )}</ul>`
          : html`<${Empty}>Nothing fails, waits or is lost.<//>`
      }
    <//>
  `;
}

/** Label, field, and how a value reads. @type {[string, string, (value: number) => string][]} */
const RESOURCES = [
  ["CPU", "CPU", (value) => `${count(value)} MHz`],
  ["Memory", "MemoryMB", mebibytes],
  ["Disk", "DiskMB", mebibytes],
  ["Cards", "Cards", count],
  ["Card memory", "VRAMMB", mebibytes],
];

function Pool({ pool }) {
  return html`
    <div class="card">
      <h3><a href=${href(["nodes"], { Pool: pool.Name })}>${plain(pool.Name)}
        </a> <small class="dim">${pool.Ready} of ${pool.Nodes} nodes ready</small></h3>
      <div class="bars">
        ${RESOURCES.filter(([, name]) => pool[name] > 0).map(([label, name, show]) => {
          const used = pool[name.replace(/MB$/, "") + (name.endsWith("MB") ? "UsedMB" : "Used")] ?? 0;
          const total = pool[name];
          return html`<div
            key=${name}><span>${label}</span>
            <${Meter} label=${label} used=${used} total=${total}
            text=${`${show(used)} of ${show(total)}`} /></div>`;
        })}
      </div>
    </div>
  `;
}

export function Overview() {
  const state = useData((signal) => get("/v1/yurt/overview", { namespace: "*" }, { signal }), []);
  const [live, setLive] = useState(/** @type {any} */ (null));
  // Updates follow what was read, so that nothing is read twice; where nothing could be read they bring it.
  const index = state.data?.Index ?? (state.error ? 0 : undefined);
  useEffect(() => {
    if (index === undefined) return;
    const take = (update) => (update.Overview ? setLive(update.Overview) : state.reload());
    return onChange({ Kind: "overview", Namespace: "*" }, take, index);
  }, [index !== undefined]);
  return html`
    <${Heading} title="Overview"><div class="actions"><a class="button" href=${href(["jobs", "run"])}>Run a job</a></div><//>
    <${Loaded} state=${state}>${(/** @type {any} */ read) => html`<${Figures} data=${live && live.Index >= read.Index ? live : read} />`}
      <//>
  `;
}

function Figures({ data }) {
  const allocs = data.Allocations ?? {};
  const statuses = Object.entries(data.Jobs?.Statuses ?? {}).sort(([a], [b]) => ORDER.indexOf(a) - ORDER.indexOf(b));
  return html`
    <div class="figures">
      <${Figure} label="jobs" value=${data.Jobs?.Total} to="/ui/jobs" />
      <${Figure} label="allocations running" value=${allocs.Running} to=${href(["allocations"], { Status: "running" })} />
      <${Figure} label="waiting" value=${allocs.Waiting} kind="warn" to="/ui/waiting" />
      <${Figure} label="failed" value=${allocs.Failed} kind="bad" to=${href(["allocations"], { Status: "failed" })} />
      <${Figure} label="lost" value=${allocs.Lost} kind="bad" to=${href(["allocations"], { Status: "lost" })} />
      ${data.Nodes && html`
        <${Figure} label=${`nodes, ${data.Nodes.Statuses.ready ?? 0} ready`} value=${data.Nodes.Total} to="/ui/nodes" />`}
    </div>
    <div class="grid">
      <${Attention} data=${data} />
      <${Section} title="Submitted last">
        ${
          data.Recent?.length
            ? html`<ul class="list">${data.Recent.map(
                (job) => html`
          <li key=${job.Namespace + job.ID}><${Status} status=${job.Status} /> <a href=${jobHref(job)}>${plain(job.ID)}
            </a> <span class="dim">version ${job.Version}</span><span class="right"><${When} at=${job.SubmitTime} /></span></li>`,
              )}</ul>`
            : html`<${Empty}>No jobs. <a href=${href(["jobs", "run"])}>Run one.</a><//>`
        }
      <//>
      <${Section} title="Jobs by status">
        <ul class="list">
          ${statuses.map(
          ([status, number]) =>
          html`<li key=${status}><a href=${href(["jobs"], { Status: status })}><${Status} status=${status} /></a>
          <span class="right">${count(number)}</span></li>`)}</ul>
      <//>
    </div>
    ${may("node:read") && data.Pools?.length > 0
      && html`<${Section} title="Capacity"
      note="booked by allocations, of what nodes offer">
      <div class="cards">${data.Pools.map((pool) => html`<${Pool} key=${pool.Name} pool=${pool} />`)}</div><//>`}
  `;
}
