/**
 * Why a job waits: what the nodes lose at each step, each blocker with its count, the nearest nodes with what they lack, and the
 * smallest change that would help, which the editor applies on request.
 */
import { html, useState } from "../../../vendor/preact.js";
import { call, get } from "../../core/api.js";
import { command, count, plain, plural } from "../../core/format.js";
import { useData } from "../../core/load.js";
import { jobTopic } from "../../core/live.js";
import { useQueues } from "../../core/queue.js";
import { toRows } from "../../core/list.js";
import { go, href, query, setQuery } from "../../core/router.js";
import { may } from "../../core/session.js";
import { Command } from "../../parts/copy.js";
import { Empty, Facts, Loaded, Section, When } from "../../parts/page.js";

const load = async (job, node, signal) => {
  const body = { JobID: job.ID, Namespace: job.Namespace, NodeID: node };
  return (await call("POST", "/v1/yurt/job/why-not", { body, query: { namespace: job.Namespace }, signal })).data;
};

/** A question about one node: by its name, completed from the nodes that are known. */
function AskNode() {
  const [text, setText] = useState("");
  const [known, setKnown] = useState(/** @type {any[]} */ ([]));
  const [problem, setProblem] = useState("");
  const search = async (words) => toRows((await get("/v1/yurt/nodes", { search: words, per_page: 20, fields: "ID,Name" })).Columns);
  const type = (event) => {
    setText(event.target.value);
    search(event.target.value).then(setKnown, (error) => setProblem(error.message));
  };
  const ask = async (event) => {
    event.preventDefault();
    const node = (await search(text)).find((row) => row.Name === text || row.ID.startsWith(text));
    setProblem(node ? "" : `No node is named "${text}".`);
    if (node) setQuery({ node: node.ID });
  };
  return html`
    <form class="filters" onSubmit=${ask}>
      <label>Why not on <input list="known-nodes" aria-label="Node that is asked about" placeholder="node" value=${text} onInput=${type}
        required spellcheck="false" /></label>
      <datalist id="known-nodes">${known.map((row) => html`<option key=${row.ID} value=${row.Name}></option>`)}</datalist>
      <button type="submit">Ask</button>${problem && html`<span class="bad" role="alert">${plain(problem)}</span>`}
    </form>
  `;
}

/** What the node that was asked about lacks. */
function There({ miss }) {
  if (!miss) return null;
  const lacks = (miss.Shortfalls ?? []).map((lack) => plain(lack.Text)).join("; ");
  return html`<p class="note">Node <a href=${href(["nodes", miss.NodeID])}>${plain(miss.NodeName || miss.NodeID)}</a>
    ${lacks ? ` lacks: ${lacks}.` : " lacks nothing: one more allocation fits there."}</p>`;
}

/** How many nodes are left after each step of placing. */
function Funnel({ group }) {
  const pool = group.NodesInPool || group.NodesEvaluated;
  const steps = [
    ["Nodes in the pool", pool],
    ["Ready, eligible and in the datacenters", group.NodesEvaluated],
    ["Meet the constraints", group.NodesEvaluated - group.NodesFiltered],
    ["Have enough free resources", Math.max(0, group.NodesEvaluated - group.NodesFiltered - group.NodesExhausted)],
  ];
  return html`
    <ol class="funnel" aria-label="Nodes left after each step">${steps.map(
      ([label, left]) => html`
      <li key=${label}><span>${label}</span>
        <span class="track"
        aria-hidden="true"><i class=${left ? "good" : "bad"} style=${{ width: `${pool ? (Number(left) / pool) * 100 : 0}%` }}></i></span>
        <b>${count(left)}</b></li>`,
    )}</ol>
  `;
}

const Blockers = ({ blockers }) => html`
  <h3>Blocked by</h3>
  <div class="scroll" tabindex="0"><table class="plain-table">
    <thead><tr><th>What</th><th>Kind</th><th>Nodes</th><th>Alone on</th></tr></thead>
    <tbody>${blockers.map((blocker) => html`
      <tr key=${blocker.Kind + blocker.Text}><td>${plain(blocker.Text)}</td><td>${plain(blocker.Kind)}</td>
        <td>${count(blocker.Nodes)}</td><td>${count(blocker.Alone)}</td></tr>`)}</tbody></table></div>
`;

/** Nodes by requirements: red is what a node lacks, with what is asked and free. @param {{misses: any[]}} props */
export function NearMisses({ misses }) {
  const kinds = [...new Set(misses.flatMap((miss) => (miss.Shortfalls ?? []).map((lack) => lack.Kind)))];
  return html`
    <h3>Nearest nodes</h3>
    <div class="matrix" tabindex="0" role="region" aria-label="Nearest nodes and what they lack"><table>
      <thead><tr><th>Node</th><th>Lacks</th>${kinds.map((kind) => html`<th key=${kind}>${plain(kind)}</th>`)}</tr></thead>
      <tbody>${misses.map(
        (miss) => html`
        <tr key=${miss.NodeID}><th scope="row"><a href=${href(["nodes", miss.NodeID])}>${plain(miss.NodeName || miss.NodeID)}</a></th>
          <td>${miss.Shortfalls?.length ?? 0}</td>
          ${kinds.map((kind) => {
            const lacks = (miss.Shortfalls ?? []).filter((lack) => lack.Kind === kind);
            return html`<td key=${kind}
              class=${lacks.length ? "lacks" : ""}>${lacks.length ? lacks.map((lack) => plain(lack.Text)).join("; ") : "met"}</td>`;
          })}</tr>`,
      )}</tbody></table></div>
  `;
}

function Change({ job, group }) {
  const change = group.SmallestChange;
  if (!change) return null;
  const edits = change.Edits ?? [];
  const inJob = edits.filter((edit) => !edit.NodeID);
  const apply = () => {
    sessionStorage.setItem("yurt-edits", JSON.stringify({ group: group.Name, edits: inJob }));
    go(href(["jobs", "run"], { edit: job.ID, namespace: job.Namespace, apply: "1" }));
  };
  return html`
    <h3>Smallest change that helps</h3>
    <p>${plain(change.Text)} <span class="dim">(${change.NodeName ? `on ${plain(change.NodeName)}; ` : ""}lets ${
      plural(change.Places, "allocation")} in${change.IsProved ? "; proved" : ""})</span></p>
    ${inJob.length > 0 && html`<button class="primary" onClick=${apply}>Apply to editor</button>`}
    ${edits.filter((edit) => edit.NodeID)
      .map((edit) =>
      html`<p key=${edit.Text}><a href=${href(["nodes", edit.NodeID])}>Open the node</a> <span class="dim">${plain(edit.Text)}</span>
      </p>`)}
  `;
}

/** Why one group's allocations are, or are not, placed. */
export function GroupExplanation({ job, group }) {
  const waits = group.Unplaced > 0 || group.RunsNowhere;
  return html`
    <${Section} title=${`Group ${plain(group.Name)}`}
      note=${`${group.Desired} desired, ${group.Running} running${group.Placed ? `, ${group.Placed} could be placed now` : ""}${waits
      ? `, ${group.Unplaced} cannot be placed` : ""}`}>
      ${(group.Notes ?? []).map((note) => html`<p key=${note}>${plain(note)}</p>`)}
      ${!waits && !group.Blockers?.length && html`<p class="good">Nothing blocks this group.</p>`}
      ${waits && html`<${Funnel} group=${group} />`}
      ${group.Blockers?.length > 0 && html`<${Blockers} blockers=${group.Blockers} />`}
      <${There} miss=${group.There} />
      <${Change} job=${job} group=${group} />
      ${group.NearMisses?.length > 0 && html`<${NearMisses} misses=${group.NearMisses} />`}
    <//>
  `;
}

/** Where a batch job stands in the queue of its node pool, and when it is expected to start. */
function InQueue({ job }) {
  const found = useQueues(job.Type === "batch" ? [job.NodePool] : []).placeOf(job.Namespace, job.ID);
  if (!found) return null;
  const starts = (at) => at > 0 && html`<${When} at=${at} />`;
  return html`
    <${Section} title="In the queue" note=${`of node pool ${plain(job.NodePool)}`}>
      <p>${plain(found.Reason)}</p>
      <${Facts} facts=${[["Place", `${found.Position + 1} of ${found.Length}`], ["Waits for", found.WaitsFor], ["Tenant", found.Tenant],
        ["Likely start", starts(found.ExpectedStart)], ["In 4 of 5 cases by", starts(found.ExpectedBy)],
          ["At the latest", starts(found.LatestStart) || "no promise yet: later jobs of tenants with less usage may pass"]]} />
    <//>
  `;
}

export function Tab({ job }) {
  const node = query("node");
  const inputs = [job.ID, job.Namespace, job.ModifyIndex, node];
  const state = useData((signal) => load(job, node, signal), inputs, [jobTopic(job.Namespace, job.ID)]);
  return html`
    <${Loaded} state=${state}>${(found) => html`
      ${(found.Warnings ?? []).map((warning) => html`<p class="note" key=${warning}>${plain(warning)}</p>`)}
      <${InQueue} job=${job} />
      ${may("node:read") && html`<${AskNode} />`}
      ${found.Groups?.map((group) => html`<${GroupExplanation} key=${group.Name} job=${job} group=${group} />`)}
      ${!found.Groups?.length && html`<${Empty}>The job has no groups.<//>`}
      ${may("node:read") && html`<p><a href="/ui/what-if">What if there were other nodes?</a></p>`}
      <p class="dim">On the state at index ${found.Index}. The same on the command line:</p>
      <${Command} text=${command(["job", "why-not"], { namespace: job.Namespace === "default" ? "" : job.Namespace }, [job.ID])} />
    `}<//>
  `;
}
