/**
 * The hub of live updates: one stream of the server (`/v1/yurt/watch`) for all views that all pages of a browser show.
 *
 * Pages subscribe views; equal views share one. When the set changes, a new stream begins at the last index and the old one is
 * closed. A broken stream is opened again with growing pauses, and all views are told to read their lists again where changes
 * may have been lost. While every page is hidden there is no stream. Views that do not fit into the address of one request, and those
 * of other regions, get a resync mark every `REST_MS` instead.
 *
 * @typedef {{subscribe?: string, view?: any, index?: number, unsubscribe?: string, hidden?: boolean, restart?: boolean}} Wish
 */
const VIEWS_MAX = 32;
const QUERY_MAX = 6000;
const GATHER_MS = 30;
const PAUSES_MS = [500, 1000, 2000, 5000, 10000];
const REST_MS = 10000;
const SILENCE_MS = 40000;

export class Hub {
  constructor(base = "") {
    this.base = base;
    /** @type {Map<any, {hidden: boolean, post: (message: any) => void, views: Map<string, string>}>} pages by port */
    this.pages = new Map();
    this.index = 0;
    this.failures = 0;
    this.controller = /** @type {AbortController|null} */ (null);
    this.timer = /** @type {any} */ (0);
    this.state = "paused";
    setInterval(() => this.resync(this.split().rest), REST_MS);
  }

  add(port, post) {
    this.pages.set(port, { hidden: false, post, views: new Map() });
    post({ state: this.state });
  }

  drop(port) {
    this.pages.delete(port);
    this.restart();
  }

  /** @param {Wish} wish */
  receive(port, wish) {
    const page = this.pages.get(port);
    if (!page) return;
    if (wish.subscribe) {
      page.views.set(wish.subscribe, JSON.stringify(wish.view));
      if (wish.index) this.index = this.index ? Math.min(this.index, wish.index) : wish.index;
    }
    if (wish.unsubscribe) page.views.delete(wish.unsubscribe);
    if (wish.hidden !== undefined) page.hidden = wish.hidden;
    if (wish.restart) this.index = 0;
    this.restart();
  }

  /** The views that go into the stream, and those that do not fit. */
  split() {
    const wanted = new Set();
    for (const page of this.pages.values()) if (!page.hidden) for (const view of page.views.values()) wanted.add(view);
    const streamed = [];
    const rest = [];
    let length = 0;
    for (const view of wanted) {
      length += encodeURIComponent(view).length + 20;
      const fits = streamed.length < VIEWS_MAX && length < QUERY_MAX && !JSON.parse(view).Region;
      (fits ? streamed : rest).push(view);
    }
    return { streamed, rest };
  }

  restart(pause = GATHER_MS) {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.run(), pause);
  }

  tell(state) {
    this.state = state;
    for (const page of this.pages.values()) page.post({ state });
  }

  resync(views) {
    for (const view of views) this.send(view, { Resync: true });
  }

  send(view, update) {
    for (const page of this.pages.values()) {
      for (const [id, text] of page.views) if (text === view) page.post({ id, update });
    }
  }

  async run() {
    this.controller?.abort();
    const { streamed } = this.split();
    if (!streamed.length) {
      this.controller = null;
      if (![...this.pages.values()].some((page) => !page.hidden)) this.index = 0;
      this.tell("paused");
      return;
    }
    const controller = new AbortController();
    this.controller = controller;
    try {
      await this.read(streamed, controller);
    } catch {
      // Told below: a stream that breaks is opened again.
    }
    if (controller !== this.controller) return;
    this.tell("reconnecting");
    this.restart(PAUSES_MS[Math.min(this.failures, PAUSES_MS.length - 1)]);
    this.failures += 1;
  }

  async read(views, controller) {
    const query = new URLSearchParams(views.map((view, at) => ["view", JSON.stringify({ ...JSON.parse(view), ID: String(at) })]));
    const missed = this.failures > 0 || !this.index;
    if (this.index && !missed) query.set("index", String(this.index));
    let silence = setTimeout(() => controller.abort(), SILENCE_MS);
    const response = await fetch(`${this.base}/v1/yurt/watch?${query}`, { signal: controller.signal, credentials: "same-origin" });
    if (!response.ok || !response.body) throw new Error(await response.text());
    this.tell("live");
    if (missed) this.resync(views);
    const decoder = new TextDecoder();
    const reader = response.body.getReader();
    let rest = "";
    for (;;) {
      const { done, value } = await reader.read();
      clearTimeout(silence);
      if (done || controller !== this.controller) return;
      silence = setTimeout(() => controller.abort(), SILENCE_MS);
      this.failures = 0;
      const parts = (rest + decoder.decode(value, { stream: true })).split("\n");
      rest = parts.pop() ?? "";
      for (const line of parts) if (line.trim()) this.take(JSON.parse(line), views);
    }
  }

  take(line, views) {
    if (line.Error) throw new Error(line.Error);
    if (line.Index) this.index = line.Index;
    for (const at of line.Resync ?? []) this.send(views[Number(at)], { Resync: true });
    for (const [at, update] of Object.entries(line.Views ?? {})) this.send(views[Number(at)], update);
  }
}
