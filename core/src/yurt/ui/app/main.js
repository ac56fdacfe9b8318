/** Starts the pages: settings, session, router, keys, live updates; then the shell. */
import { html, render } from "../vendor/preact.js";
import { startClock } from "./core/clock.js";
import { startKeys } from "./core/keys.js";
import { startLive } from "./core/live.js";
import { afterPause, isPassing } from "./core/retry.js";
import { place, startRouter } from "./core/router.js";
import { startSession } from "./core/session.js";
import { startTheme } from "./core/settings.js";
import { startWidth } from "./core/width.js";
import { Failure } from "./parts/page.js";
import { loadPage, routeOf } from "./routes.js";
import { Shell } from "./shell.js";

const root = /** @type {HTMLElement} */ (document.getElementById("app"));

async function start() {
  startTheme();
  startWidth();
  startRouter();
  startKeys();
  startClock();
  startLive();
  await show(0);
}

/** Show the page, or why there is none yet. @param {number} failures how often it could not be shown. */
async function show(failures) {
  const first = routeOf(place.peek().path)?.route;
  try {
    // A page that cannot be loaded says so in the shell.
    await Promise.all([startSession(), first && loadPage(first).catch(() => {})]);
  } catch (error) {
    render(null, root);
    root.replaceChildren();
    render(html`<main class="alone"><${Failure} error=${error} retry=${() => location.reload()} /></main>`, root);
    if (isPassing(error)) afterPause(failures + 1, () => show(failures + 1));
    return;
  }
  render(null, root);
  root.replaceChildren();
  render(html`<${Shell} />`, root);
}

start();
