/** Access control: tokens, policies, roles, login methods, binding rules, and an explanation of who may do what. */
import { html, useState } from "../../vendor/preact.js";
import { call, segment } from "../core/api.js";
import { command, plain, short } from "../core/format.js";
import { href, query } from "../core/router.js";
import { session } from "../core/session.js";
import { Command, Copy, Id } from "../parts/copy.js";
import { openDialog } from "../parts/dialog.js";
import { Fields } from "../parts/form.js";
import { Objects } from "../parts/objects.js";
import { Empty, Facts, Heading, Section, Tabs, Time } from "../parts/page.js";
import { Status } from "../parts/status.js";

const expiry = (row) =>
  row.ExpirationTime && !String(row.ExpirationTime).startsWith("0001") ? html`<${Time} at=${new Date(row.ExpirationTime)} />` : "never";

/** @type {Record<string, import("../parts/objects.js").Kind>} */
const KINDS = {
  tokens: {
    noun: "token",
    list: "/v1/acl/tokens",
    path: (row) => `/v1/acl/token/${row.AccessorID}`,
    write: (row) => (row.AccessorID ? `/v1/acl/token/${row.AccessorID}` : "/v1/acl/token"),
    idOf: (row) => row.AccessorID,
    needs: "management",
    fresh: { Name: "", Type: "client", Policies: [], Roles: [], Global: false, ExpirationTTL: 600000000000 },
    strip: ({ SecretID, Hash, CreateIndex, ModifyIndex, CreateTime, ...row }) => row,
    command: (verb, row) =>
      verb === "delete"
        ? command(["acl", "token", "delete"], {}, [row.AccessorID])
        : row.AccessorID
          ? command(["acl", "token", "update"], { name: row.Name }, [row.AccessorID])
          : command(["acl", "token", "create"], { type: "client", policy: "…", ttl: "10m" }),
    columns: [
      { id: "name", title: "Name", value: (row) => row.Name, cell: (row) => plain(row.Name) },
      { id: "accessor", title: "Accessor", size: "8rem", cell: (row) => html`<${Id} id=${row.AccessorID} />` },
      { id: "type", title: "Type", value: (row) => row.Type, size: "7rem", cell: (row) => row.Type },
      {
        id: "policies",
        title: "Policies and roles",
        from: "md",
        cell: (row) => plain([...(row.Policies ?? []), ...(row.Roles ?? []).map((role) => role.Name)].join(", ")),
      },
      { id: "expires", title: "Expires", from: "lg", value: (row) => row.ExpirationTime ?? "9", size: "12rem", cell: expiry },
    ],
  },
  policies: {
    noun: "policy",
    list: "/v1/acl/policies",
    path: (row) => `/v1/acl/policy/${segment(row.Name)}`,
    write: (row) => `/v1/acl/policy/${segment(row.Name ?? "")}`,
    idOf: (row) => row.Name,
    needs: "management",
    fresh: { Name: "", Description: "", Rules: 'namespace "default" {\n  policy = "read"\n}\n' },
    command: (verb, row) =>
      verb === "delete"
        ? command(["acl", "policy", "delete"], {}, [row.Name])
        : command(["acl", "policy", "apply"], {}, [row.Name || "NAME", "policy.hcl"]),
    columns: [
      { id: "name", title: "Policy", value: (row) => row.Name, cell: (row) => plain(row.Name) },
      { id: "description", title: "Description", cell: (row) => plain(row.Description) },
    ],
  },
  roles: {
    noun: "role",
    list: "/v1/acl/roles",
    path: (row) => `/v1/acl/role/${row.ID}`,
    write: (row) => (row.ID ? `/v1/acl/role/${row.ID}` : "/v1/acl/role"),
    idOf: (row) => row.ID,
    needs: "management",
    fresh: { Name: "", Description: "", Policies: [{ Name: "" }] },
    command: (verb, row) =>
      verb === "delete"
        ? command(["acl", "role", "delete"], {}, [row.ID])
        : command(["acl", "role", row.ID ? "update" : "create"], { name: row.Name || "…", policy: "…" }, row.ID ? [row.ID] : []),
    columns: [
      { id: "name", title: "Role", value: (row) => row.Name, cell: (row) => plain(row.Name) },
      { id: "description", title: "Description", from: "md", cell: (row) => plain(row.Description) },
      { id: "policies", title: "Policies", cell: (row) => plain((row.Policies ?? []).map((each) => each.Name).join(", ")) },
    ],
  },
  methods: {
    noun: "login method",
    list: "/v1/acl/auth-methods",
    path: (row) => `/v1/acl/auth-method/${segment(row.Name)}`,
    write: (row) => (row.CreateIndex ? `/v1/acl/auth-method/${segment(row.Name)}` : "/v1/acl/auth-method"),
    idOf: (row) => row.Name,
    needs: "management",
    fresh: {
      Name: "",
      Type: "OIDC",
      TokenLocality: "local",
      MaxTokenTTL: "1h",
      Default: false,
      Config: {
        OIDCDiscoveryURL: "https://",
        OIDCClientID: "",
        OIDCClientSecret: "",
        BoundAudiences: [],
        AllowedRedirectURIs: [`${location.origin}/ui/sign-in`],
        ClaimMappings: {},
        ListClaimMappings: {},
      },
    },
    strip: ({ ModifyIndex, CreateTime, ModifyTime, Hash, ...row }) => row,
    command: (verb, row) =>
      verb === "delete"
        ? command(["acl", "auth-method", "delete"], {}, [row.Name])
        : command(["acl", "auth-method", row.CreateIndex ? "update" : "create"], { name: row.Name || "…", config: "@config.json" }),
    columns: [
      { id: "name", title: "Login method", value: (row) => row.Name, cell: (row) => plain(row.Name) },
      { id: "type", title: "Type", size: "6rem", cell: (row) => row.Type },
      { id: "default", title: "Default", size: "6rem", cell: (row) => (row.Default ? "default" : "") },
    ],
  },
  rules: {
    noun: "binding rule",
    list: "/v1/acl/binding-rules",
    path: (row) => `/v1/acl/binding-rule/${row.ID}`,
    write: (row) => (row.ID ? `/v1/acl/binding-rule/${row.ID}` : "/v1/acl/binding-rule"),
    idOf: (row) => row.ID,
    needs: "management",
    fresh: { Description: "", AuthMethod: "", Selector: "", BindType: "role", BindName: "" },
    command: (verb, row) =>
      verb === "delete"
        ? command(["acl", "binding-rule", "delete"], {}, [row.ID])
        : command(
            ["acl", "binding-rule", row.ID ? "update" : "create"],
            { "auth-method": row.AuthMethod || "…", "bind-type": "role", "bind-name": "…" },
            row.ID ? [row.ID] : [],
          ),
    columns: [
      { id: "id", title: "Rule", size: "8rem", cell: (row) => html`<${Id} id=${row.ID} />` },
      { id: "method", title: "Method", value: (row) => row.AuthMethod, cell: (row) => plain(row.AuthMethod) },
      { id: "description", title: "Description", from: "md", cell: (row) => plain(row.Description) },
    ],
  },
};
const TABS = /** @type {[string, string][]} */ ([
  ["", "You"],
  ["tokens", "Tokens"],
  ["policies", "Policies"],
  ["roles", "Roles"],
  ["methods", "Login methods"],
  ["rules", "Binding rules"],
  ["explain", "Explain"],
]);

/** The secret of a new token is shown once, here. */
const showSecret = (token) =>
  token?.SecretID &&
  openDialog(
    "The new token",
    ({ close }) => html`
  <p>The secret is shown only now. It gives all rights of the token.</p>
  <${Facts} facts=${[
    ["Accessor", html`<code>${token.AccessorID}</code>`],
    ["Secret", html`<code>${token.SecretID}</code> <${Copy} text=${token.SecretID} label="Copy secret" />`],
    ["Expires", expiry(token)],
  ]} />
  <div class="buttons"><button class="primary" onClick=${close}>Close</button></div>`,
  );

function Explain() {
  const [values, setValues] = useState({ accessor: "", action: "submit-job", namespace: "default" });
  const [answer, setAnswer] = useState(/** @type {any} */ (null));
  const [problem, setProblem] = useState("");
  const explain = async (event) => {
    event.preventDefault();
    try {
      setAnswer(
        (
          await call("POST", "/v1/yurt/acl/explain", {
            body: { AccessorID: values.accessor, Action: values.action, Namespace: values.namespace || null },
          })
        ).data,
      );
      setProblem("");
    } catch (error) {
      setProblem(/** @type {Error} */ (error).message);
    }
  };
  return html`
    <form class="form" onSubmit=${explain}>
      <${Fields} fields=${[
        { name: "accessor", label: "Accessor id of the token", hint: "empty for your own" },
        { name: "action", label: "Request or right", required: true, hint: 'for example "PUT /v1/jobs" or "alloc-exec"' },
        { name: "namespace", label: "Namespace" },
      ]} values=${values} change=${setValues} />
      <div class="buttons"><button class="primary" type="submit">Explain</button></div>
    </form>
    ${problem && html`<p class="bad" role="alert">${plain(problem)}</p>`}
    ${answer && html`<${Section} title="Answer"><pre class="code">${plain(JSON.stringify(answer, null, 2))}</pre><//>`}
    <${Command} text=${command(["acl", "explain"], { namespace: values.namespace }, [values.accessor || "self", values.action])} />
  `;
}

export function You() {
  const { ACL, SignedIn, Token, Session, Can, Problem } = session.value;
  if (!ACL)
    return html`<${Empty}>Access control is off: everybody
      who reaches the agent may do everything. <code>acl { enabled = true }</code> and <code>yurt acl bootstrap</code> switch it on.<//>`;
  return html`
    ${Problem && html`<p class="note bad">${plain(Problem)}</p>`}
    <${Section} title="Token"><${Facts} facts=${[
      ["Signed in", html`<${Status} status=${SignedIn ? "active" : "no"} />`],
      ["Name", Token?.Name],
      ["Accessor", Token && html`<code>${short(Token.AccessorID)}</code>`],
      ["Type", Token?.Type],
      ["Policies", Token?.Policies?.join(", ")],
      ["Roles", Token?.Roles?.map((role) => role.Name ?? role).join(", ")],
      ["Token expires", Token && (Token.ExpirationTime ? html`<${Time} at=${Token.ExpirationTime} />` : "never")],
      ["Session ends", Session && html`<${Time} at=${Session.EndsAt} />`],
    ]} /><//>
    <${Section} title="What you may do">${
      Can.Management
        ? html`<p>Everything: the token is for management.</p>`
        : html`
      <${Facts} facts=${[
        ["Nodes", Can.Node || "nothing"], ["Agents", Can.Agent || "nothing"], ["Operator", Can.Operator || "nothing"],
        ["Quotas", Can.Quota || "nothing"], ["Plugins", Can.Plugin || "nothing"],
        ...Object.entries(Can.Namespaces ?? {}).map(([name, rights]) => [`Namespace ${name}`, rights.join(", ")])]} />`
    }<//>
  `;
}

export function Access() {
  const tab = query("tab");
  return html`
    <${Heading} title="Access control" />
    <${Tabs} tabs=${session.value.ACL ? TABS : [TABS[0]]} current=${tab} to=${(name) => href(["access"], { tab: name })} />
    ${tab === "explain" ? html`<${Explain} />` : KINDS[tab]
      ? html`<${Objects} key=${tab} kind=${KINDS[tab]} created=${tab === "tokens" ? showSecret : undefined} />` : html`<${You} />`}
  `;
}
