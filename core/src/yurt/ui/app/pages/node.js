/** One node: capacity, allocations, drivers, volumes, cards, events, attributes, metadata; eligibility and drain. */
import { html } from "../../vendor/preact.js";
import { get, put } from "../core/api.js";
import { command, plain } from "../core/format.js";
import { toRows } from "../core/list.js";
import { useData } from "../core/load.js";
import { nodeTopic } from "../core/live.js";
import { go, href, query } from "../core/router.js";
import { useKeys } from "../core/keys.js";
import { Actions } from "../parts/action.js";
import { Id } from "../parts/copy.js";
import { Heading, Loaded, Tabs } from "../parts/page.js";
import { Status } from "../parts/status.js";
import { AllocationList } from "./allocations.js";
import { drainCommand, drainFields, startDrain } from "./node/drain.js";
import { Attributes, Metadata } from "./node/attributes.js";
import { NodeSummary } from "./node/summary.js";
import { NodeTopology } from "./node/topology.js";

function drain(node, reload) {
  return {
    label: "Drain",
    needs: ["node:write"],
    danger: true,
    question: `Moves the allocations of ${node.Name} to other nodes and places no new ones on it.`,
    then: reload,
    done: `${node.Name} drains`,
    fields: drainFields(),
    command: (values) => drainCommand(values, node.ID),
    run: (values) => startDrain(values, node.ID),
  };
}

function actionsOf(node, reload) {
  const eligible = node.SchedulingEligibility === "eligible";
  const needs = ["node:write"];
  const stopDrain = {
    label: "Stop drain",
    needs,
    question: `Stops draining ${node.Name}.`,
    fields: [{ name: "eligible", label: "Take new allocations again", kind: "checkbox", value: true }],
    command: (values) => command(["node", "drain"], { disable: true, "keep-ineligible": !values.eligible }, [node.ID]),
    run: (values) => put(`/v1/node/${node.ID}/drain`, { DrainSpec: null, MarkEligible: values.eligible }),
    then: reload,
    done: "The drain was stopped",
  };
  const toggle = {
    label: eligible ? "Take no new allocations" : "Take new allocations",
    needs,
    unavailable: node.DrainStrategy ? "The node drains; stop the drain first" : "",
    command: command(["node", "eligibility"], { enable: !eligible, disable: eligible }, [node.ID]),
    run: () => put(`/v1/node/${node.ID}/eligibility`, { Eligibility: eligible ? "ineligible" : "eligible" }),
    then: reload,
    done: eligible ? "The node takes no new allocations" : "The node takes new allocations",
  };
  const purge = node.Status === "down" && {
    label: "Purge",
    needs,
    danger: true,
    question: `Forgets ${node.Name}; it registers again if it comes back.`,
    command: `curl -X PUT $NOMAD_ADDR/v1/node/${node.ID}/purge`,
    run: () => put(`/v1/node/${node.ID}/purge`),
    then: () => go("/ui/nodes"),
    done: "The node was purged",
  };
  return [
    toggle,
    node.DrainStrategy ? stopDrain : drain(node, reload),
    {
      label: "Evaluate",
      needs,
      command: `curl -X PUT $NOMAD_ADDR/v1/node/${node.ID}/evaluate`,
      run: () => put(`/v1/node/${node.ID}/evaluate`),
      then: reload,
      done: "Its jobs are evaluated",
    },
    purge,
  ].filter(Boolean);
}

const TABS = /** @type {[string, string][]} */ ([
  ["", "Overview"],
  ["allocations", "Allocations"],
  ["attributes", "Attributes"],
  ["meta", "Metadata"],
  ["topology", "Topology"],
]);

async function load(id, signal) {
  const node = await get(`/v1/node/${id}`, {}, { signal });
  const list = await get(
    "/v1/yurt/nodes",
    {
      where: `ID:${node.ID}`,
      per_page: 1,
      fields:
        "ID,Status,Allocations,CPU,CPUUsed,MemoryMB,MemoryUsedMB,DiskMB,DiskUsedMB,Cards,CardsUsed,VRAMMB,VRAMUsedMB," +
        "Cores,CoresUsed,CardList,DrainDeadline",
    },
    { signal },
  );
  return { node, row: toRows(list.Columns)[0] ?? {} };
}

export function Node({ id }) {
  const state = useData((signal) => load(id, signal), [id], [nodeTopic(id)]);
  const tab = query("tab");
  const node = state.data?.node;
  const to = (name) => href(["nodes", id], { tab: name });
  useKeys(TABS.map(([name, label], at) => ({ keys: String(at + 1), help: label, group: "Tabs", run: () => go(to(name)) })));
  return html`
    <${Heading} title=${node?.Name ?? id.slice(0, 8)} kind="node" crumbs=${[["Nodes", "/ui/nodes"]]}>
      ${node && html`
        <${Status} status=${state.data.row.Status ?? node.Status} note=${node.StatusDescription} /><${Id} id=${node.ID} />
        <span class="dim">${plain(node.NodePool)}, ${plain(node.Datacenter)}</span>
        <a href=${href(["what-if"], { lose: node.ID })}>What if it were lost?</a>
        <${Actions} actions=${actionsOf(node, state.reload)} />`}
    <//>
    <${Loaded} state=${state}>${({ row }) => html`
      <${Tabs} tabs=${TABS} current=${tab} to=${to} />
      ${tab === "allocations" ? html`<${AllocationList} node=${node.ID} />` : tab === "attributes" ? html`<${Attributes} node=${node} />`
        : tab === "meta" ? html`<${Metadata} node=${node} />` : tab === "topology" ? html`<${NodeTopology} node=${node} row=${row} />`
          : html`<${NodeSummary} node=${node} row=${row} />`}
    `}<//>
  `;
}
