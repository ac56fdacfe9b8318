/**
 * Pages of small objects that are one JSON document each: a table, an editor of the document, deletion. Namespaces, node pools,
 * quotas, policies, roles and the rest of access control differ only in what is named here.
 *
 * @typedef {object} Kind
 * @property {string} noun
 * @property {string} list path of the list.
 * @property {(row: any) => string} path of one object.
 * @property {(body: any) => string} write path that takes the document.
 * @property {(row: any) => string} idOf
 * @property {import("./table.js").Column[]} columns
 * @property {any} fresh the document of a new object.
 * @property {string} needs the right to change one.
 * @property {(verb: "apply"|"delete", row: any) => string} command
 * @property {(row: any) => any} [strip] the document without what the server adds.
 * @property {(row: any) => boolean} [fixed] cannot be deleted.
 * @property {any} [empty]
 */
import { html, useState } from "../../vendor/preact.js";
import { call, get, remove } from "../core/api.js";
import { plain } from "../core/format.js";
import { useData } from "../core/load.js";
import { setQuery, query } from "../core/router.js";
import { missing } from "../core/session.js";
import { ActionButton } from "./action.js";
import { Command } from "./copy.js";
import { openDialog, closeDialog } from "./dialog.js";
import { Editor } from "./editor.js";
import { Empty, Loaded } from "./page.js";
import { LocalTable } from "./table.js";
import { toast } from "./toast.js";

const ADDED = ["CreateIndex", "ModifyIndex", "CreateTime", "ModifyTime", "Hash"];
const stripped = (row) => Object.fromEntries(Object.entries(row).filter(([name]) => !ADDED.includes(name)));

/** @param {{kind: Kind, row: any, done: (answer: any) => void}} props edits one document as JSON. */
function Document({ kind, row, done }) {
  const [text, setText] = useState(JSON.stringify((kind.strip ?? stripped)(row), null, 2));
  const [problem, setProblem] = useState("");
  const save = async () => {
    try {
      const body = JSON.parse(text);
      const { data } = await call("PUT", kind.write(body), { body });
      closeDialog();
      toast(`The ${kind.noun} was written`);
      done(data);
    } catch (error) {
      setProblem(/** @type {Error} */ (error).message);
    }
  };
  return html`
    <${Editor} text=${text} change=${setText} language="json" label=${`The ${kind.noun} as JSON`} />
    ${problem && html`<p class="bad" role="alert">${plain(problem)}</p>`}
    <${Command} text=${kind.command("apply", row)} />
    <div class="buttons"><button onClick=${closeDialog}>Cancel</button><button class="primary" onClick=${save}>Save</button></div>
  `;
}

const edit = (kind, row, done) =>
  openDialog(`${kind.noun[0].toUpperCase()}${kind.noun.slice(1)}`, () => html`<${Document} kind=${kind} row=${row} done=${done} />`, {
    wide: true,
  });

/** The actions of one object. */
function Row({ kind, row, reload }) {
  const lacks = missing([kind.needs]);
  const open = async () => {
    try {
      edit(kind, await get(kind.path(row)), reload);
    } catch (error) {
      toast(/** @type {Error} */ (error).message, "bad");
    }
  };
  const deletion = {
    label: "Delete",
    danger: true,
    needs: [kind.needs],
    unavailable: kind.fixed?.(row) ? `This ${kind.noun} cannot be deleted` : "",
    question: `Deletes the ${kind.noun} ${kind.idOf(row)}.`,
    command: kind.command("delete", row),
    run: () => remove(kind.path(row)),
    then: reload,
    done: `The ${kind.noun} was deleted`,
  };
  return html`<span
    class="actions">
    <button title=${lacks} aria-disabled=${Boolean(lacks)} onClick=${() => (lacks ? toast(lacks, "bad") : open())}>Edit</button>
    <${ActionButton} action=${deletion} /></span>`;
}

/** @param {{kind: Kind, created?: (answer: any) => void, tools?: any}} props */
export function Objects({ kind, created, tools = null }) {
  const state = useData((signal) => get(kind.list, {}, { signal }), [kind.list]);
  const lacks = missing([kind.needs]);
  const done = (answer) => {
    setQuery({ new: "" });
    state.reload();
    created?.(answer);
  };
  const fresh = () => (lacks ? toast(lacks, "bad") : edit(kind, kind.fresh, done));
  const [asked, setAsked] = useState(false);
  if (query("new") && !asked && state.data) {
    setAsked(true);
    queueMicrotask(fresh);
  }
  const columns = [
    ...kind.columns,
    { id: "actions", title: "", size: "10.5rem", cell: (row) => html`<${Row} kind=${kind} row=${row} reload=${state.reload} />` },
  ];
  const all = html`
    <button class="primary" title=${lacks} aria-disabled=${Boolean(lacks)} onClick=${fresh}>New ${kind.noun}</button>${tools}`;
  return html`
    <${Loaded} state=${state}>${(rows) => html`
      <${LocalTable} name="objects" label=${`${kind.noun}s`} columns=${columns} rows=${rows ?? []} keyOf=${kind.idOf}
        search=${(row) => JSON.stringify(row)} tools=${all} main=${true} empty=${kind.empty ?? html`<${Empty}>None.<//>`} />`}<//>
  `;
}
