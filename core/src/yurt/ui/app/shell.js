/** What surrounds every page: the menu, the search, the state of the connection, who is signed in; and a page's own error. */
import { html, signal, useEffect, useErrorBoundary, useLayoutEffect, useState } from "../vendor/preact.js";
import { connection, get, region } from "./core/api.js";
import { plain } from "./core/format.js";
import { useKeys } from "./core/keys.js";
import { liveState } from "./core/live.js";
import { afterPause, isPassing } from "./core/retry.js";
import { go, href, place } from "./core/router.js";
import { chooseRegion, config, may, session } from "./core/session.js";
import { choose, settings } from "./core/settings.js";
import { Dialogs } from "./parts/dialog.js";
import { Toasts } from "./parts/toast.js";
import { loadPage, loaded, MENU, routeOf } from "./routes.js";

/** Whether the menu is open on a small window. */
const menuOpen = signal(false);
/** So often a page's module is asked for while the agent answers; what fails then is missing or broken. */
const LOADS_MAX = 3;
const THEMES = { system: "light", light: "dark", dark: "system" };

function Menu({ section }) {
  return html`
    <nav class=${`menu ${menuOpen.value ? "open" : ""}`} aria-label="Main">
      <ul>
        ${MENU.filter((item) => !item.needs || may(item.needs)).map(
          (item) => html`<li key=${item.id}><a href=${item.to} aria-current=${item.id === section ? "page" : undefined}
            onClick=${() => (menuOpen.value = false)}>${item.label}</a></li>`,
        )}
      </ul>
      <ul>
        <li><a href="/ui/settings" aria-current=${section === "settings" ? "page" : undefined}>Settings</a></li>
        <li><button class="link" onClick=${showHelp}>Keys <kbd>?</kbd></button></li>
      </ul>
    </nav>
  `;
}

const LIVE = {
  live: ["live", "Changes appear as they happen"],
  paused: ["paused", "Nothing on this page changes by itself"],
  reconnecting: ["reconnecting", "The live stream broke off and is opened again"],
};

function Connection() {
  if (connection.value === "down") return html`<span class="status bad" role="status">▲ no answer</span>`;
  if (connection.value === "leaderless") return html`<span class="status bad" role="status">▲ no leader</span>`;
  const [word, note] = LIVE[liveState.value];
  return html`<span class=${`status ${liveState.value === "live" ? "good" : "warn"} live`} role="status"
    title=${note}>${liveState.value === "live" ? "●" : "◆"} ${word}</span>`;
}

function Who() {
  const { ACL, SignedIn, Token } = session.value;
  if (!ACL) return null;
  const label = SignedIn ? plain(Token?.Name || Token?.Type || "signed in") : "Sign in";
  return html`<a class="who" href="/ui/sign-in">${label}</a>`;
}

const openSearch = async (start = "") => (await import("./parts/palette.js")).openPalette(start);
const showHelp = async () => (await import("./parts/help.js")).openHelp();

/** The region shown; a choice where several are joined. */
function Region() {
  const [regions, setRegions] = useState(/** @type {string[]} */ ([]));
  useEffect(() => {
    get("/v1/regions").then(setRegions, () => {}); // Without the list the region is only named.
  }, []);
  const shown = region.value || config.value.Region;
  if (regions.length < 2) return html`<span class="region">${plain(shown)}</span>`;
  return html`<select aria-label="Region" class="regions" value=${shown} onChange=${(event) => chooseRegion(event.target.value)}>
    ${regions.map((name) => html`<option key=${name} value=${name} selected=${name === shown}>${plain(name)}</option>`)}</select>`;
}

function Top() {
  const label = config.value.Label ?? {};
  const theme = settings.value.theme;
  return html`
    <header class="top">
      <button class="quiet burger" aria-label="Menu" aria-expanded=${menuOpen.value}
        onClick=${() => (menuOpen.value = !menuOpen.value)}>☰</button>
      <a class="brand" href="/ui/">Yurt</a>
      <${Region} />
      ${label.Text && html`
        <span class="label"
        style=${{ background: label.BackgroundColor || undefined, color: label.TextColor || undefined }}>${plain(label.Text)}</span>`}
      ${[["Consul", config.value.ConsulURL], ["Vault", config.value.VaultURL]].map(([name, url]) => /^https?:/.test(url)
        && html`<a class="outside" href=${url} target="_blank" rel="noopener noreferrer">${name}</a>`)}
      <button class="search" onClick=${() => openSearch()}><span>Search</span> <kbd>/</kbd></button>
      <span class="grow"></span>
      <${Connection} />
      <button class="quiet" aria-label=${`Theme: ${theme}`} title=${`Theme: ${theme}`}
        onClick=${() => choose({ theme: THEMES[theme] })}>${{ system: "◐", light: "☀", dark: "☾" }[theme]}</button>
      <${Who} />
    </header>
  `;
}

function Broken({ error, reset }) {
  return html`
    <div class="failure" role="alert">
      <h1>This page failed</h1>
      <p>${plain(error?.message ?? error)}</p>
      <div class="buttons"><button onClick=${reset}>Try again</button><a class="button" href="/ui/">Overview</a></div>
    </div>
  `;
}

const Missing = () => html`
  <div class="failure"><h1>No such page</h1><p>There is nothing at ${plain(place.value.path)}.</p>
    <a class="button" href="/ui/">Overview</a></div>
`;

function Page({ found }) {
  const { route, parts } = found;
  const [, setArrived] = useState(/** @type {any} */ (null));
  const [failure, setFailure] = useState(/** @type {any} */ (null));
  const [attempt, setAttempt] = useState(0);
  const [error, reset] = useErrorBoundary();
  useLayoutEffect(() => {
    if (loaded(route)) return;
    let current = true;
    loadPage(route).then(
      () => current && (setFailure(null), setArrived(route)),
      (problem) => current && setFailure((before) => ({ route, problem, count: before?.route === route ? before.count + 1 : 1 })),
    );
    return () => (current = false);
  }, [route, attempt]);
  useEffect(() => {
    const isAgain = failure?.route === route && (isPassing(failure.problem) || failure.count < LOADS_MAX);
    return isAgain ? afterPause(failure.count, () => setAttempt((before) => before + 1)) : undefined;
  }, [failure]);
  if (error || failure) return html`<${Broken} error=${error ?? failure.problem} reset=${() => (failure ? location.reload() : reset())} />`;
  const Shown = loaded(route)?.[route.page];
  if (!Shown) return html`<p class="loading" role="status">Loading…</p>`;
  return html`<${Shown} ...${parts} />`;
}

function useShellKeys() {
  const sections = MENU.filter((item) => !item.needs || may(item.needs)).map((item) => ({
    keys: `g ${item.key}`,
    help: `Go to ${item.label.toLowerCase()}`,
    group: "Go to",
    run: () => go(item.to),
  }));
  useKeys([
    ...sections,
    { keys: "/", help: "Search all objects", group: "Everywhere", run: () => openSearch() },
    { keys: ":", help: "Commands: pages, ids, actions", group: "Everywhere", run: () => openSearch(":") },
    { keys: "?", help: "This help", group: "Everywhere", run: showHelp },
    { keys: "n j", help: "New job", group: "New", run: () => go(href(["jobs", "run"])) },
    { keys: "n v", help: "New variable", group: "New", run: () => go("/ui/variables?new=1") },
    { keys: "n n", help: "New namespace", group: "New", run: () => go("/ui/namespaces?new=1") },
    { keys: "n t", help: "New token", group: "New", run: () => go("/ui/access?tab=tokens&new=1") },
    { keys: "T", help: "Change the theme", group: "Everywhere", run: () => choose({ theme: THEMES[settings.value.theme] }) },
  ]);
}

export function Shell() {
  useShellKeys();
  const path = place.value.path;
  const found = routeOf(path);
  useEffect(() => {
    const ott = /^#?ott=(.+)$/.exec(place.peek().hash)?.[1] ?? place.peek().query.get("ott");
    if (ott && !path.startsWith("/ui/sign-in")) go(`/ui/sign-in?back=${encodeURIComponent(path)}#ott=${ott}`, { replace: true });
  }, []);
  return html`
    <a class="skip" href="#main" onClick=${(event) => {
      event.preventDefault();
      document.getElementById("main")?.focus();
    }}>To the content</a>
    <${Top} />
    <div class="frame">
      <${Menu} section=${found?.route.section} />
      <main id="main" tabindex="-1">
        ${found ? html`<${Page} key=${found.route.page + path.split("/")[3]} found=${found} />` : html`<${Missing} />`}
      </main>
    </div>
    <${Toasts} />
    <${Dialogs} />
  `;
}
