/** Services that Yurt keeps, with their instances. */
import { html } from "../../vendor/preact.js";
import { get, remove, segment } from "../core/api.js";
import { command, plain } from "../core/format.js";
import { useData, useInterval } from "../core/load.js";
import { href, query } from "../core/router.js";
import { ActionButton } from "../parts/action.js";
import { Id } from "../parts/copy.js";
import { Empty, Heading, Loaded } from "../parts/page.js";
import { LocalTable } from "../parts/table.js";

const STEP_S = 5;
const address = (row) => `${row.Address.includes(":") ? `[${row.Address}]` : row.Address}:${row.Port}`;

/** @type {import("../parts/table.js").Column[]} */
export const INSTANCE_COLUMNS = [
  {
    id: "service",
    title: "Service",
    value: (row) => row.ServiceName,
    cell: (row) => html`<a href=${href(["services", row.ServiceName], { namespace: row.Namespace })}>${plain(row.ServiceName)}</a>`,
  },
  {
    id: "address",
    title: "Address",
    value: (row) => row.Address,
    cell: (row) =>
      row.Port
        ? html`<a href=${`http://${address(row)}/`} target="_blank" rel="noopener noreferrer">${plain(address(row))}</a>`
        : plain(row.Address),
  },
  { id: "tags", title: "Tags", from: "md", cell: (row) => (row.Tags ?? []).map(plain).join(", ") },
  {
    id: "alloc",
    from: /** @type {"md"} */ ("md"),
    title: "Allocation",
    size: "7.5rem",
    cell: (row) => html`<${Id} id=${row.AllocID} href=${href(["allocations", row.AllocID])} />`,
  },
  {
    id: "node",
    title: "Node",
    from: "lg",
    size: "7.5rem",
    cell: (row) => html`<${Id} id=${row.NodeID} href=${href(["nodes", row.NodeID])} />`,
  },
];

const COLUMNS = [
  {
    id: "name",
    title: "Service",
    value: (row) => row.ServiceName,
    cell: (row) => html`<a href=${href(["services", row.ServiceName], { namespace: row.Namespace })}>${plain(row.ServiceName)}</a>`,
  },
  { id: "namespace", title: "Namespace", value: (row) => row.Namespace, cell: (row) => plain(row.Namespace) },
  { id: "tags", title: "Tags", from: /** @type {"md"} */ ("md"), cell: (row) => (row.Tags ?? []).map(plain).join(", ") },
];

export function Services() {
  const state = useData(async (signal) => {
    const found = await get("/v1/services", { namespace: "*" }, { signal });
    return (found ?? []).flatMap((group) => (group.Services ?? []).map((service) => ({ ...service, Namespace: group.Namespace })));
  }, []);
  useInterval(state.reload, STEP_S);
  return html`
    <${Heading} title="Services" />
    <${Loaded} state=${state}>${(
      rows,
    ) => html`<${LocalTable} name="services" label="Services" columns=${COLUMNS} rows=${rows}
      keyOf=${(row) => `${row.Namespace}/${row.ServiceName}`}
      href=${(row) => href(["services", row.ServiceName], { namespace: row.Namespace })}
      search=${(row) => `${row.ServiceName} ${row.Namespace} ${(row.Tags ?? []).join(" ")}`} sort="name" main=${true}
        empty=${html`
        <${Empty}>No service is registered. A <code>service</code> block with <code>provider = "nomad"</code> registers one.<//>`} />`}
        <//>
  `;
}

export function Service({ name }) {
  const namespace = query("namespace", "default");
  const state = useData((signal) => get(`/v1/service/${segment(name)}`, { namespace }, { signal }), [name, namespace]);
  useInterval(state.reload, STEP_S);
  const columns = [
    ...INSTANCE_COLUMNS,
    {
      id: "remove",
      title: "",
      size: "6rem",
      cell: (row) =>
        html`<${ActionButton} action=${{
          label: "Remove",
          needs: ["submit-job"],
          namespace,
          danger: true,
          question: `Removes the registration ${row.ID}; a running task registers its service again.`,
          command: command(["service", "delete"], { namespace: namespace === "default" ? "" : namespace }, [name, row.ID]),
          run: () => remove(`/v1/service/${segment(name)}/${segment(row.ID)}`, { namespace }),
          then: state.reload,
          done: "The registration was removed",
        }} />`,
    },
  ];
  return html`
    <${Heading} title=${name} kind="service" crumbs=${[["Services", "/ui/services"]]} />
    <${Loaded} state=${state}>
      ${(rows) => html`
      <${LocalTable} name="instances" label="Instances" columns=${columns} rows=${rows ?? []} keyOf=${(row) => row.ID}
      search=${(row) => `${row.Address} ${row.AllocID}`} main=${true} empty=${html`<${Empty}>No instance is registered.<//>`} />`}<//>
  `;
}
