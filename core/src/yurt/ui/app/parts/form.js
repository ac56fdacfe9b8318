/** Labelled inputs from a list of fields: text, number, checkbox, select, textarea. */
import { html, useId } from "../../vendor/preact.js";

/**
 * @typedef {object} Field
 * @property {string} name
 * @property {string} label
 * @property {"text"|"number"|"checkbox"|"select"|"textarea"|"password"} [kind]
 * @property {any} [value] at first.
 * @property {(string | [string, string])[]} [options] of a select: values, or values with labels.
 * @property {string} [hint]
 * @property {boolean} [required]
 * @property {number} [min]
 * @property {number} [max]
 */

/** The first values of fields. @param {Field[]} fields */
export const initial = (fields) =>
  Object.fromEntries(fields.map((field) => [field.name, field.value ?? (field.kind === "checkbox" ? false : "")]));

function Input({ field, id, value, change }) {
  const common = { id, name: field.name, required: field.required, "aria-describedby": field.hint ? `${id}-hint` : undefined };
  if (field.kind === "checkbox")
    return html`<input type="checkbox" ...${common} checked=${value} onChange=${(e) => change(e.target.checked)} />`;
  if (field.kind === "textarea")
    return html`<textarea rows="6" ...${common} value=${value} onInput=${(e) => change(e.target.value)}></textarea>`;
  if (field.kind === "select") {
    const options = (field.options ?? []).map((each) => (Array.isArray(each) ? each : [each, each]));
    return html`
      <select ...${common} value=${value} onChange=${(e) => change(e.target.value)}>
        ${options.map(([key, label]) => html`<option key=${key} value=${key} selected=${key === value}>${label}</option>`)}
      </select>
    `;
  }
  const numeric = field.kind === "number";
  return html`
    <input type=${field.kind ?? "text"} ...${common} value=${value} min=${field.min} max=${field.max} autocomplete="off"
      spellcheck="false"
      onInput=${(e) => change(numeric && e.target.value !== "" ? Number(e.target.value) : e.target.value)} />
  `;
}

function Labelled({ field, value, change }) {
  const id = useId();
  return html`
    <div class=${`field ${field.kind ?? "text"}`}>
      <label for=${id}>${field.label}${field.required ? " (required)" : ""}</label>
      <${Input} field=${field} id=${id} value=${value} change=${change} />
      ${field.hint && html`<small id=${`${id}-hint`} class="dim">${field.hint}</small>`}
    </div>
  `;
}

/** @param {{fields: Field[], values: any, change: (values: any) => void}} props */
export const Fields = ({ fields, values, change }) =>
  fields.map(
    (field) => html`
      <${Labelled} key=${field.name} field=${field} value=${values[field.name]}
        change=${(value) => change({ ...values, [field.name]: value })} />
    `,
  );
