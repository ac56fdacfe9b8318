/** Namespaces with their rules, and quotas with their use. */
import { html } from "../../vendor/preact.js";
import { get, segment } from "../core/api.js";
import { command, count, plain } from "../core/format.js";
import { useData } from "../core/load.js";
import { href, query } from "../core/router.js";
import { Heading, Tabs } from "../parts/page.js";
import { Objects } from "../parts/objects.js";

/** @type {import("../parts/objects.js").Kind} */
const NAMESPACE = {
  noun: "namespace",
  list: "/v1/namespaces",
  path: (row) => `/v1/namespace/${segment(row.Name)}`,
  write: (row) => `/v1/namespace/${segment(row.Name ?? "")}`,
  idOf: (row) => row.Name,
  needs: "management",
  fresh: {
    Name: "",
    Description: "",
    Quota: "",
    Meta: {},
    Capabilities: { EnabledTaskDrivers: null, DisabledTaskDrivers: null },
    NodePoolConfiguration: { Default: "default", Allowed: null, Denied: null },
  },
  fixed: (row) => row.Name === "default",
  command: (verb, row) =>
    verb === "delete"
      ? command(["namespace", "delete"], {}, [row.Name])
      : command(["namespace", "apply"], { json: true }, ["namespace.json"]),
  columns: [
    {
      id: "name",
      title: "Namespace",
      value: (row) => row.Name,
      cell: (row) => html`<a href=${href(["jobs"], { Namespace: row.Name })}>${plain(row.Name)}</a>`,
    },
    { id: "description", title: "Description", from: "md", cell: (row) => plain(row.Description) },
    { id: "quota", title: "Quota", from: "md", value: (row) => row.Quota, size: "8rem", cell: (row) => plain(row.Quota) },
    {
      id: "pools",
      title: "Node pools",
      from: "lg",
      cell: (row) =>
        plain([row.NodePoolConfiguration?.Default, ...(row.NodePoolConfiguration?.Allowed ?? [])].filter(Boolean).join(", ")),
    },
  ],
};

/** @type {import("../parts/objects.js").Kind} */
const QUOTA = {
  noun: "quota",
  list: "/v1/quotas",
  path: (row) => `/v1/quota/${segment(row.Name)}`,
  write: (row) => `/v1/quota/${segment(row.Name ?? "")}`,
  idOf: (row) => row.Name,
  needs: "quota:write",
  fresh: { Name: "", Description: "", Limits: [{ Region: "global", RegionLimit: { CPU: 0, MemoryMB: 0 } }] },
  command: (verb, row) =>
    verb === "delete" ? command(["quota", "delete"], {}, [row.Name]) : command(["quota", "apply"], { json: true }, ["quota.json"]),
  columns: [
    { id: "name", title: "Quota", value: (row) => row.Name, cell: (row) => plain(row.Name) },
    { id: "description", title: "Description", from: "md", cell: (row) => plain(row.Description) },
    { id: "usage", title: "Used of the limits", size: "minmax(12rem, 2fr)", cell: (row) => html`<${Usage} quota=${row} />` },
  ],
};

function Usage({ quota }) {
  const state = useData((signal) => get(`/v1/quota/usage/${segment(quota.Name)}`, {}, { signal }), [quota.Name, quota.ModifyIndex]);
  const limits = (quota.Limits ?? []).map((limit) => {
    const used = Object.values(state.data?.Used ?? {}).find((each) => each.Region === limit.Region)?.RegionLimit ?? {};
    return ["CPU", "MemoryMB"]
      .filter((name) => limit.RegionLimit?.[name] > 0)
      .map((name) => `${name} ${count(used[name] ?? 0)} of ${count(limit.RegionLimit[name])}`)
      .join(", ");
  });
  return html`<span>${limits.join("; ")}</span>`;
}

export function Namespaces() {
  const tab = query("tab");
  return html`
    <${Heading} title="Namespaces" />
    <${Tabs} tabs=${[
      ["", "Namespaces"],
      ["quotas", "Quotas"],
    ]} current=${tab} to=${(name) => href(["namespaces"], { tab: name })} />
    <${Objects} key=${tab} kind=${tab === "quotas" ? QUOTA : NAMESPACE} />
  `;
}
