/** Evaluations that caused each other, as a tree: previous above next, blocked ones beside; at most `SHOWN_MAX` are drawn. */
import { html } from "../../vendor/preact.js";
import { plain, short } from "../core/format.js";
import { href } from "../core/router.js";
import { Status } from "./status.js";

const SHOWN_MAX = 60;

/** The evaluations as a forest by what caused them. @returns {{row: any, next: any[]}[]} */
export function forest(rows) {
  const nodes = new Map(rows.map((row) => [row.ID, { row, next: /** @type {any[]} */ ([]) }]));
  const roots = [];
  for (const node of nodes.values()) {
    const parent =
      nodes.get(node.row.PreviousEval) ??
      [...nodes.values()].find((each) => each.row.NextEval === node.row.ID || each.row.BlockedEval === node.row.ID);
    if (parent && parent !== node) parent.next.push(node);
    else roots.push(node);
  }
  return roots;
}

function Branch({ node, current }) {
  const { row } = node;
  return html`
    <li><${Status}
      status=${row.Status} /> ${row.ID === current ? html`<strong>${short(row.ID)}</strong>`
      : html`<a href=${href(["evaluations", row.ID])}>${short(row.ID)}</a>`} <span class="dim">${plain(row.TriggeredBy)}</span>
      ${node.next.length > 0
        && html`<ul class="tree">${node.next.map((each) => html`<${Branch} key=${each.row.ID} node=${each} current=${current} />`)}</ul>`}
        </li>
  `;
}

/** @param {{current: any, related: any[]}} props */
export function EvaluationGraph({ current, related }) {
  const rows = [current, ...related.filter((row) => row.ID !== current.ID)].slice(0, SHOWN_MAX);
  return html`<div
    class="graph">
    <ul class="tree">${forest(rows).map((node) => html`<${Branch} key=${node.row.ID} node=${node} current=${current.ID} />`)}</ul></div>
    ${related.length >= SHOWN_MAX && html`<p class="dim">The first ${SHOWN_MAX} of ${related.length + 1}.</p>`}`;
}
