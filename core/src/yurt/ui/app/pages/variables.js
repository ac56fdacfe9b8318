/** Variables: paths as a tree, one variable with masked values, edited under check-and-set so that no change of others is lost. */
import { html, useMemo, useState } from "../../vendor/preact.js";
import { ApiError, get, put, remove, segment } from "../core/api.js";
import { command, count, plain } from "../core/format.js";
import { useKeys } from "../core/keys.js";
import { useData } from "../core/load.js";
import { go, href, query, setQuery } from "../core/router.js";
import { missing, session } from "../core/session.js";
import { Actions } from "../parts/action.js";
import { CodeView } from "../parts/editor.js";
import { Command, Copy } from "../parts/copy.js";
import { Empty, Facts, Heading, Loaded, Section, Time, When } from "../parts/page.js";
import { LocalTable } from "../parts/table.js";
import { toast } from "../parts/toast.js";

const PAGE = 5000;
const pathOf = (path) => `/v1/var/${path.split("/").map(segment).join("/")}`;
const variableHref = (row) => href(["variables", ...row.Path.split("/")], { namespace: row.Namespace });

/** Folders and variables directly below a prefix. */
export function below(rows, prefix) {
  const folders = new Map();
  const files = [];
  for (const row of rows) {
    if (!row.Path.startsWith(prefix)) continue;
    const rest = row.Path.slice(prefix.length);
    const slash = rest.indexOf("/");
    if (slash < 0) files.push(row);
    else folders.set(rest.slice(0, slash), (folders.get(rest.slice(0, slash)) ?? 0) + 1);
  }
  return [...[...folders].sort().map(([name, number]) => ({ folder: name, number, Path: `${prefix}${name}/` })), ...files];
}

const COLUMNS = [
  {
    id: "path",
    title: "Path",
    value: (row) => row.Path,
    size: "minmax(10rem, 3fr)",
    cell: (row) =>
      row.folder
        ? html`<a href=${href(["variables"], { prefix: row.Path, namespace: query("namespace") })}>📁 ${plain(row.folder)}
          </a> <span class="dim">${count(row.number)}</span>`
        : html`<a href=${variableHref(row)}>${plain(row.Path.split("/").at(-1))}</a>`,
  },
  {
    id: "namespace",
    title: "Namespace",
    from: /** @type {"md"} */ ("md"),
    value: (row) => row.Namespace,
    cell: (row) => plain(row.Namespace),
  },
  {
    id: "changed",
    title: "Changed",
    value: (row) => row.ModifyTime,
    number: true,
    size: "7rem",
    cell: (row) => (row.folder ? "" : html`<${When} at=${row.ModifyTime} />`),
  },
];

function Prefix({ prefix }) {
  const names = prefix.split("/").filter(Boolean);
  return html`<nav class="crumbs"
    aria-label="Folder"><a href=${href(["variables"], { namespace: query("namespace") })}>all</a>
    ${names.map((name, at) =>
    html`<span key=${at}>/ <a
    href=${href(["variables"], { prefix: `${names.slice(0, at + 1).join("/")}/`, namespace: query("namespace") })}>${plain(name)}</a>
    </span>`)}</nav>`;
}

export function Variables() {
  const namespace = query("namespace", "*");
  const prefix = query("prefix");
  const flat = query("flat") === "1";
  const state = useData((signal) => get("/v1/vars", { namespace, prefix, per_page: PAGE }, { signal }), [namespace, prefix]);
  const rows = useMemo(() => (flat ? (state.data ?? []) : below(state.data ?? [], prefix)), [state.data, prefix, flat]);
  const names = Object.keys(session.value.Can.Namespaces ?? {}).filter((name) => name !== "*");
  if (query("new"))
    return html`<${Heading} title="New variable" crumbs=${[["Variables", "/ui/variables"]]} />
      <${Editor} path=${prefix} namespace=${namespace === "*" ? "default" : namespace} items=${{}} index=${0} isNew=${true}
      saved=${(row) => go(variableHref(row))} />`;
  return html`
    <${Heading} title="Variables">
      <div class="actions"><button class="primary" onClick=${() => setQuery({ new: "1" }, { replace: false })}>New variable</button></div>
      <//>
    <div class="filters"><${Prefix} prefix=${prefix} />
      ${names.length > 1
        && html`<label>Namespace <select value=${namespace}
        onChange=${(event) => setQuery({ namespace: event.target.value })}><option value="*">all</option>
        ${names.map((name) => html`<option key=${name} value=${name} selected=${name === namespace}>${plain(name)}</option>`)}</select>
        </label>`}
      <label><input type="checkbox" checked=${flat}
        onChange=${(event) => setQuery({ flat: event.target.checked ? "1" : "" })} /> Whole paths</label></div>
    <${Loaded} state=${state}>${(found) => html`
      ${found.length === PAGE && html`<p class="note">The first ${count(PAGE)} variables.</p>`}
      <${LocalTable} name="variables" label="Variables"
        columns=${flat
        ? [{ ...COLUMNS[0], cell: (row) => html`<a href=${variableHref(row)}>${plain(row.Path)}</a>` }, ...COLUMNS.slice(1)] : COLUMNS}
        rows=${rows} keyOf=${(row) => `${row.Namespace ?? ""}/${row.Path}`}
        href=${(row) => (row.folder ? href(["variables"], { prefix: row.Path, namespace: query("namespace") }) : variableHref(row))}
          search=${(row) => row.Path} main=${true} empty=${html`<${Empty}>No variables here.<//>`} />`}<//>
  `;
}

function Items({ items, change }) {
  const edit = (at, part) => change(items.map((item, index) => (index === at ? { ...item, ...part } : item)));
  return html`
    ${items.map(
      (item, at) => html`
      <div class="filters" key=${at}>
        <input aria-label=${`Key ${at + 1}`} placeholder="key" value=${item.key}
          onInput=${(event) => edit(at, { key: event.target.value })} spellcheck="false" />
        <textarea rows="1" aria-label=${`Value ${at + 1}`} placeholder="value" value=${item.value}
          onInput=${(event) => edit(at, { value: event.target.value })} spellcheck="false"
          style=${{ flex: 1, minWidth: "10rem", width: "auto" }}></textarea>
        <button type="button" class="quiet" aria-label=${`Remove key ${at + 1}`}
          onClick=${() => change(items.filter((_, index) => index !== at))}>✕</button>
      </div>`,
    )}
    <p><button type="button" onClick=${() => change([...items, { key: "", value: "" }])}>Add a key</button></p>
  `;
}

/** The reason why the variable cannot be written, or "". */
export function problemOf(path, items) {
  if (!/^[a-zA-Z0-9-_~/]{1,128}$/.test(path) || path.startsWith("/") || path.endsWith("/"))
    return "The path has 1 to 128 of a-z, A-Z, 0-9, - _ ~ and /, and begins and ends with none";
  if (!items.length) return "A variable has at least one key";
  const keys = items.map((item) => item.key);
  if (keys.some((key) => !key)) return "Every key needs a name";
  const twice = keys.find((key, at) => keys.indexOf(key) !== at);
  return twice ? `The key "${twice}" is there twice` : "";
}

function Editor({ path: first, namespace: where, items, index, isNew, saved }) {
  const [path, setPath] = useState(first);
  const [namespace, setNamespace] = useState(where);
  const [rows, setRows] = useState(isNew ? [{ key: "", value: "" }] : Object.entries(items).map(([key, value]) => ({ key, value })));
  const [conflict, setConflict] = useState(/** @type {any} */ (null));
  const [failure, setFailure] = useState("");
  const problem = problemOf(path, rows);
  const body = { Namespace: namespace, Path: path, Items: Object.fromEntries(rows.map(({ key, value }) => [key, value])) };
  const write = async (cas) => {
    try {
      await put(pathOf(path), body, { namespace, cas });
      toast(`${path} was written`);
      saved(body);
    } catch (error) {
      if (error instanceof ApiError && error.status === 409) setConflict(JSON.parse(error.message));
      else setFailure(/** @type {Error} */ (error).message);
    }
  };
  const save = (event) => {
    event.preventDefault();
    if (!problem) write(String(index));
  };
  return html`
    <form class="form" onSubmit=${save}>
      ${
        isNew &&
        html`<div class="field"><label for="variable-path">Path</label>
          <input id="variable-path" value=${path} onInput=${(event) => setPath(event.target.value)} required spellcheck="false"
          placeholder="nomad/jobs/web" /></div>
        <div class="field"><label for="variable-namespace">Namespace</label>
          <input id="variable-namespace" value=${namespace} onInput=${(event) => setNamespace(event.target.value)} required /></div>`
      }
      <${Items} items=${rows} change=${setRows} />
      ${
        conflict &&
        html`<div class="note"
          role="alert">Somebody changed the variable (index ${conflict.ModifyIndex}) since you read it (index ${index}).
        <span class="buttons"><button type="button" onClick=${() => saved(body)}>Read theirs</button>
          <button type="button" class="danger" onClick=${() => write(String(conflict.ModifyIndex))}>Overwrite theirs</button></span>
          </div>`
      }
      ${(failure || problem) && html`<p class=${failure ? "bad" : "dim"} role="status">${plain(failure || problem)}</p>`}
      <${Command} text=${command(
        ["var", "put"], { namespace: namespace === "default" ? "" : namespace, "check-index": index || "" },
        [path, ...rows.filter((row) => row.key).map((row) => `${row.key}=…`)])} />
      <div class="buttons"><button type="submit" class="primary" disabled=${Boolean(problem)}>Save</button></div>
    </form>
  `;
}

function Values({ items }) {
  const [shown, setShown] = useState(false);
  useKeys([{ keys: "v", help: "Show or hide the values", run: () => setShown((before) => !before) }]);
  return html`
    <div class="filters"><button aria-pressed=${shown} onClick=${() => setShown(!shown)}>${shown ? "Hide values" : "Show values"}</button>
      <${Copy} text=${JSON.stringify(items, null, 2)} label="Copy all as JSON" name="" /></div>
    ${
      query("as") === "json" && shown
        ? html`<${CodeView} text=${JSON.stringify(items, null, 2)} language="json" label="Items" />`
        : html`
      <table class="plain-table"><thead><tr><th>Key</th><th>Value</th><th></th></tr></thead>
        <tbody>${Object.entries(items)
        .map(([key, value]) =>
        html`<tr key=${key}><td>${plain(key)}</td><td><code>${shown ? plain(value) : "••••••••"}</code></td>
        <td><${Copy} text=${value} label="Copy value" name=${key} /></td></tr>`)}</tbody></table>`
    }
  `;
}

/** What the path says about who may read the variable. */
function Related({ path, namespace }) {
  const found = /^nomad\/jobs(?:\/([^/]+))?(?:\/([^/]+))?(?:\/([^/]+))?$/.exec(path);
  if (!found) return null;
  const [, job, group, task] = found;
  if (!job) return html`<p class="dim">Every job of the namespace may read it.</p>`;
  return html`<p
    class="dim">Tasks of job <a href=${href(["jobs", job], { namespace })}>${plain(job)}</a>${group ? `, group ${plain(group)}` : ""}
    ${task ? `, task ${plain(task)}` : ""} may read it by themselves.</p>`;
}

export function Variable({ path }) {
  const namespace = query("namespace", "default");
  const state = useData((signal) => get(pathOf(path), { namespace }, { signal }), [path, namespace]);
  const [editing, setEditing] = useState(false);
  const row = state.data;
  const deletion = row && {
    label: "Delete",
    danger: true,
    needs: ["variables:destroy"],
    namespace,
    question: `Deletes the variable ${path}.`,
    command: command(["var", "purge"], { namespace: namespace === "default" ? "" : namespace, "check-index": row.ModifyIndex }, [path]),
    run: () => remove(pathOf(path), { namespace, cas: row.ModifyIndex }),
    then: () => go(href(["variables"], { namespace })),
    done: "The variable was deleted",
  };
  const lacks = missing(["variables:write"], namespace);
  return html`
    <${Heading} title=${path} kind="variable" crumbs=${[["Variables", "/ui/variables"]]}>
      ${row && html`
        <div class="actions">
        <button aria-disabled=${Boolean(lacks)} title=${lacks}
        onClick=${() => (lacks ? toast(lacks, "bad") : setEditing(!editing))}>${editing ? "Do not edit" : "Edit"}</button></div>
        <${Actions} actions=${[deletion]} />`}
    <//>
    <${Loaded} state=${state}>${() => html`
      <${Section} title="Items">${
        editing
          ? html`<${Editor} path=${path} namespace=${namespace} items=${row.Items ?? {}} index=${row.ModifyIndex} isNew=${false}
            saved=${() => {
              setEditing(false);
              state.reload();
            }} />`
          : html`<${Values} items=${row.Items ?? {}} />`
      }<//>
      <${Related} path=${path} namespace=${namespace} />
      <${Section} title="Facts"><${Facts} facts=${[
        ["Namespace", row.Namespace],
        ["Created", html`<${Time} at=${row.CreateTime} />`],
        ["Changed", html`<${Time} at=${row.ModifyTime} />`],
        ["Index", String(row.ModifyIndex)],
        ["Lock", row.Lock && `held: ${row.Lock.ID}`],
      ]} /><//>
    `}<//>
  `;
}
