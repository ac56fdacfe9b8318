/**
 * The only way to the server: the public HTTP API, with the session's cookie.
 *
 * Requests with an effect carry a content type and a header that no form of another site can set. Errors of the server are
 * `ApiError`s with its text, so that each page can show what happened, where, and what to do.
 */
import { signal } from "../../vendor/preact.js";

/** @typedef {any} Json */
/** @typedef {{query?: Record<string, any>, body?: any, signal?: AbortSignal, text?: boolean, headers?: Record<string, string>}} Options */

/** The region that requests go to; empty for the agent's own. */
export const region = signal("");
/** What the newest request told about the connection: "ok", "down" (no answer) or "leaderless". */
export const connection = signal("ok");

export class ApiError extends Error {
  /** @param {number} status 0 without an answer. @param {string} text @param {string} path */
  constructor(status, text, path) {
    super(text);
    this.status = status;
    this.path = path;
  }
}

/** What the reached agent answers itself, whatever region is chosen. */
const LOCAL = ["/v1/yurt/session", "/v1/yurt/ui/", "/v1/regions", "/v1/agent/", "/v1/metrics"];

/** A path with a query; parameters without a value are left out. */
export function url(path, query = {}) {
  const params = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    for (const each of Array.isArray(value) ? value : [value]) {
      if (each !== undefined && each !== null && each !== "" && each !== false) params.append(name, String(each));
    }
  }
  if (region.value && !params.has("region") && !LOCAL.some((local) => path.startsWith(local))) params.set("region", region.value);
  const text = params.toString();
  return text ? `${path}?${text}` : path;
}

/** A segment of a path: ids may hold slashes and anything else. */
export const segment = (text) => encodeURIComponent(text);

/** The answer to a request that `early.js` sent for this address; taken once. @returns {Promise<Response>|undefined} */
function early(address) {
  const sent = /** @type {any} */ (window).yurtEarly ?? {};
  const found = sent[address];
  delete sent[address];
  return found;
}

/**
 * The answer, or its body: both can break off, which is no answer.
 * @template T @param {string} path @param {Promise<T>} part @returns {Promise<T>}
 */
async function answered(path, part) {
  try {
    return await part;
  } catch (error) {
    if (isAbort(error)) throw error;
    connection.value = "down";
    throw new ApiError(0, "The agent does not answer. It may have stopped, or the network is interrupted.", path);
  }
}

/** @returns {Promise<Response>} the answer, whose status is below 400. */
export async function send(method, path, options = /** @type {Options} */ ({})) {
  const headers = { Accept: "application/json", "X-Yurt-Client": "ui", ...options.headers };
  const init = /** @type {RequestInit} */ ({ method, headers, signal: options.signal, credentials: "same-origin", cache: "no-store" });
  if (method !== "GET") {
    headers["Content-Type"] ??= "application/json";
    init.body = options.body === undefined ? "{}" : options.headers?.["Content-Type"] ? options.body : JSON.stringify(options.body);
  }
  const address = url(path, options.query);
  const response = await answered(path, (method === "GET" && early(address)) || fetch(address, init));
  if (response.ok) {
    connection.value = "ok";
    return response;
  }
  const text = (await answered(path, response.text())).trim() || response.statusText;
  connection.value = response.status === 500 && /no cluster leader/i.test(text) ? "leaderless" : "ok";
  throw new ApiError(response.status, text, path);
}

/** @returns {Promise<{data: Json, index: number, next: string, headers: Headers}>} a decoded answer and the index of its state. */
export async function call(method, path, options = /** @type {Options} */ ({})) {
  const response = await send(method, path, options);
  const text = await answered(path, response.text());
  const isJson = (response.headers.get("Content-Type") ?? "").includes("json");
  return {
    data: isJson && !options.text && text ? JSON.parse(text) : text,
    index: Number(response.headers.get("X-Nomad-Index") ?? 0),
    next: response.headers.get("X-Nomad-NextToken") ?? "",
    headers: response.headers,
  };
}

/** The decoded answer alone. @returns {Promise<Json>} */
export const get = async (path, query = {}, options = {}) => (await call("GET", path, { ...options, query })).data;
/** @returns {Promise<Json>} */
export const put = async (path, body = {}, query = {}) => (await call("PUT", path, { query, body })).data;
/** @returns {Promise<Json>} */
export const remove = async (path, query = {}, body = {}) => (await call("DELETE", path, { query, body })).data;

/** Yields the lines of a stream of JSON objects, decoded, until it ends or `signal` aborts it. */
export async function* lines(path, query, signal) {
  const response = await send("GET", path, { query, signal });
  const reader = /** @type {ReadableStream<Uint8Array>} */ (response.body).getReader();
  const decoder = new TextDecoder();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const parts = (rest + decoder.decode(value, { stream: true })).split("\n");
    rest = parts.pop() ?? "";
    for (const line of parts) if (line.trim()) yield JSON.parse(line);
  }
}

/** @returns {boolean} whether an error is only the end of a request that the page itself gave up. */
export const isAbort = (error) => error?.name === "AbortError";
