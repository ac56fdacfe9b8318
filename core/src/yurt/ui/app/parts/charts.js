/** A line over time with a limit above it; the library is loaded with the first chart. Its numbers are beside it as text. */
import { html, useEffect, useRef } from "../../vendor/preact.js";
import { isoTime } from "../core/format.js";
import { shownTheme } from "../core/settings.js";

const HEIGHT = 130;

function addStyles() {
  if (document.getElementById("uplot-css")) return;
  const link = document.createElement("link");
  Object.assign(link, { id: "uplot-css", rel: "stylesheet", href: new URL("../../vendor/uplot.css", import.meta.url).href });
  document.head.append(link);
}

const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function options(host, { label, limit }) {
  const axis = { stroke: color("--dim"), grid: { stroke: color("--line"), width: 1 }, ticks: { stroke: color("--line") } };
  return {
    width: Math.max(200, host.clientWidth),
    height: HEIGHT,
    legend: { show: false },
    cursor: { y: false },
    scales: { y: { range: (_, min, max) => [0, Math.max(limit * 1.05, max * 1.1, 1)] } },
    axes: [{ ...axis, values: (_, times) => times.map((at) => isoTime(new Date(at * 1000)).slice(11, 16)) }, { ...axis, size: 56 }],
    series: [
      {},
      { label, stroke: color("--accent"), width: 2, fill: color("--accent-soft") },
      { label: "booked", stroke: color("--warn"), dash: [6, 4], width: 1 },
    ],
  };
}

/** @param {{label: string, samples: any[], name: string, limit: number, text: string, scale?: number}} props */
export function Chart({ label, samples, name, limit, text, scale = 1 }) {
  const host = useRef(/** @type {any} */ (null));
  const plot = useRef(/** @type {any} */ (null));
  const data = [
    samples.map((each) => each.at),
    samples.map((each) => ((each[name] ?? null) === null ? null : each[name] * scale)),
    samples.map(() => limit || null),
  ];
  const latest = useRef(data);
  latest.current = data;
  useEffect(() => {
    let isDisposed = false;
    const size = new ResizeObserver(
      () => host.current && plot.current?.setSize({ width: Math.max(200, host.current.clientWidth), height: HEIGHT }),
    );
    import("../../vendor/uplot.js").then(({ default: Plot }) => {
      const place = host.current; // Null where the page closed before this effect ran: it is not disposed of then.
      if (isDisposed || !place) return;
      addStyles();
      plot.current = new Plot(options(place, { label, limit }), latest.current, place);
      size.observe(place);
    });
    return () => {
      isDisposed = true;
      size.disconnect();
      plot.current?.destroy();
      plot.current = null;
    };
  }, [label, limit, shownTheme.value]);
  useEffect(() => plot.current?.setData(data), [samples]);
  return html`<figure
    style=${{ margin: 0, minWidth: 0 }}><figcaption>${label} <span class="dim">${text}</span></figcaption>
    <div class="chart" ref=${host} role="img" aria-label=${`${label}: ${text}`} data-samples=${samples.length}></div></figure>`;
}
