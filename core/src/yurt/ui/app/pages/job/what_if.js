/**
 * What would happen with other nodes, quotas or jobs: a form that composes the `yurt whatif` command. The command runs the scheduler
 * on a copy of the state at the reader's machine, so that a question costs the servers one snapshot and no more.
 */
import { html, useState } from "../../../vendor/preact.js";
import { get } from "../../core/api.js";
import { command, plain } from "../../core/format.js";
import { toRows } from "../../core/list.js";
import { useData } from "../../core/load.js";
import { query, setQuery } from "../../core/router.js";
import { Command } from "../../parts/copy.js";
import { Heading, Loaded, Section } from "../../parts/page.js";

const NODES_MAX = 1000;
const ADDED_MAX = 10000;

/** A choice of nodes, by name. @param {{label: string, nodes: any[], value: string, change: (id: string) => void}} props */
const NodeChoice = ({ label, nodes, value, change }) => html`
  <label>${label} <select value=${value} onChange=${(event) => change(event.target.value)}>
    <option value="" selected=${!value}>none</option>
    ${nodes.map((node) => html`<option key=${node.ID} value=${node.ID} selected=${node.ID === value}>${plain(node.Name)}</option>`)}
  </select></label>
`;

export function WhatIf() {
  const state = useData(
    (signal) => get("/v1/yurt/nodes", { fields: "ID,Name", sort: "Name", per_page: NODES_MAX }, { signal }),
    [],
  );
  const [file, setFile] = useState("");
  const lost = query("lose");
  const like = query("like");
  const added = Math.min(ADDED_MAX, Math.max(1, Number(query("add")) || 1));
  const flags = { lose: lost, add: like ? `${added}:${like}` : "", job: file };
  const asks = Object.values(flags).some(Boolean);
  return html`
    <${Heading} title="What if" crumbs=${[["What waits", "/ui/waiting"]]} />
    <p>What would run, wait or be preempted if nodes were lost or added, or if a job were submitted. Nothing is changed: the command
      runs the scheduler on a copy of the cluster's state, on your machine, and lists the jobs that would fare otherwise.</p>
    <${Loaded} state=${state}>${(list) => {
      const nodes = toRows(list.Columns);
      return html`
        <${Section} title="Changes"><div class="form">
          <${NodeChoice} label="A node is lost:" nodes=${nodes} value=${lost} change=${(id) => setQuery({ lose: id })} />
          <${NodeChoice} label="Nodes are added like:" nodes=${nodes} value=${like} change=${(id) => setQuery({ like: id })} />
          ${like && html`<label>How many: <input type="number" min="1" max=${ADDED_MAX} value=${added}
            onInput=${(event) => setQuery({ add: event.target.value })} /></label>`}
          <label>A job file is submitted: <input value=${file} placeholder="train.nomad.hcl" spellcheck="false"
            onInput=${(event) => setFile(event.target.value)} /></label>
        </div><//>
        <${Section} title="The command">${asks ? html`<${Command} text=${command(["whatif"], flags)} />`
          : html`<p class="dim">Choose a change.</p>`}
          <p class="dim">It needs the right to save snapshots; <code>-snapshot=backup.snap</code> asks a file instead.</p><//>
      `;
    }}<//>
  `;
}
