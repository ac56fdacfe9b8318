/** Volumes: dynamic host volumes and CSI volumes, one volume with its claims, and the CSI plugins. */
import { html } from "../../vendor/preact.js";
import { call, get, remove, segment } from "../core/api.js";
import { command, mebibytes, plain } from "../core/format.js";
import { useData } from "../core/load.js";
import { go, href, query } from "../core/router.js";
import { Actions } from "../parts/action.js";
import { CodeView } from "../parts/editor.js";
import { Id } from "../parts/copy.js";
import { Empty, Facts, Heading, Loaded, Section, Tabs, Time } from "../parts/page.js";
import { Status } from "../parts/status.js";
import { LocalTable } from "../parts/table.js";
import { allocationHref } from "./allocations.js";

const TABS = /** @type {[string, string][]} */ ([
  ["", "Host volumes"],
  ["csi", "CSI volumes"],
  ["plugins", "Plugins"],
]);
const volumeHref = (kind) => (row) => href(["storage", kind, row.ID], { namespace: row.Namespace });

const HOST = [
  { id: "name", title: "Volume", value: (row) => row.Name,
    cell: (row) => html`<a href=${volumeHref("host")(row)}>${plain(row.Name)}</a>` },
  { id: "state", title: "State", value: (row) => row.State, size: "7rem", cell: (row) => html`<${Status} status=${row.State} />` },
  {
    id: "namespace",
    title: "Namespace",
    from: /** @type {"lg"} */ ("lg"),
    value: (row) => row.Namespace,
    size: "8rem",
    cell: (row) => plain(row.Namespace),
  },
  {
    id: "node",
    title: "Node",
    value: (row) => row.NodeID,
    size: "8rem",
    cell: (row) => html`<${Id} id=${row.NodeID} href=${href(["nodes", row.NodeID])} />`,
  },
  { id: "plugin", title: "Plugin", from: /** @type {"md"} */ ("md"), value: (row) => row.PluginID, cell: (row) => plain(row.PluginID) },
  {
    id: "capacity",
    title: "Capacity",
    from: /** @type {"md"} */ ("md"),
    value: (row) => row.CapacityBytes,
    number: true,
    size: "7rem",
    cell: (row) => (row.CapacityBytes ? mebibytes(row.CapacityBytes / 1048576) : ""),
  },
];
const CSI = [
  { id: "name", title: "Volume", value: (row) => row.ID, cell: (row) => html`<a href=${volumeHref("csi")(row)}>${plain(row.ID)}</a>` },
  {
    id: "health",
    title: "Schedulable",
    value: (row) => row.Schedulable,
    size: "8rem",
    cell: (row) => html`<${Status} status=${row.Schedulable ? "healthy" : "unhealthy"} />`,
  },
  { id: "plugin", title: "Plugin", value: (row) => row.PluginID, cell: (row) => plain(row.PluginID) },
  {
    id: "nodes",
    title: "Nodes",
    from: /** @type {"md"} */ ("md"),
    number: true,
    size: "7rem",
    cell: (row) => `${row.NodesHealthy} of ${row.NodesExpected}`,
  },
  {
    id: "claims",
    title: "Claims",
    from: /** @type {"md"} */ ("md"),
    number: true,
    size: "6rem",
    cell: (row) => (row.CurrentReaders ?? 0) + (row.CurrentWriters ?? 0),
  },
];
const PLUGINS = [
  { id: "id", title: "Plugin", value: (row) => row.ID, cell: (row) => plain(row.ID) },
  { id: "provider", title: "Provider", value: (row) => row.Provider, cell: (row) => plain(row.Provider) },
  { id: "nodes", title: "Node health", number: true, cell: (row) => `${row.NodesHealthy} of ${row.NodesExpected}` },
  {
    id: "controllers",
    title: "Controllers",
    number: true,
    cell: (row) => (row.ControllerRequired ? `${row.ControllersHealthy} of ${row.ControllersExpected}` : "none needed"),
  },
];

const LISTS = {
  "": [
    "/v1/volumes",
    { type: "host", namespace: "*" },
    HOST,
    "host",
    html`<${Empty}>No host volumes were made. <code>yurt volume create</code> makes one;
      volumes of the agents' configuration stand on their nodes.<//>`,
  ],
  csi: [
    "/v1/volumes",
    { type: "csi", namespace: "*" },
    CSI,
    "csi",
    html`<${Empty}>No CSI volumes. <code>yurt volume register</code> adds one.<//>`,
  ],
  plugins: [
    "/v1/plugins",
    { type: "csi" },
    PLUGINS,
    "",
    html`<${Empty}>No CSI plugin runs. A job with a <code>csi_plugin</code> block runs one.<//>`,
  ],
};

export function Storage() {
  const tab = query("tab") in LISTS ? query("tab") : "";
  const [path, wanted, columns, kind, empty] = /** @type {any} */ (LISTS)[tab];
  const state = useData((signal) => get(path, wanted, { signal }), [tab]);
  return html`
    <${Heading} title="Storage" />
    <${Tabs} tabs=${TABS} current=${tab} to=${(name) => href(["storage"], { tab: name })} />
    <${Loaded} state=${state}>${(
      rows,
    ) => html`<${LocalTable} name="volumes" label=${TABS.find(([id]) => id === tab)?.[1]} columns=${columns} rows=${rows ?? []}
      keyOf=${(row) => `${row.Namespace}/${row.ID}`} href=${kind ? volumeHref(kind) : undefined}
      search=${(row) => `${row.ID} ${row.Name} ${row.PluginID}`} main=${true} empty=${empty} />`}<//>
  `;
}

function actionsOf(kind, volume) {
  const deregister = {
    label: "Deregister",
    danger: true,
    needs: ["csi-write-volume"],
    namespace: volume.Namespace,
    question: `Forgets the volume ${volume.ID}; its data stays where it is.`,
    command: command(["volume", "deregister"], { namespace: volume.Namespace }, [volume.ID]),
    run: () => remove(`/v1/volume/csi/${segment(volume.ID)}`, { namespace: volume.Namespace }),
    then: () => go("/ui/storage?tab=csi"),
    done: "The volume was deregistered",
  };
  const drop = {
    label: "Delete",
    danger: true,
    needs: ["host-volume-write", "host-volume-delete"],
    namespace: volume.Namespace,
    question: `Deletes the volume ${volume.Name} and its data on its node.`,
    command: command(["volume", "delete"], { type: "host", namespace: volume.Namespace }, [volume.ID]),
    run: () => remove(`/v1/volume/host/${volume.ID}`, { namespace: volume.Namespace }),
    then: () => go("/ui/storage"),
    done: "The volume was deleted",
  };
  return [kind === "csi" ? deregister : drop];
}

export function Volume({ kind, id }) {
  const state = useData(
    async (signal) =>
      (
        await call("GET", `/v1/volume/${kind === "csi" ? "csi" : "host"}/${segment(id)}`, {
          query: { namespace: query("namespace") },
          signal,
        })
      ).data,
    [kind, id],
  );
  const volume = state.data;
  const allocs = volume?.Allocations ?? [];
  return html`
    <${Heading} title=${volume?.Name || id} kind=${kind === "csi" ? "CSI volume" : "host volume"}
      crumbs=${[["Storage", href(["storage"], { tab: kind === "csi" ? "csi" : "" })]]}>
      ${volume && html`<${Actions} actions=${actionsOf(kind, volume)} />`}<//>
    <${Loaded} state=${state}>${() => html`
      <${Section} title="Facts"><${Facts} facts=${[
        ["ID", html`<${Id} id=${volume.ID} />`],
        ["State", volume.State],
        ["Plugin", volume.PluginID],
        ["Namespace", volume.Namespace],
        ["Node", volume.NodeID && html`<${Id} id=${volume.NodeID} href=${href(["nodes", volume.NodeID])} />`],
        ["Host path", volume.HostPath],
        ["External ID", volume.ExternalID],
        ["Access", volume.AccessMode],
        ["Attachment", volume.AttachmentMode],
        ["Capacity", (volume.CapacityBytes || volume.Capacity) && mebibytes((volume.CapacityBytes || volume.Capacity) / 1048576)],
        ["Created", volume.CreateTime > 0 && html`<${Time} at=${volume.CreateTime} />`],
        ...Object.entries(volume.Parameters ?? {}),
      ]} /><//>
      <${Section} title="Capabilities">
        <ul class="list">
        ${(volume.RequestedCapabilities ?? [])
        .map((each, at) => html`<li key=${at}>${plain(each.AccessMode)}, ${plain(each.AttachmentMode)}</li>`)}</ul><//>
      <${Section} title="Allocations that use it">
        ${allocs.length
        ? html`<ul class="list">
        ${allocs.map(
        (alloc) => html`
        <li key=${alloc.ID}><${Status} status=${alloc.ClientStatus} /> <a href=${allocationHref(alloc)}>${plain(alloc.Name)}</a></li>`)}
        </ul>` : html`<${Empty}>None.<//>`}<//>
      <details><summary>JSON</summary><${CodeView} text=${JSON.stringify(volume, null, 2)} language="json" label="Volume" /></details>
    `}<//>
  `;
}
