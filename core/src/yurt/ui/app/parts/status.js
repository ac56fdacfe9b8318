/** States in words, with a sign and a colour: never by colour alone. */
import { html } from "../../vendor/preact.js";
import { plain } from "../core/format.js";

const KINDS = {
  good: ["healthy", "running", "ready", "complete", "successful", "alive", "eligible", "active", "passing", "up", "success"],
  bad: ["failed", "failing", "lost", "down", "unhealthy", "critical", "cancelled", "left", "failure", "expired"],
  warn: [
    "degraded",
    "suspect",
    "probation",
    "recovering",
    "pending",
    "deploying",
    "waiting",
    "blocked",
    "draining",
    "initializing",
    "disconnected",
    "unknown",
    "ineligible",
    "paused",
    "starting",
    "reconnecting",
    "queued",
    "disabled",
    "expiring",
  ],
};
const SIGNS = { good: "●", bad: "▲", warn: "◆", dim: "○" };
const KIND_OF = Object.fromEntries(Object.entries(KINDS).flatMap(([kind, words]) => words.map((word) => [word, kind])));

/** @returns {"good"|"bad"|"warn"|"dim"} */
export const kindOf = (status) => /** @type {any} */ (KIND_OF[String(status).toLowerCase()] ?? "dim");

export const Status = ({ status, note = "" }) => {
  const kind = kindOf(status);
  return html`<span class=${`status ${kind}`} title=${plain(note)}><span aria-hidden="true">${SIGNS[kind]}</span> ${plain(status)}
    </span>`;
};

/** The state of a card; agents of a version before states report only whether it is healthy. @param {{card: any}} props */
export const CardStatus = ({ card }) => html`
  <${Status} status=${card.State ?? (card.Healthy ? "healthy" : "unhealthy")} note=${card.Problem} />
`;

const ORDER = ["running", "starting", "pending", "queued", "unknown", "failed", "lost", "complete"];

/** A bar of counts by status; the text next to it says the same. @param {{counts: Record<string, number>}} props */
export function Counts({ counts }) {
  const shown = ORDER.filter((name) => counts[name] > 0);
  const text = shown.map((name) => `${counts[name]} ${name}`).join(", ") || "none";
  return html`
    <span class="counts" title=${text}>
      <span class="strip" aria-hidden="true">
        ${shown.map((name) => html`<i key=${name} class=${kindOf(name)} style=${{ flexGrow: counts[name] }}></i>`)}
      </span>
      <span>${text}</span>
    </span>
  `;
}

/** How much of something is used: a bar with its numbers. @param {{used: number, total: number, text: string, label: string}} props */
export function Meter({ used, total, text, label }) {
  const share = total > 0 ? Math.min(1, used / total) : 0;
  const kind = share > 0.95 ? "bad" : share > 0.8 ? "warn" : "good";
  return html`
    <span class="meter" role="img" aria-label=${`${label}: ${text}`} title=${`${label}: ${text}`}>
      <span class="track"><i class=${kind} style=${{ width: `${share * 100}%` }}></i></span><span>${text}</span>
    </span>
  `;
}
