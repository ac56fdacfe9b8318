/** The structured difference of two job versions, as the plan and the versions of the API give it. */
import { html, useState } from "../../vendor/preact.js";
import { plain } from "../core/format.js";

const SIGNS = { Added: "+", Deleted: "−", Edited: "±", None: " " };

const Line = ({ type, depth, children }) => html`
  <div class=${`diff-line ${type.toLowerCase()}`}
    style=${{ paddingLeft: `${depth * 1.25}rem` }}><b aria-label=${type}>${SIGNS[type] ?? " "}</b> ${children}</div>
`;

const FieldLine = ({ field, depth }) => html`
  <${Line} type=${field.Type} depth=${depth}>
    <span>${plain(field.Name)}: </span>
    ${field.Type !== "Added" && html`<del>${plain(field.Old) || '""'}</del>`}
    ${field.Type === "Edited" && " → "}
    ${field.Type !== "Deleted" && html`<ins>${plain(field.New) || '""'}</ins>`}
    ${field.Annotations?.length > 0 && html`<em> (${field.Annotations.map(plain).join(", ")})</em>`}
  <//>
`;

function ObjectLines({ object, depth, label }) {
  const fields = (object.Fields ?? []).filter((field) => field.Type !== "None");
  const inner = [...(object.Objects ?? []), ...(object.Tasks ?? [])].filter((each) => each.Type !== "None");
  const updates = Object.entries(object.Updates ?? {}).map(([name, number]) => `${number} ${name}`);
  return html`
    <${Line} type=${object.Type} depth=${depth}>
      <strong>${label ? `${label} ` : ""}${plain(object.Name ?? object.ID ?? "")}</strong>
      ${updates.length > 0 && html`<em> (${updates.join(", ")})</em>`}
      ${object.Annotations?.length > 0 && html`<em> (${object.Annotations.map(plain).join(", ")})</em>`}
    <//>
    ${fields.map((field, at) => html`<${FieldLine} key=${at} field=${field} depth=${depth + 1} />`)}
    ${inner.map((each, at) =>
      html`<${ObjectLines} key=${at} object=${each} depth=${depth + 1} label=${object.Tasks?.includes(each) ? "task" : ""} />`)}
  `;
}

/** @param {{diff: any}} props */
export function JobDiff({ diff }) {
  const groups = (diff?.TaskGroups ?? []).filter((group) => group.Type !== "None" || Object.keys(group.Updates ?? {}).length > 0);
  if (!diff || (diff.Type === "None" && !groups.length)) return html`<p class="empty">No differences.</p>`;
  const head = { ...diff, Name: diff.ID };
  return html`
    <div class="diff" role="group" aria-label="Differences">
      <${ObjectLines} object=${head} depth=${0} label="job" />
      ${groups.map((group) => html`<${ObjectLines} key=${group.Name} object=${group} depth=${1} label="group" />`)}
    </div>
  `;
}

/** Added and removed lines of two texts, side by side (both columns scroll together). */
export function TextDiff({ before, after }) {
  const [all, setAll] = useState(false);
  const rows = alignLines(before.split("\n"), after.split("\n"));
  const shown = all ? rows : near(rows);
  return html`
    <div class="side-by-side" role="group" aria-label="Lines side by side">
      ${shown.map(
        ([left, right, same], at) => html`
        <pre key=${`l${at}`} class=${same ? "" : left === null ? "gap" : "deleted"}>${plain(left ?? "")}</pre>
        <pre key=${`r${at}`} class=${same ? "" : right === null ? "gap" : "added"}>${plain(right ?? "")}</pre>`,
      )}
    </div>
    ${shown.length < rows.length && html`<button onClick=${() => setAll(true)}>Show all ${rows.length} lines</button>`}
  `;
}

const CONTEXT = 3;
const LINES_MAX = 2000;

/** Rows that changed, with some lines around them. */
function near(rows) {
  const wanted = new Set();
  rows.forEach(([, , same], at) => {
    if (!same) for (let line = at - CONTEXT; line <= at + CONTEXT; line += 1) wanted.add(line);
  });
  return rows.filter((_, at) => wanted.has(at));
}

/** Longest common subsequence of lines: `[left, right, same]` rows. Texts beyond `LINES_MAX` lines are compared line by line. */
export function alignLines(left, right) {
  if (left.length > LINES_MAX || right.length > LINES_MAX) {
    const height = Math.max(left.length, right.length);
    return Array.from({ length: height }, (_, at) => [left[at] ?? null, right[at] ?? null, left[at] === right[at]]);
  }
  const width = right.length + 1;
  const lengths = new Uint16Array((left.length + 1) * width);
  for (let a = left.length - 1; a >= 0; a -= 1) {
    for (let b = right.length - 1; b >= 0; b -= 1) {
      lengths[a * width + b] =
        left[a] === right[b] ? lengths[(a + 1) * width + b + 1] + 1 : Math.max(lengths[(a + 1) * width + b], lengths[a * width + b + 1]);
    }
  }
  const rows = [];
  let a = 0;
  let b = 0;
  while (a < left.length || b < right.length) {
    if (a < left.length && b < right.length && left[a] === right[b]) rows.push([left[a++], right[b++], true]);
    else if (b < right.length && (a >= left.length || lengths[a * width + b + 1] > lengths[(a + 1) * width + b]))
      rows.push([null, right[b++], false]);
    else rows.push([left[a++], null, false]);
  }
  return rows;
}
