/**
 * The inside of a node: NUMA nodes with their cores, the cards in them with what is booked of their memory, NVLink groups, and how
 * each card reaches each other.
 */
import { html } from "../../../vendor/preact.js";
import { count, mebibytes, plain } from "../../core/format.js";
import { href } from "../../core/router.js";
import { Empty, Section } from "../../parts/page.js";
import { CardStatus, Meter } from "../../parts/status.js";

const WAYS = {
  NV: "NVLink, by this many links",
  PIX: "one PCIe switch",
  PXB: "several PCIe switches",
  PHB: "the host bridge of one CPU",
  NODE: "the bridges of one NUMA node",
  SYS: "the link between NUMA nodes",
};
const NOWHERE = -1;
/** From which way on a pair counts as near, for its colour. */
const NEAR = new Set(["NV", "PIX"]);

const wayOf = (cell) => cell.replace(/\d+$/, "");
const textOf = (attribute) => String(attribute?.String ?? attribute?.Int ?? attribute?.Float ?? attribute?.Bool ?? "");
/** `a=1,b=2` as an object. */
const pairs = (text) => Object.fromEntries(text.split(",").filter(Boolean).map((part) => part.split("=")));

/** Every card of a node with its place and its links to the others. @param {any} node @param {any[]} cards as `CardList` has them. */
export function placesOf(node, cards) {
  const byId = new Map((cards ?? []).map((card) => [card.ID, card]));
  const groups = node.NodeResources?.Devices ?? [];
  return groups.flatMap((group) => (group.Instances ?? []).map((instance) => {
    const own = Object.fromEntries(Object.entries(instance.Attributes ?? {}).map(([name, value]) => [name, textOf(value)]));
    const nvlinks = Object.entries(pairs(own.nvlink_links ?? "")).map(([id, number]) => [id, `NV${number}`]);
    return {
      id: instance.ID,
      kind: `${group.Vendor}/${group.Type}/${group.Name}`,
      index: own.index ? Number(own.index) : null,
      numa: own.numa_node ? Number(own.numa_node) : NOWHERE,
      cpus: own.cpu_affinity ?? "",
      bus: instance.Locality?.PciBusID ?? "",
      links: { ...pairs(own.topology ?? ""), ...Object.fromEntries(nvlinks) },
      card: byId.get(instance.ID) ?? { Name: group.Name, Healthy: instance.Healthy, Problem: instance.HealthDescription, Holders: [] },
    };
  }));
}

/** The groups of cards that NVLink joins, as the number of its group for each card; null for a card alone. */
export function islandsOf(places) {
  const island = new Map();
  let last = 0;
  const join = (place, number) => {
    if (island.has(place.id)) return;
    island.set(place.id, number);
    for (const other of places) if (wayOf(place.links[other.id] ?? "") === "NV") join(other, number);
  };
  for (const place of places) {
    if (!island.has(place.id) && Object.values(place.links).some((link) => wayOf(link) === "NV")) join(place, (last += 1));
  }
  return (place) => island.get(place.id) ?? null;
}

/** Numbers as ranges: `0-3, 8`. */
export function ranges(numbers) {
  const sorted = [...numbers].sort((a, b) => a - b);
  const found = /** @type {number[][]} */ ([]);
  for (const number of sorted) {
    const open = found[found.length - 1];
    if (open && number === open[1] + 1) open[1] = number;
    else found.push([number, number]);
  }
  return found.map(([from, to]) => (from === to ? String(from) : `${from}-${to}`)).join(", ");
}

const nameOf = (place, at) => `${place.kind.split("/")[1].toUpperCase()}${place.index ?? at}`;

const Holder = ({ holder }) => html`
  <li>${holder.AllocID ? html`<a href=${href(["allocations", holder.AllocID])}>${plain(holder.JobID)} ${plain(holder.Task)}</a>`
    : "a job of another namespace"} <span class="dim">${holder.VRAMMB ? mebibytes(holder.VRAMMB) : ""}
    ${holder.Compute ? ` ${holder.Compute} % compute` : ""}</span></li>
`;

function Card({ place, name, island }) {
  const { card } = place;
  return html`
    <div class="card">
      <strong>${name}</strong> ${plain(card.Name)}
      <${CardStatus} card=${card} />
      ${card.Problem && html`<p class="bad">${plain(card.Problem)}</p>`}
      ${card.VRAMMB > 0 && html`<${Meter} label="Memory booked" used=${card.VRAMUsedMB} total=${card.VRAMMB}
        text=${`${mebibytes(card.VRAMUsedMB)} of ${mebibytes(card.VRAMMB)}`} />`}
      <div class="dim">${island && html`NVLink group ${island} `}${place.bus && html`PCIe <code>${plain(place.bus)}</code>`}</div>
      <ul class="list">${(card.Holders ?? []).map((holder, at) => html`<${Holder} key=${at} holder=${holder} />`)}</ul>
    </div>
  `;
}

function Numa({ id, cores, distances, places, names, island }) {
  const sockets = [...new Set(cores.map((core) => core.SocketID))];
  const title = id === NOWHERE ? "Cards whose NUMA node is not known" : `NUMA node ${id}`;
  const note = [
    sockets.length > 0 && `socket ${sockets.join(", ")}`,
    cores.length > 0 && `cores ${ranges(cores.map((core) => core.ID))}`,
    distances && `distances ${distances.join(", ")}`,
  ].filter(Boolean).join("; ");
  return html`
    <${Section} title=${title} note=${note}>
      ${cores.length > 0 && html`<div class="cores" role="img" aria-label=${`${count(cores.length)} cores`}>
        ${cores.map((core) => html`<i key=${core.ID} class=${core.Disable ? "dim" : "good"}
          title=${`core ${core.ID}${core.MaxSpeed ? `, ${core.MaxSpeed} MHz` : ""}${core.Disable ? ", kept from allocations" : ""}`}>
            </i>`)}</div>`}
      ${places.length > 0 && html`<div class="cards">
        ${places.map((place) => html`<${Card} key=${place.id} place=${place} name=${names.get(place.id)} island=${island(place)} />`)}
          </div>`}
    <//>
  `;
}

/** How each card reaches each other. */
function Links({ places, names }) {
  const used = new Set(places.flatMap((place) => Object.values(place.links).map(wayOf)));
  if (places.length < 2 || !used.size) return null;
  return html`
    <${Section} title="Links between cards">
      <div class="matrix" tabindex="0" role="region" aria-label="Links between cards"><table>
        <thead><tr><th>Card</th>${places.map((place) => html`<th key=${place.id}>${names.get(place.id)}</th>`)}</tr></thead>
        <tbody>${places.map((place) => html`
          <tr key=${place.id}><th scope="row">${names.get(place.id)}</th>${places.map((other) => {
            const link = other === place ? "" : (place.links[other.id] ?? "not told");
            return html`<td key=${other.id} class=${NEAR.has(wayOf(link)) ? "near" : ""}>${plain(link)}</td>`;
          })}</tr>`)}</tbody></table></div>
      <p class="dim">${Object.entries(WAYS).filter(([way]) => used.has(way)).map(([way, text]) => `${way}: ${text}`).join("; ")}.</p>
    <//>
  `;
}

/** @param {{node: any, row: any}} props */
export function NodeTopology({ node, row }) {
  const topology = node.NodeResources?.Processors?.Topology;
  const cores = topology?.Cores ?? [];
  const places = placesOf(node, row.CardList);
  const names = new Map(places.map((place, at) => [place.id, nameOf(place, at)]));
  const island = islandsOf(places);
  const ids = [...new Set([...cores.map((core) => core.NodeID), ...places.map((place) => place.numa)])].sort((a, b) => a - b);
  if (!ids.length) return html`<${Empty}>The agent of this node does not tell its processors, and it has no cards.<//>`;
  const numaIds = topology?.Nodes ?? [];
  return html`
    <div class="grid">${ids.map((id) => html`
      <${Numa} key=${id} id=${id} cores=${cores.filter((core) => core.NodeID === id)}
        distances=${topology?.Distances?.[numaIds.indexOf(id)]}
        places=${places.filter((place) => place.numa === id)} names=${names} island=${island} />`)}</div>
    <${Links} places=${places} names=${names} />
  `;
}
