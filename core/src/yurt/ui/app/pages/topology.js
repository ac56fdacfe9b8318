/**
 * The whole cluster on one canvas: nodes grouped by pool, datacenter or rack, coloured by a value that the reader chooses. Works
 * with 10,000 nodes: they are drawn, not made into elements; the table view beside it says the same to screen readers.
 */
import { html, useEffect, useMemo, useRef, useState } from "../../vendor/preact.js";
import { get } from "../core/api.js";
import { count, mebibytes, percent, plain } from "../core/format.js";
import { toRows } from "../core/list.js";
import { useData } from "../core/load.js";
import { href, query, setQuery } from "../core/router.js";
import { shownTheme } from "../core/settings.js";
import { SearchBox } from "../parts/facets.js";
import { Empty, Heading, Loaded, Section } from "../parts/page.js";
import { Meter, Status } from "../parts/status.js";
import { LocalTable } from "../parts/table.js";
import { drawMap, layout } from "../parts/map.js";
import { nodeHref } from "./nodes.js";

const ROWS_MAX = 10000;
const FIELDS =
  "ID,Name,Status,Pool,Datacenter,Class,Allocations,CPU,CPUUsed,MemoryMB,MemoryUsedMB,DiskMB,DiskUsedMB,Cards," +
  "CardsUsed,VRAMMB,VRAMUsedMB,Meta.rack";
/** What nodes can be coloured by: label, booked, offered. @type {Record<string, [string, string, string]>} */
const VALUES = {
  memory: ["Memory booked", "MemoryUsedMB", "MemoryMB"],
  cpu: ["CPU booked", "CPUUsed", "CPU"],
  disk: ["Disk booked", "DiskUsedMB", "DiskMB"],
  cards: ["Cards booked", "CardsUsed", "Cards"],
  vram: ["Card memory booked", "VRAMUsedMB", "VRAMMB"],
};
const GROUPS = { Pool: "Pool", Datacenter: "Datacenter", "Meta.rack": "Rack", Class: "Class" };

/** How much of the chosen value a node has booked, 0 to 1; -1 without it. */
function shareOf(node, by, holders) {
  if (by === "job") return holders.has(node.ID) ? 1 : 0;
  if (by === "status") return 0;
  const [, used, total] = VALUES[by];
  return node[total] > 0 ? node[used] / node[total] : -1;
}

function Totals({ nodes }) {
  const sum = (name) => nodes.reduce((total, node) => total + (node[name] ?? 0), 0);
  return html`
    <div class="figures">
      <div class="figure"><b>${count(nodes.length)}</b>nodes</div><div class="figure"><b>${count(sum("Allocations"))}</b>allocations</div>
      <div class="figure"><b>${percent(sum("MemoryUsedMB") / sum("MemoryMB"))}</b>of ${mebibytes(sum("MemoryMB"))} memory</div>
        <div class="figure"><b>${percent(sum("CPUUsed") / sum("CPU"))}</b>of ${count(sum("CPU"))} MHz</div>
      ${sum("Cards") > 0 && html`<div class="figure"><b>${count(sum("CardsUsed"))}</b>of ${count(sum("Cards"))} cards</div>`}
    </div>
  `;
}

function Picked({ node, close }) {
  const state = useData(
    (signal) =>
      get(
        "/v1/yurt/allocations",
        {
          namespace: "*",
          node: node.ID,
          where: ["Status:running", "Status:starting", "Status:unhealthy"],
          per_page: 50,
          sort: "-MemoryMB",
          fields: "ID,Namespace,JobID,Name,Status,CPU,MemoryMB",
        },
        { signal },
      ),
    [node.ID],
  );
  return html`
    <${Section} title=${plain(node.Name)} note=${html`<${Status} status=${node.Status} /> ${plain(node.Pool)}, ${plain(node.Datacenter)}`}
      tools=${html`<div class="actions"><a class="button" href=${nodeHref(node)}>Open</a><button onClick=${close}>Close</button></div>`}>
      <div class="bars">${Object.values(VALUES)
        .filter(([, , total]) => node[total] > 0)
        .map(
          ([label, used, total]) =>
            html`<div key=${label}><span>${label.replace(" booked", "")}</span>
              <${Meter} label=${label} used=${node[used]} total=${node[total]} text=${`${count(node[used])} of ${count(node[total])}`} />
              </div>`,
        )}</div>
      <${Loaded} state=${state}>${(list) =>
        html`<ul class="list">${toRows(list.Columns).map(
          (
            alloc,
          ) => html`<li
            key=${alloc.ID}><${Status} status=${alloc.Status} /> <a href=${href(["allocations", alloc.ID])}>${plain(alloc.Name)}
            </a> <span class="dim">${mebibytes(alloc.MemoryMB)}</span>
        <button class="quiet" onClick=${() => setQuery({ by: "job", job: alloc.JobID, namespace: alloc.Namespace })}>Siblings</button>
          </li>`,
        )}</ul>`}<//>
    <//>
  `;
}

function Map({ nodes, group, by, holders, pick, chosen }) {
  const canvas = useRef(/** @type {any} */ (null));
  const [width, setWidth] = useState(800);
  const [tip, setTip] = useState(/** @type {any} */ (null));
  const plan = useMemo(() => layout(nodes, (node) => node[group] || "(none)", width), [nodes, group, width]);
  useEffect(() => {
    const size = new ResizeObserver(([entry]) => setWidth(Math.max(200, Math.floor(entry.contentRect.width))));
    size.observe(canvas.current.parentElement);
    return () => size.disconnect();
  }, []);
  useEffect(
    () =>
      drawMap(canvas.current, plan, width, (node) => ({
        share: shareOf(node, by, holders),
        status: node.Status,
        marked: node.ID === chosen || (by === "job" && holders.has(node.ID)),
      })),
    [plan, by, holders, chosen, shownTheme.value, nodes],
  );
  const at = (event) => {
    const box = canvas.current.getBoundingClientRect();
    return plan.find(event.clientX - box.left, event.clientY - box.top);
  };
  return html`
    <div style=${{ position: "relative" }}>
      <canvas class="map" ref=${canvas} role="img" aria-label=${`${nodes.length} nodes by ${GROUPS[group]}; the table below lists them`}
        onMouseMove=${(event) => setTip(at(event))} onMouseLeave=${() => setTip(null)} onClick=${(event) => pick(at(event))}></canvas>
      <p class="dim"
        aria-hidden="true">
        ${tip ? `${plain(tip.Name)}: ${tip.Status}, ${tip.Allocations} allocations, memory ${percent(
        tip.MemoryUsedMB / tip.MemoryMB)}, CPU ${percent(tip.CPUUsed / tip.CPU)}${tip.Cards ? `, ${tip.CardsUsed} of ${tip.Cards} cards`
        : ""}` : "Point at a node; click to open its panel."}</p>
    </div>
  `;
}

const COLUMNS = [
  { id: "name", title: "Node", value: (row) => row.Name, cell: (row) => html`<a href=${nodeHref(row)}>${plain(row.Name)}</a>` },
  { id: "status", title: "Status", value: (row) => row.Status, cell: (row) => html`<${Status} status=${row.Status} />` },
  {
    id: "value",
    title: "Booked",
    value: (row) => row.share,
    number: true,
    cell: (row) => (row.share < 0 ? "none there" : percent(row.share)),
  },
];

async function load(job, namespace, signal) {
  const [nodes, allocs] = await Promise.all([
    get("/v1/yurt/nodes", { fields: FIELDS, per_page: ROWS_MAX, search: "" }, { signal }),
    job
      ? get(
          "/v1/yurt/allocations",
          {
            namespace: namespace || "default",
            job,
            where: ["Status:running", "Status:starting", "Status:unhealthy"],
            fields: "ID,NodeID",
            per_page: ROWS_MAX,
          },
          { signal },
        )
      : null,
  ]);
  return { nodes: toRows(nodes.Columns), total: nodes.Total, holders: new Set(toRows(allocs?.Columns).map((alloc) => alloc.NodeID)) };
}

export function Topology() {
  const job = query("job");
  const state = useData(
    (signal) => load(job, query("namespace"), signal),
    [job, query("namespace")],
    [{ Kind: "nodes", Fields: ["ID", "Status", "Allocations"] }],
  );
  const [picked, setPicked] = useState(/** @type {any} */ (null));
  const group = query("group", "Pool") in GROUPS ? query("group", "Pool") : "Pool";
  const by = query("by", job ? "job" : "memory");
  const words = query("q").toLowerCase();
  return html`
    <${Heading} title="Topology">
      <div class="actions"><a class="button" href="/ui/cards">Cards</a><a class="button" href="/ui/nodes">List</a></div><//>
    <div class="filters">
      <label>Group by <select value=${group}
        onChange=${(event) => setQuery({ group: event.target.value })}>
        ${Object.entries(GROUPS).map(([id, label]) => html`<option key=${id} value=${id} selected=${id === group}>${label}</option>`)}
        </select></label>
      <label>Colour by <select value=${by}
        onChange=${(event) => setQuery({ by: event.target.value })}>
        ${[...Object.entries(VALUES).map(([id, [label]]) => [id, label]), ["status", "Status"], ...(job ? [["job", `Job ${job}`]] : [])]
        .map(([id, label]) => html`<option key=${id} value=${id} selected=${id === by}>${plain(label)}</option>`)}</select></label>
      <${SearchBox} label="Filter nodes" />
      ${job && html`<button onClick=${() => setQuery({ job: "", by: "" })}>Forget job ${plain(job)} ✕</button>`}
    </div>
    <${Loaded} state=${state}>${({ nodes, total, holders }) => {
      const shown = nodes.filter(
        (node) =>
          !words || [node.Name, node.Pool, node.Datacenter, node.Class, node.Status, node.ID].join(" ").toLowerCase().includes(words),
      );
      if (!shown.length) return html`<${Empty}>${nodes.length ? "No node matches." : "No nodes."}<//>`;
      return html`
        ${total > nodes.length && html`<p class="note">The first ${count(nodes.length)} of ${count(total)} nodes.</p>`}
        <${Totals} nodes=${shown} />
        <p class="legend"><span><i class="good"></i>much is free</span><span><i class="warn"></i>filling</span>
          <span><i class="bad"></i>full, or down</span><span><i class="dim"></i>has none of it</span></p>
        <${Map} nodes=${shown} group=${group} by=${by} holders=${holders} pick=${setPicked} chosen=${picked?.ID} />
        ${picked && html`<${Picked} node=${picked} close=${() => setPicked(null)} />`}
        <details><summary>As a table</summary>
          <${LocalTable} name="topology" label="Nodes" columns=${COLUMNS}
          rows=${shown.map((node) => ({ ...node, share: shareOf(node, by, holders) }))} keyOf=${(row) => row.ID} href=${nodeHref}
          sort="-value" /></details>
      `;
    }}<//>
  `;
}
