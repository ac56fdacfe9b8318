/**
 * How values read: times, durations, sizes, ids. Texts of strangers show control and direction characters as escapes.
 */
import { settings } from "./settings.js";

const MILLION = 1e6;
const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
const SECONDS = [
  ["d", 86400],
  ["h", 3600],
  ["m", 60],
  ["s", 1],
];
// C0 and C1 controls, bidirectional overrides and isolates, zero-width characters.
const INVISIBLE = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;

/** A stranger's text with characters that show nothing, or reorder what is shown, as escapes. */
export const plain = (text) => String(text ?? "").replace(INVISIBLE, (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, "0")}`);

/** The first part of a UUID. */
export const short = (id) => String(id ?? "").slice(0, 8);

/** Nanoseconds since 1970 as a Date, or null for the zero of the API. */
export function moment(nanoseconds) {
  return nanoseconds > 0 && nanoseconds < 2 ** 62 ? new Date(nanoseconds / MILLION) : null;
}

/** @param {Date|null} date ISO form, in UTC or in local time with its offset. */
export function isoTime(date) {
  if (!date || Number.isNaN(date.getTime())) return "";
  if (settings.value.utc)
    return date
      .toISOString()
      .replace("T", " ")
      .replace(/\.\d+Z$/, " UTC");
  const pad = (number) => String(number).padStart(2, "0");
  const day = `${date.getFullYear()}-${pad(date.getMonth() + 1)}-${pad(date.getDate())}`;
  return `${day} ${pad(date.getHours())}:${pad(date.getMinutes())}:${pad(date.getSeconds())}`;
}

/** `2d 3h`: the largest units of a number of seconds. */
export function duration(seconds, units = 2) {
  if (!Number.isFinite(seconds)) return "";
  if (Math.abs(seconds) < 1) return seconds === 0 ? "0s" : `${Math.round(seconds * 1000)}ms`;
  let rest = Math.round(Math.abs(seconds));
  const parts = [];
  for (const [unit, size] of /** @type {[string, number][]} */ (SECONDS)) {
    const count = Math.floor(rest / size);
    rest -= count * size;
    if (count) parts.push(`${count}${unit}`);
  }
  return (seconds < 0 ? "-" : "") + parts.slice(0, units).join(" ");
}

/** `5m ago`, `in 3h`. @param {Date|null} date */
export function ago(date, now = Date.now(), units = 2) {
  if (!date) return "";
  const seconds = (now - date.getTime()) / 1000;
  if (Math.abs(seconds) < 2) return "now";
  return seconds > 0 ? `${duration(seconds, units)} ago` : `in ${duration(-seconds, units)}`;
}

/** Bytes with a binary unit. */
export function bytes(count) {
  if (!Number.isFinite(count)) return "";
  let value = count;
  let unit = 0;
  while (Math.abs(value) >= 1024 && unit < UNITS.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${unit && Math.abs(value) < 10 ? value.toFixed(1) : Math.round(value)} ${UNITS[unit]}`;
}

/** MiB as the API counts memory and disk. */
export const mebibytes = (count) => bytes(count * 1024 * 1024);
/** A share between 0 and 1. */
export const percent = (share) => (Number.isFinite(share) ? `${(share * 100).toFixed(share < 0.1 && share > 0 ? 1 : 0)} %` : "");
/** A number with separated thousands, at most three decimals. By hand: the first `toLocaleString` costs a page 40 ms. */
export function count(number) {
  const [whole, rest] = String(Math.round(Number(number ?? 0) * 1000) / 1000).split(".");
  return whole.replace(/\B(?=(\d{3})+$)/g, ",") + (rest ? `.${rest}` : "");
}
/** `1 node`, `3 nodes`. */
export const plural = (number, word) => `${count(number)} ${word}${number === 1 ? "" : "s"}`;

/** An argument of a shell command, quoted where it must be. */
export const quoted = (text) => (/^[\w@%+=:,./-]+$/.test(text) ? String(text) : `'${String(text).replaceAll("'", `'\\''`)}'`);

/** The shell command that does the same, for example `yurt job stop -purge web`. */
export function command(words, flags = {}, rest = []) {
  const flagWords = Object.entries(flags).flatMap(([name, value]) => {
    if (value === undefined || value === null || value === "" || value === false) return [];
    return value === true ? [`-${name}`] : [`-${name}=${quoted(value)}`];
  });
  return ["yurt", ...words, ...flagWords, ...rest.map(quoted)].join(" ");
}
