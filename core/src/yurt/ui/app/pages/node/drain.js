/** Draining a node: the form, the equivalent command, and the request. The last choice is offered again. */
import { put } from "../../core/api.js";
import { command } from "../../core/format.js";
import { choose, settings } from "../../core/settings.js";

const NANOSECONDS = 1e9;
const DEADLINES = /** @type {[string, string][]} */ ([
  ["none", "No deadline"],
  ["15m", "15 minutes"],
  ["1h", "1 hour"],
  ["4h", "4 hours"],
  ["24h", "1 day"],
  ["own", "Own"],
]);
const UNITS = { s: 1, m: 60, h: 3600, d: 86400 };

/** Nanoseconds of "90m", "1h30m"; raises TypeError. */
export function nanoseconds(text) {
  const parts = [...String(text).matchAll(/(\d+(?:\.\d+)?)([smhd])/g)];
  if (!parts.length || parts.map(([part]) => part).join("") !== text)
    throw new TypeError(`"${text}" is not a valid duration; use a number and a unit, for example "30m"`);
  return parts.reduce((sum, [, number, unit]) => sum + Number(number) * UNITS[unit], 0) * NANOSECONDS;
}

/** @returns {import("../../parts/form.js").Field[]} */
export function drainFields() {
  const before = settings.value.drain;
  return [
    { name: "deadline", label: "Deadline", kind: "select", options: DEADLINES, value: before.Deadline },
    { name: "own", label: "Own deadline", hint: 'for example "90m"; counts with "Own"', value: "" },
    { name: "force", label: "Force: stop everything at once", kind: "checkbox" },
    { name: "ignore", label: "Leave system jobs running", kind: "checkbox", value: before.IgnoreSystemJobs },
    { name: "message", label: "Reason", value: "" },
  ];
}

const deadlineOf = (values) => (values.deadline === "own" ? values.own : values.deadline);

export const drainCommand = (values, id) =>
  command(["node", "drain"], {
    enable: true,
    yes: true,
    deadline: values.deadline === "none" || values.force ? "" : deadlineOf(values),
    "no-deadline": values.deadline === "none" && !values.force,
    force: values.force,
    "ignore-system": values.ignore,
    m: values.message,
  }, [id]);

/** Starts the drain of a node; raises TypeError for a deadline that is none. */
export function startDrain(values, id) {
  choose({ drain: { Deadline: values.deadline, IgnoreSystemJobs: values.ignore } });
  const deadline = values.force ? -NANOSECONDS : values.deadline === "none" ? 0 : nanoseconds(deadlineOf(values));
  return put(`/v1/node/${id}/drain`, {
    DrainSpec: { Deadline: deadline, IgnoreSystemJobs: values.ignore },
    MarkEligible: false,
    Meta: values.message ? { message: values.message } : {},
  });
}
