/**
 * Who is signed in and what they may do. The token itself is in a cookie that scripts cannot read.
 *
 * What is missing is only shown; the server decides each request.
 */
import { signal } from "../../vendor/preact.js";
import { call, get, region, remove } from "./api.js";
import { restartLive } from "./live.js";
import { place } from "./router.js";

const PATH = "/v1/yurt/session";
const RENEW_MS = 5 * 60 * 1000;
const NOTHING = { ACL: false, SignedIn: false, Session: null, Token: null, Problem: "", Can: { Management: false, Namespaces: {} } };

/** The caller, as the server describes it. @type {import("../../vendor/preact.js").Signal<any>} */
export const session = signal(NOTHING);
/** The agent's settings for the pages. @type {import("../../vendor/preact.js").Signal<any>} */
export const config = signal({ Region: "", ACL: false, Label: {}, AuthMethods: [], Exec: true });

const REGION = "yurt-region";

/** Show another region from here on, in this tab: its servers answer through the agent that serves the pages. */
export function chooseRegion(name) {
  sessionStorage.setItem(REGION, name === config.value.Region ? "" : name);
  location.assign("/ui/");
}

/** The region of the address or of this tab. */
function startRegion() {
  const named = place.peek().query.get("region");
  if (named) sessionStorage.setItem(REGION, named === config.value.Region ? "" : named);
  region.value = sessionStorage.getItem(REGION) ?? "";
}

/** Read the session and the settings before the first page. */
export async function startSession() {
  [session.value, config.value] = await Promise.all([get(PATH), get("/v1/yurt/ui/config")]);
  startRegion();
  setInterval(() => {
    if (!document.hidden && session.value.Session) renew();
  }, RENEW_MS);
}

async function renew() {
  try {
    session.value = (await call("POST", PATH, {})).data;
  } catch {
    session.value = await get(PATH);
  }
}

/** @param {Record<string, string>} proof `SecretID`, `OneTimeSecretID`, or what a login method wants. */
export async function signIn(proof) {
  session.value = (await call("POST", PATH, { body: proof })).data;
  restartLive();
}

export async function signOut() {
  await remove(PATH);
  session.value = await get(PATH);
  restartLive();
}

const LEVELS = {
  Node: ["", "read", "write"],
  Agent: ["", "read", "write"],
  Operator: ["", "read", "write"],
  Quota: ["", "read", "write"],
  Plugin: ["", "list", "read", "write"],
};

/** Whether the caller has a right: a capability (`read-job`), a level (`node:write`), `variables:list`, `management`. */
export function may(right, namespace = "") {
  const { ACL, Can } = session.value;
  if (!ACL || Can.Management) return true;
  if (right === "management") return false;
  const [kind, level] = right.split(":");
  if (level === undefined) return inNamespaces(Can.Namespaces, namespace, right);
  if (kind === "variables") return inNamespaces(Can.Variables, namespace, level);
  if (kind === "node_pool") return inNamespaces(Can.NodePools, "", level);
  const name = kind[0].toUpperCase() + kind.slice(1).split("-")[0];
  const order = LEVELS[name] ?? [];
  return order.indexOf(Can[name] ?? "") >= order.indexOf(level.replace(/^keyring-/, ""));
}

function inNamespaces(rights, namespace, wanted) {
  const granted = rights ?? {};
  if (granted["*"]?.includes(wanted)) return true;
  if (namespace && namespace !== "*") return Boolean(granted[namespace]?.includes(wanted));
  return Object.values(granted).some((each) => each.includes(wanted));
}

/** What the caller lacks, as a sentence, or "". @param {string[]} needs rights, one of which suffices. */
export function missing(needs, namespace = "") {
  if (!needs.length || needs.some((right) => may(right, namespace))) return "";
  const where = namespace && !needs[0].includes(":") && needs[0] !== "management" ? ` in namespace "${namespace}"` : "";
  return `Your token lacks ${needs.join(" or ")}${where}`;
}
