/** Starts the pages: settings, session, router, keys, live updates; then the shell. */
import { html, render } from "../vendor/preact.js";
import { startClock } from "./core/clock.js";
import { startKeys } from "./core/keys.js";
import { startLive } from "./core/live.js";
import { startRouter } from "./core/router.js";
import { startSession } from "./core/session.js";
import { startTheme } from "./core/settings.js";
import { startWidth } from "./core/width.js";
import { Failure } from "./parts/page.js";
import { Shell } from "./shell.js";

const root = /** @type {HTMLElement} */ (document.getElementById("app"));

async function start() {
  startTheme();
  startWidth();
  startRouter();
  startKeys();
  startClock();
  startLive();
  try {
    await startSession();
  } catch (error) {
    root.replaceChildren();
    render(html`<main class="alone"><${Failure} error=${error} retry=${() => location.reload()} /></main>`, root);
    return;
  }
  root.replaceChildren();
  render(html`<${Shell} />`, root);
}

start();
