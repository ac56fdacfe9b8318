/**
 * The map of cards: each node with cards as a row of bars, one for each card: what jobs have booked of its memory, and what is free.
 * A card without memory of its own is full or free.
 */
import { html, useMemo } from "../../vendor/preact.js";
import { get } from "../core/api.js";
import { count, mebibytes, plain, plural } from "../core/format.js";
import { toRows } from "../core/list.js";
import { useData } from "../core/load.js";
import { href, query, setQuery } from "../core/router.js";
import { Empty, Heading, Loaded } from "../parts/page.js";
import { Status } from "../parts/status.js";
import { LocalTable } from "../parts/table.js";

const NODES_MAX = 2000;
const FIELDS = "ID,Name,Status,Pool,Cards,CardsUsed,VRAMMB,VRAMUsedMB,CardList";
const GIB = 1024;

const freeOf = (card) => (card.Healthy ? card.VRAMMB - card.VRAMUsedMB : 0);
/** Whether one card of a node has so much memory free, in MiB. */
export const fits = (node, wanted) => (node.CardList ?? []).some((card) => freeOf(card) >= wanted);

function Card({ card }) {
  const holders = (card.Holders ?? []).map((holder) => holder.JobID || "a job of another namespace");
  const text = [
    plain(card.Name),
    card.VRAMMB > 0 ? `${mebibytes(card.VRAMUsedMB)} of ${mebibytes(card.VRAMMB)} booked` : holders.length ? "booked" : "free",
    card.Healthy ? "" : `unhealthy: ${card.Problem}`,
    holders.map(plain).join(", "),
  ].filter(Boolean).join("; ");
  const share = card.VRAMMB > 0 ? card.VRAMUsedMB / card.VRAMMB : Number(holders.length > 0);
  const kind = card.Healthy ? (share > 0.95 ? "bad" : share > 0.8 ? "warn" : "good") : "bad";
  return html`<span class=${`slot ${card.Healthy ? "" : "broken"}`} role="img" aria-label=${text} title=${text}>
    <i class=${kind} style=${{ width: `${Math.min(1, share) * 100}%` }}></i></span>`;
}

const COLUMNS = [
  {
    id: "name",
    title: "Node",
    value: (node) => node.Name,
    size: "minmax(7rem, 1fr)",
    cell: (node) => html`<a href=${href(["nodes", node.ID], { tab: "topology" })}>${plain(node.Name)}</a>`,
  },
  {
    id: "status",
    title: "Status",
    from: /** @type {"md"} */ ("md"),
    value: (node) => node.Status,
    size: "8rem",
    cell: (node) => html`<${Status} status=${node.Status} />`,
  },
  { id: "pool", title: "Pool", from: /** @type {"lg"} */ ("lg"), value: (node) => node.Pool, size: "8rem",
    cell: (node) => plain(node.Pool) },
  {
    id: "cards",
    title: "Cards",
    size: "minmax(8rem, 4fr)",
    cell: (node) =>
      html`<span class="slots">${(node.CardList ?? []).map((card) => html`<${Card} key=${card.ID} card=${card} />`)}</span>`,
  },
  {
    id: "free",
    title: "Free",
    value: (node) => node.VRAMMB - node.VRAMUsedMB,
    number: true,
    size: "7rem",
    cell: (node) => (node.VRAMMB ? mebibytes(node.VRAMMB - node.VRAMUsedMB) : plural(node.Cards - node.CardsUsed, "card")),
  },
];

export function Cards() {
  const state = useData(
    (signal) => get("/v1/yurt/nodes", { filter: "Cards != 0", fields: FIELDS, per_page: NODES_MAX, sort: "Name" }, { signal }),
    [],
    [{ Kind: "nodes", Filter: "Cards != 0", Fields: ["ID", "CardsUsed", "VRAMUsedMB", "UnhealthyCards", "Status"] }],
  );
  const wanted = Number(query("fits")) || 0;
  const nodes = useMemo(() => toRows(state.data?.Columns), [state.data]);
  const shown = useMemo(() => (wanted ? nodes.filter((node) => fits(node, wanted * GIB)) : nodes), [nodes, wanted]);
  const tools = html`<label>A card with <input type="number" min="0" step="1" value=${wanted || ""} aria-label="Free card memory in GiB"
    onInput=${(event) => setQuery({ fits: event.target.value })} /> GiB free</label>`;
  return html`
    <${Heading} title="Cards" crumbs=${[["Topology", "/ui/topology"]]} />
    <${Loaded} state=${state}>${(found) => html`
      ${found.Total > nodes.length && html`<p class="note">The first ${count(nodes.length)} of ${count(found.Total)} nodes.</p>`}
      <p class="legend"><span><i class="good"></i>booked</span><span><i class="warn"></i>nearly full</span>
        <span><i class="bad"></i>full, or unhealthy</span></p>
      <${LocalTable} name="cards" label="Cards by node" columns=${COLUMNS} rows=${shown} keyOf=${(node) => node.ID} main=${true}
        sort="name"
        href=${(node) => href(["nodes", node.ID], { tab: "topology" })} search=${(node) => `${node.Name} ${node.Pool}`} tools=${tools}
        empty=${html`<${Empty}>${nodes.length ? "No card has so much memory free." : "No node has cards."}<//>`} />
    `}<//>
  `;
}
