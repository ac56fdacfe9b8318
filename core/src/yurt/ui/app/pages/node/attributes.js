/** A node's attributes, and its metadata with what can be changed while it runs. */
import { html } from "../../../vendor/preact.js";
import { get, put } from "../../core/api.js";
import { command, plain } from "../../core/format.js";
import { useData } from "../../core/load.js";
import { ActionButton, Actions } from "../../parts/action.js";
import { Copy } from "../../parts/copy.js";
import { Empty, Loaded } from "../../parts/page.js";
import { LocalTable } from "../../parts/table.js";

const pairs = (found) => Object.entries(found ?? {}).map(([name, value]) => ({ name, value: String(value) }));
const COLUMNS = [
  { id: "name", title: "Name", value: (row) => row.name, size: "minmax(8rem, 1fr)",
    cell: (row) => html`<code>${plain(row.name)}</code>` },
  {
    id: "value",
    title: "Value",
    value: (row) => row.value,
    size: "minmax(8rem, 2fr)",
    cell: (row) => html`<span title=${plain(row.value)}>${plain(row.value)}</span> <${Copy} text=${row.value} />`,
  },
];

export const Attributes = ({ node }) => html`
  <${LocalTable} name="attributes" label="Attributes" columns=${COLUMNS} rows=${pairs(node.Attributes)} keyOf=${(row) => row.name}
    search=${(row) => `${row.name} ${row.value}`} sort="name" main=${true}
    empty=${html`<${Empty}>No attributes.<//>`} />
`;

/** @param {any} node @param {string} name "" for a new one. */
function change(node, name, value, reload) {
  const write = (key, text) => put("/v1/client/metadata", { NodeID: node.ID, Meta: { [key]: text } }, { node_id: node.ID });
  return [
    {
      label: name ? "Change" : "Add metadata",
      needs: ["node:write"],
      then: reload,
      done: "The metadata was written",
      fields: [
        ...(name ? [] : [{ name: "key", label: "Name", required: true }]),
        { name: "value", label: name ? `Value of ${name}` : "Value", value },
      ],
      command: (values) => command(["node", "meta", "apply"], { "node-id": node.ID }, [`${name || values.key}=${values.value}`]),
      run: (values) => write(name || values.key, values.value),
    },
    name && {
      label: "Remove",
      needs: ["node:write"],
      danger: true,
      question: `Removes ${name} from the metadata of ${node.Name}.`,
      command: command(["node", "meta", "apply"], { "node-id": node.ID, unset: name }),
      run: () => write(name, null),
      then: reload,
      done: "The metadata was removed",
    },
  ].filter(Boolean);
}

export function Metadata({ node }) {
  const state = useData(
    (signal) =>
      get("/v1/client/metadata", { node_id: node.ID }, { signal }).catch(() => ({ Meta: node.Meta, Dynamic: {}, Static: node.Meta })),
    [node.ID, node.ModifyIndex],
  );
  const columns = [
    ...COLUMNS,
    { id: "origin", title: "From", from: /** @type {"md"} */ ("md"), size: "9rem", value: (row) => row.origin,
      cell: (row) => row.origin },
    {
      id: "actions",
      title: "",
      size: "12rem",
      cell: (row) => html`<${Actions} actions=${change(node, row.name, row.value, state.reload)} />`,
    },
  ];
  return html`
    <${Loaded} state=${state}>${(data) => {
      const rows = pairs(data.Meta).map((row) => ({
        ...row,
        origin: data.Dynamic && row.name in data.Dynamic ? "changed at run time" : "configuration",
      }));
      const tools = html`<${ActionButton} action=${change(node, "", "", state.reload)[0]} />`;
      return html`<${LocalTable} name="meta" label="Metadata" columns=${columns} rows=${rows} keyOf=${(row) => row.name}
        search=${(row) => `${row.name} ${row.value}`} sort="name" tools=${tools} main=${true}
        empty=${html`<${Empty}>No metadata.<//>`} />`;
    }}<//>
  `;
}
