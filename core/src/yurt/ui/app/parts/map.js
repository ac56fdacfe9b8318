/** A map of nodes on a canvas: groups of squares, sized so that all fit the width, each filled as far as its share is booked. */

const TITLE = 22;
const GAP = 3;
const BETWEEN = 14;

/** @typedef {{nodes: any[], x: number, y: number, columns: number, size: number, title: string}} Group */

/** Places nodes in groups: `{groups, height, find(x, y)}`. */
export function layout(nodes, groupOf, width) {
  const byName = new globalThis.Map();
  for (const node of nodes) {
    const name = groupOf(node);
    if (!byName.has(name)) byName.set(name, []);
    byName.get(name).push(node);
  }
  return placed(
    [...byName].sort(([a], [b]) => (a < b ? -1 : 1)),
    nodes.length,
    width,
  );
}

function placed(named, total, width) {
  const size = total > 4000 ? 8 : total > 1500 ? 12 : total > 400 ? 18 : total > 60 ? 28 : 44;
  const columns = Math.max(1, Math.floor((width - BETWEEN) / (size + GAP)));
  const groups = /** @type {Group[]} */ ([]);
  let y = 0;
  for (const [title, members] of named) {
    groups.push({ title: `${title} (${members.length})`, nodes: members, x: BETWEEN / 2, y: y + TITLE, columns, size });
    y += TITLE + Math.ceil(members.length / columns) * (size + GAP) + BETWEEN;
  }
  const find = (x, top) => {
    for (const group of groups) {
      const column = Math.floor((x - group.x) / (size + GAP));
      const row = Math.floor((top - group.y) / (size + GAP));
      if (column >= 0 && column < columns && row >= 0) {
        const index = row * columns + column;
        if (index < group.nodes.length && top >= group.y) return group.nodes[index];
      }
    }
    return null;
  };
  return { groups, height: y, find };
}

const DOWN = new Set(["down", "disconnected", "unhealthy"]);
const RESTING = new Set(["draining", "ineligible", "initializing"]);

/** Draws a plan. @param {HTMLCanvasElement} canvas @param {(node: any) => {share: number, status: string, marked: boolean}} look */
export function drawMap(canvas, plan, width, look) {
  const scale = devicePixelRatio || 1;
  canvas.width = width * scale;
  canvas.height = plan.height * scale;
  canvas.style.height = `${plan.height}px`;
  const style = getComputedStyle(document.documentElement);
  const color = (name) => style.getPropertyValue(name).trim();
  const colors = {
    good: color("--good-fill"),
    warn: color("--warn-fill"),
    bad: color("--bad-fill"),
    dim: color("--dim-fill"),
    line: color("--line"),
    text: color("--text"),
    accent: color("--accent"),
  };
  const pen = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  pen.scale(scale, scale);
  pen.font = "13px system-ui, sans-serif";
  for (const group of plan.groups) {
    pen.fillStyle = colors.text;
    pen.fillText(group.title, group.x, group.y - 7);
    group.nodes.forEach((node, at) => drawNode(pen, group, at, look(node), colors));
  }
}

function drawNode(pen, group, at, { share, status, marked }, colors) {
  const { size } = group;
  const x = group.x + (at % group.columns) * (size + GAP);
  const y = group.y + Math.floor(at / group.columns) * (size + GAP);
  const down = DOWN.has(status);
  pen.fillStyle = down ? colors.bad : share < 0 ? colors.dim : colors.line;
  pen.fillRect(x, y, size, size);
  if (!down && share >= 0) {
    const filled = Math.round(Math.min(1, share) * size);
    pen.fillStyle = share > 0.9 ? colors.bad : share > 0.6 ? colors.warn : colors.good;
    pen.fillRect(x, y + size - Math.max(2, filled), size, Math.max(2, filled));
  }
  if (RESTING.has(status) || marked) {
    pen.strokeStyle = marked ? colors.accent : colors.warn;
    pen.lineWidth = 2;
    pen.strokeRect(x + 1, y + 1, size - 2, size - 2);
  }
}
