// The picture of the world: everything is drawn anew for each frame, from two snapshots and how far it is between them.

const TAU = 2 * Math.PI;
const NAMES = ["world", "line", "ink", "soft", "card", "robot", "seen", "unseen", "reached", "link", "dead", "focus", "middling", "old", "density-low", "density-mid", "density-high", "hidden-low", "hidden-high"];

/** The colours of the style sheet, as they are now. */
export function palette() {
  const probe = document.createElement("i"), found = {};
  document.body.append(probe);
  for (const name of NAMES) {
    probe.style.color = `var(--${name})`;
    found[name.replace(/-(.)/, (_, letter) => letter.toUpperCase())] = getComputedStyle(probe).color;
  }
  probe.remove();
  return found;
}

/** A canvas as large as its place on the screen; its context in CSS pixels. */
export function fit(canvas) {
  const { clientWidth: width, clientHeight: height } = canvas, ratio = Math.min(devicePixelRatio || 1, 2);
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
  }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return { context, width, height };
}

/** From metres to pixels: the world in the middle, y up. */
export class View {
  constructor(bounds, width, height) {
    const [left, low, right, high] = bounds, margin = Math.min(18, 0.03 * Math.min(width, height));
    this.scale = Math.min((width - 2 * margin) / (right - left), (height - 2 * margin) / (high - low));
    this.left = width / 2 - (this.scale * (left + right)) / 2;
    this.top = height / 2 + (this.scale * (low + high)) / 2;
  }
  x(metres) { return this.left + metres * this.scale; }
  y(metres) { return this.top - metres * this.scale; }
  back(x, y) { return [(x - this.left) / this.scale, (this.top - y) / this.scale]; }
}

function dot(c, x, y, r) { c.moveTo(x + r, y); c.arc(x, y, r, 0, TAU); }
function cross(c, x, y, r) { c.moveTo(x - r, y - r); c.lineTo(x + r, y + r); c.moveTo(x - r, y + r); c.lineTo(x + r, y - r); }
function square(c, x, y, r) { c.moveTo(x, y - r); c.lineTo(x + r, y); c.lineTo(x, y + r); c.lineTo(x - r, y); c.closePath(); }

/** The colour of news by its age: fresh is the robots' blue, then violet, and from 15 control periods on amber. */
export function aged(age, dt, colours) {
  const share = 2 * Math.min(1, Math.log2(1 + age / dt) / 4);
  const [a, b] = (share < 1 ? [colours.robot, colours.middling] : [colours.middling, colours.old]).map((colour) => colour.match(/[\d.]+/g).map(Number));
  return `rgb(${[0, 1, 2].map((k) => Math.round(a[k] + (share % 1 || (share >= 2 ? 1 : 0)) * (b[k] - a[k]))).join(" ")})`;
}

export class Painter {
  constructor(canvas) {
    this.canvas = canvas;
  }

  /** snap: the snapshot that is shown; now: positions between two snapshots; ui: {focus, layer, head, tool, pointer, brush, cutFrom}. */
  paint(snap, now, ui, colours) {
    const { context: c, width, height } = fit(this.canvas), view = new View(this.extent(snap), width, height);
    this.view = view;
    const robots = snap.ids.length, things = Math.max(robots, snap.scene.goals ? snap.scene.goals.length / 2 : 0, 1);
    const spacing = (view.scale * (snap.bounds[2] - snap.bounds[0])) / Math.sqrt(things);
    const size = Math.min(Math.max(0.085 * spacing, 2.6), 7.5);
    this.ground(c, view, snap, colours);
    if (snap.scene.density) this.density(c, view, snap, colours);
    const focus = ui.focus >= 0 && ui.focus < robots ? ui.focus : -1;
    const known = snap.focus && snap.focus.robot === focus ? snap.focus.knows : [];
    if (focus >= 0) this.window(c, view, snap, now, focus, colours);
    this.links(c, view, snap, now, size, focus, colours);
    if (snap.scene.goals) this.goals(c, view, snap.scene, size, colours);
    if (focus >= 0) this.knowledge(c, view, snap, now, focus, known, size, ui, colours);
    this.robots(c, view, snap, now, size, focus, known, colours);
    if (focus >= 0) this.named(c, view, snap, now, focus, size, colours);
    if (ui.pointer && (ui.tool === "paint" || ui.tool === "wipe")) {
      c.strokeStyle = colours.ink; c.lineWidth = 1; c.setLineDash([4, 3]);
      c.beginPath(); dot(c, ...ui.pointer, ui.brush * view.scale); c.stroke(); c.setLineDash([]);
    }
  }

  /** What is in the picture: it grows at once where something is outside, and shrinks slowly. */
  extent(snap) {
    const { extent } = snap;
    if (!this.box || snap.time === 0) this.box = [...extent];
    this.box = this.box.map((side, k) => (k < 2 ? Math.min(extent[k], side + 0.02 * (extent[k] - side)) : Math.max(extent[k], side + 0.02 * (extent[k] - side))));
    return this.box;
  }

  ground(c, view, snap, colours) {
    const [left, low, right, high] = snap.bounds, [x, y] = [view.x(left), view.y(high)];
    c.fillStyle = colours.world;
    c.fillRect(x, y, (right - left) * view.scale, (high - low) * view.scale);
    c.strokeStyle = colours.line;
    c.lineWidth = 1;
    c.beginPath();
    const step = 100;
    if (!snap.scene.density) {
      for (let at = Math.ceil(left / step) * step; at < right; at += step) { c.moveTo(view.x(at), view.y(low)); c.lineTo(view.x(at), view.y(high)); }
      for (let at = Math.ceil(low / step) * step; at < high; at += step) { c.moveTo(view.x(left), view.y(at)); c.lineTo(view.x(right), view.y(at)); }
      c.globalAlpha = 0.5; c.stroke(); c.globalAlpha = 1;
    }
    c.strokeRect(x, y, (right - left) * view.scale, (high - low) * view.scale);
  }

  /** What matters where: in colour where the team (or the robot that is pointed at) has seen it, grey elsewhere. */
  density(c, view, snap, colours) {
    if (this.painted !== snap.scene || this.tinted !== colours) this.sheet = this.map(snap.scene, colours);
    [this.painted, this.tinted] = [snap.scene, colours];
    const [left, low, right, high] = snap.bounds;
    c.imageSmoothingEnabled = true;
    c.drawImage(this.sheet, view.x(left), view.y(high), (right - left) * view.scale, (high - low) * view.scale);
  }

  map({ density, seen, pixels, most }, colours) {
    const picture = new ImageData(pixels, pixels);
    const stops = [colours.densityLow, colours.densityMid, colours.densityHigh, colours.hiddenLow, colours.hiddenHigh].map((colour) => colour.match(/[\d.]+/g).map(Number));
    const blend = (a, b, share, k) => a[k] + share * (b[k] - a[k]);
    for (let y = 0; y < pixels; y++) {
      for (let x = 0; x < pixels; x++) {
        const at = y * pixels + x, to = 4 * ((pixels - 1 - y) * pixels + x), share = Math.min(1, density[at] / (most || 1));
        for (let k = 0; k < 3; k++) {
          picture.data[to + k] = !seen[at] ? blend(stops[3], stops[4], share, k) : share < 0.5 ? blend(stops[0], stops[1], 2 * share, k) : blend(stops[1], stops[2], 2 * share - 1, k);
        }
        picture.data[to + 3] = 255;
      }
    }
    const sheet = document.createElement("canvas");
    sheet.width = sheet.height = pixels;
    sheet.getContext("2d").putImageData(picture, 0, 0);
    return sheet;
  }

  links(c, view, snap, now, size, focus, colours) {
    const line = (i, j) => { c.moveTo(view.x(now[2 * i]), view.y(now[2 * i + 1])); c.lineTo(view.x(now[2 * j]), view.y(now[2 * j + 1])); };
    c.strokeStyle = colours.link;
    c.lineWidth = Math.min(Math.max(size * 0.26, 0.9), 1.8);
    c.globalAlpha = focus >= 0 ? 0.55 : 1;
    c.beginPath();
    for (let e = 0; e < snap.links.length; e += 2) {
      const [i, j] = [snap.links[e], snap.links[e + 1]];
      if (i < j && snap.alive[i] && snap.alive[j]) line(i, j);
    }
    c.stroke();
    c.globalAlpha = 1;
    if (!snap.cuts.length) return;
    c.strokeStyle = colours.unseen;
    c.setLineDash([3, 5]);
    c.beginPath();
    for (let e = 0; e < snap.cuts.length; e += 2) line(snap.cuts[e], snap.cuts[e + 1]);
    c.stroke();
    c.setLineDash([]);
  }

  /** Goals: a ring with a disk where a robot is on them, a cross where some robot sees them, an empty diamond where none does. */
  goals(c, view, { goals, state }, size, colours) {
    c.lineWidth = Math.min(Math.max(size * 0.36, 1.3), 2.4);
    c.lineCap = "round";
    const each = (wanted, draw) => { c.beginPath(); state.forEach((is, g) => { if (is === wanted) draw(view.x(goals[2 * g]), view.y(goals[2 * g + 1])); }); };
    c.strokeStyle = colours.unseen;
    each(0, (x, y) => square(c, x, y, size * 1.05)); c.stroke();
    c.strokeStyle = colours.seen;
    each(2, (x, y) => cross(c, x, y, size * 0.85)); c.stroke();
    c.strokeStyle = c.fillStyle = colours.reached;
    each(1, (x, y) => dot(c, x, y, size * 1.75));
    c.globalAlpha = 0.2; c.fill(); c.globalAlpha = 1; c.stroke();
    c.lineCap = "butt";
  }

  window(c, view, snap, now, robot, colours) {
    if (snap.radius === null) return;
    c.fillStyle = c.strokeStyle = colours.robot;
    c.lineWidth = 1.2;
    c.beginPath(); dot(c, view.x(now[2 * robot]), view.y(now[2 * robot + 1]), snap.radius * view.scale);
    c.globalAlpha = 0.07; c.fill();
    c.globalAlpha = 0.8; c.setLineDash([6, 5]); c.stroke(); c.setLineDash([]);
    c.globalAlpha = 1;
  }

  /** Where the robot believes others to be, joined to where they are; and where its attention goes. */
  knowledge(c, view, snap, now, robot, known, size, ui, colours) {
    const [x, y] = [view.x(now[2 * robot]), view.y(now[2 * robot + 1])];
    for (const one of known) {
      if (one.robot === robot) continue;
      const [ax, ay] = [view.x(one.x), view.y(one.y)], weight = attention(one, ui.layer, ui.head);
      if (weight > 0.004) {
        c.strokeStyle = colours.focus;
        c.globalAlpha = Math.min(0.95, 0.25 + 2 * weight);
        c.lineWidth = Math.min(1 + 16 * weight, size * 1.6);
        c.beginPath(); c.moveTo(x, y); c.lineTo(ax, ay); c.stroke();
        c.globalAlpha = 1;
      }
      if (one.age > 0) {
        c.strokeStyle = aged(one.age, snap.dt, colours);
        c.lineWidth = 1.3;
        c.beginPath(); c.moveTo(ax, ay); c.lineTo(view.x(now[2 * one.robot]), view.y(now[2 * one.robot + 1]));
        c.setLineDash([2, 2]); c.stroke(); c.setLineDash([]);
        c.beginPath(); dot(c, ax, ay, size * 0.8); c.fillStyle = colours.world; c.fill(); c.stroke();
      }
    }
    if (snap.scene.seen && snap.scene.goals) {
      c.strokeStyle = colours.seen;
      c.lineWidth = 1.2;
      c.setLineDash([3, 3]);
      c.beginPath();
      for (let s = 3 * robot; s < 3 * robot + 3; s++) {
        const goal = snap.scene.seen[s];
        if (goal >= 0) { c.moveTo(x, y); c.lineTo(view.x(snap.scene.goals[2 * goal]), view.y(snap.scene.goals[2 * goal + 1])); }
      }
      c.stroke(); c.setLineDash([]);
    }
  }

  robots(c, view, snap, now, size, focus, known, colours) {
    const age = new Map(known.map((one) => [one.robot, one.age]));
    c.lineWidth = Math.max(1, size * 0.3);
    for (let i = 0; i < snap.ids.length; i++) {
      const [x, y] = [view.x(now[2 * i]), view.y(now[2 * i + 1])];
      c.beginPath();
      if (!snap.alive[i]) {
        c.strokeStyle = colours.dead;
        dot(c, x, y, size); c.stroke();
        c.beginPath(); cross(c, x, y, size * 0.55); c.stroke();
        continue;
      }
      dot(c, x, y, size);
      c.strokeStyle = colours.world;
      c.fillStyle = focus < 0 || i === focus ? colours.robot : age.has(i) ? aged(age.get(i), snap.dt, colours) : colours.dead;
      c.globalAlpha = focus < 0 || i === focus || age.has(i) ? 1 : 0.5; // whom it has never heard of stand back
      c.stroke(); c.fill();
      c.globalAlpha = 1;
    }
  }

  named(c, view, snap, now, robot, size, colours) {
    const [x, y] = [view.x(now[2 * robot]), view.y(now[2 * robot + 1])];
    c.strokeStyle = colours.focus;
    c.lineWidth = 2.4;
    c.beginPath(); dot(c, x, y, size + 3); c.stroke();
    c.font = "650 13px system-ui, sans-serif";
    c.textAlign = "left"; c.textBaseline = "bottom";
    c.lineWidth = 4; c.strokeStyle = colours.world; c.fillStyle = colours.focus;
    c.strokeText(snap.ids[robot], x + size + 5, y - size);
    c.fillText(snap.ids[robot], x + size + 5, y - size);
  }
}

/** How much attention an entry gets in a layer and a head; -1 stands for the mean over all. */
export function attention(one, layer, head) {
  if (!one.weights) return 0;
  const layers = layer < 0 ? one.weights : [one.weights[layer]];
  let total = 0, count = 0;
  for (const heads of layers) heads.forEach((weight, h) => { if (head < 0 || h === head) { total += weight; count++; } });
  return count ? total / count : 0;
}

/** Small pictures for the key: [words, draw(context, colours, middle)]. */
export const KEYS = {
  navigation: [
    ["Robot", (c, p, m) => { c.fillStyle = p.robot; c.beginPath(); dot(c, m, m, 5); c.fill(); }],
    ["Goal reached", (c, p, m) => { c.strokeStyle = c.fillStyle = p.reached; c.beginPath(); dot(c, m, m, 6); c.globalAlpha = 0.2; c.fill(); c.globalAlpha = 1; c.stroke(); }],
    ["Robot that failed", (c, p, m) => { c.strokeStyle = p.dead; c.beginPath(); dot(c, m, m, 5.5); cross(c, m, m, 2.6); c.stroke(); }],
    ["Goal seen", (c, p, m) => { c.strokeStyle = p.seen; c.beginPath(); cross(c, m, m, 5); c.stroke(); }],
    ["Link", (c, p, m) => { c.strokeStyle = p.link; c.beginPath(); c.moveTo(1, m); c.lineTo(2 * m - 1, m); c.stroke(); }],
    ["Goal unseen", (c, p, m) => { c.strokeStyle = p.unseen; c.beginPath(); square(c, m, m, 6); c.stroke(); }],
    ["Attention", (c, p, m) => { c.strokeStyle = p.focus; c.lineWidth = 4; c.beginPath(); c.moveTo(1, m); c.lineTo(2 * m - 1, m); c.stroke(); }],
    ["Believed to be here", (c, p, m) => { c.strokeStyle = p.old; c.beginPath(); dot(c, m, m, 4.5); c.stroke(); }],
  ],
  coverage: [
    ["Robot", (c, p, m) => { c.fillStyle = p.robot; c.beginPath(); dot(c, m, m, 5); c.fill(); }],
    ["Matters, seen", (c, p, m) => { c.fillStyle = p.densityHigh; c.fillRect(2, 2, m - 2, 2 * m - 4); c.fillStyle = p.densityMid; c.fillRect(m, 2, m - 2, 2 * m - 4); }],
    ["Link", (c, p, m) => { c.strokeStyle = p.link; c.beginPath(); c.moveTo(1, m); c.lineTo(2 * m - 1, m); c.stroke(); }],
    ["Matters, unseen", (c, p, m) => { c.fillStyle = p.hiddenHigh; c.fillRect(2, 2, 2 * m - 4, 2 * m - 4); }],
    ["Attention", (c, p, m) => { c.strokeStyle = p.focus; c.lineWidth = 4; c.beginPath(); c.moveTo(1, m); c.lineTo(2 * m - 1, m); c.stroke(); }],
    ["Believed to be here", (c, p, m) => { c.strokeStyle = p.old; c.beginPath(); dot(c, m, m, 4.5); c.stroke(); }],
  ],
};
