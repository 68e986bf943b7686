// The painter of coverage recordings: the density, seen and unseen, with Voronoi cells and links over it.

const OWN_SQUARES = 1500; // that draw what one robot has seen; a longer way is drawn from fewer
const HEARD_SHOWN = 4; // robots that the text names
const COLOUR_STEPS = 256;

/** Colours from the first stop to the last, [256, 3] bytes. */
function ramp(stops) {
  const parts = stops.map(channels), table = new Uint8Array(3 * COLOUR_STEPS);
  for (let i = 0; i < table.length; i++) {
    const at = (Math.floor(i / 3) / (COLOUR_STEPS - 1)) * (parts.length - 1), low = Math.min(Math.floor(at), parts.length - 2);
    table[i] = Math.round(parts[low][i % 3] + (at - low) * (parts[low + 1][i % 3] - parts[low][i % 3]));
  }
  return table;
}

/** The part of a convex polygon (x, y, x, y, ...) where ax * x + ay * y <= limit. */
function clipped(corners, ax, ay, limit) {
  const kept = [], side = (i) => ax * corners[i] + ay * corners[i + 1] - limit;
  for (let i = 0; i < corners.length; i += 2) {
    const next = (i + 2) % corners.length, here = side(i), there = side(next);
    if (here <= 0) kept.push(corners[i], corners[i + 1]);
    if (Math.min(here, there) < 0 && Math.max(here, there) > 0) {
      const share = here / (here - there);
      kept.push(corners[i] + share * (corners[next] - corners[i]), corners[i + 1] + share * (corners[next + 1] - corners[i + 1]));
    }
  }
  return kept;
}

/** The Voronoi cell of a robot: the corners of the world's square, cut by the bisector with every other robot. */
function voronoiCell(points, robot, width) {
  const px = points[2 * robot], py = points[2 * robot + 1];
  const farthest = (corners) => {
    let most = 0;
    for (let i = 0; i < corners.length; i += 2) most = Math.max(most, (corners[i] - px) ** 2 + (corners[i + 1] - py) ** 2);
    return most;
  };
  let corners = [0, 0, width, 0, width, width, 0, width], reach = farthest(corners);
  for (let j = 0; j < points.length; j += 2) {
    const dx = points[j] - px, dy = points[j + 1] - py, apart = dx * dx + dy * dy;
    if (apart === 0 || apart >= 4 * reach) continue; // itself, or a bisector beyond all corners
    corners = clipped(corners, dx, dy, (dx * (px + points[j]) + dy * (py + points[j + 1])) / 2);
    reach = farthest(corners);
  }
  return corners;
}

function polygon(c, view, corners) {
  for (let i = 0; i < corners.length; i += 2) c[i ? "lineTo" : "moveTo"](view.x(corners[i]), view.y(corners[i + 1]));
  c.closePath();
}

/** A patch of the key that fades from the first colour to the last. */
function fade(c, s, stops) {
  const gradient = c.createLinearGradient(1, 0, s - 1, 0);
  stops.forEach((colour, i) => gradient.addColorStop(i / (stops.length - 1), colour));
  c.fillStyle = gradient;
  c.fillRect(1, 3, s - 2, s - 6);
}

const painter = {
  ...team,

  about: "Robots, links and cells over the density",
  shows: "its cell, whom it hears and what it has seen itself",
  colours: [...team.colours, "density-low", "density-mid", "density-high", "hidden-low", "hidden-high", "cell"],

  toggles: [
    team.toggles.links,
    { key: "cells", label: "Cells", shortcut: "c", on: true },
    { ...team.toggles.trails, on: false },
    team.toggles.windows,
    { key: "unseen", label: "Unseen density", shortcut: "u", on: true },
  ],

  key: [
    team.key.robot,
    team.key.failed,
    ["Density seen", (c, p, s) => fade(c, s, [p["density-low"], p["density-mid"], p["density-high"]])],
    ["Link", (c, p, s) => { c.strokeStyle = p.robot; c.globalAlpha = 0.6; c.lineWidth = 1.5; c.beginPath(); c.moveTo(2, s / 2); c.lineTo(s - 2, s / 2); c.stroke(); }],
    ["Density unseen", (c, p, s) => fade(c, s, [p["hidden-low"], p["hidden-high"]])],
    ["Voronoi cell", (c, p, s) => { c.strokeStyle = p.cell; c.lineWidth = 1.5; c.strokeRect(3, 4, s - 6, s - 8); }],
    team.key.window,
  ],

  prepare(r) {
    team.prepare(r);
    r.map = Object.assign(document.createElement("canvas"), { width: r.pixels, height: r.pixels });
    // The share of the density that has been seen by each frame; `seen_at` counts frames from 1, 0 is never.
    const gained = new Float64Array(r.frames), { density, seen_at: seenAt } = r.arrays;
    let all = 0;
    density.forEach((value, i) => { all += value; if (seenAt[i]) gained[seenAt[i] - 1] += value; });
    let sum = 0;
    r.seenShare = gained.map((value) => { sum += value; return sum / all; });
  },

  bounds(r) { return [0, 0, r.width, r.width]; },

  paint(c, r, view, show, focus, colours) {
    const size = this.sizes(r, view, r.robots);
    this.ground(c, r, view, show.unseen, colours);
    if (show.cells) this.cells(c, r, view, size, colours);
    if (show.windows && r.attention_radius !== null) this.windows(c, r, view, colours);
    if (show.trails) this.trails(c, r, view, size, colours);
    if (show.links) this.links(c, r, view, size, colours);
    if (focus >= 0) this.focusBelow(c, r, view, size, focus, colours);
    this.robots(c, r, view, size, colours);
    if (focus >= 0) this.focusAbove(c, r, view, size, focus, colours);
  },

  ground(c, r, view, unseen, colours) {
    this.shade(r, unseen, colours);
    const side = r.width * view.scale;
    c.drawImage(r.map, view.x(0), view.y(r.width), side, side);
    c.strokeStyle = colours.line;
    c.lineWidth = 1;
    c.strokeRect(view.x(0), view.y(r.width), side, side);
  },

  /** Paint the density into `r.map`, a pixel a pixel, unless it is there already. */
  shade(r, unseen, colours) {
    const wanted = `${r.index} ${unseen} ${colours.number}`;
    if (r.shaded === wanted) return;
    r.shaded = wanted;
    if (this.rampsOf !== colours.number) {
      this.rampsOf = colours.number;
      this.ramps = {
        seen: ramp(["density-low", "density-mid", "density-high"].map((name) => colours[name])),
        unseen: ramp(["hidden-low", "hidden-high"].map((name) => colours[name])),
      };
    }
    const c = r.map.getContext("2d"), n = r.pixels, picture = c.createImageData(n, n);
    const { density, seen_at: seenAt } = r.arrays, { data } = picture;
    for (let y = 0; y < n; y++) {
      for (let x = 0; x < n; x++) {
        const from = y * n + x, to = 4 * ((n - 1 - y) * n + x); // the world's y points up
        const known = seenAt[from] > 0 && seenAt[from] - 1 <= r.index;
        const table = known ? this.ramps.seen : this.ramps.unseen, at = known || unseen ? 3 * density[from] : 0;
        data[to] = table[at]; data[to + 1] = table[at + 1]; data[to + 2] = table[at + 2]; data[to + 3] = 255;
      }
    }
    c.putImageData(picture, 0, 0);
  },

  cells(c, r, view, size, colours) {
    c.strokeStyle = colours.cell;
    c.lineWidth = size.link * 1.1;
    c.lineJoin = "round";
    c.beginPath();
    for (let i = 0; i < r.robots; i++) polygon(c, view, voronoiCell(r.now, i, r.width));
    c.stroke();
  },

  /** Robots that a robot hears, from number `first` on. */
  heard(r, robot, first = 0) {
    if (!this.alive(r, robot)) return [];
    const numbers = [], x = r.now[2 * robot], y = r.now[2 * robot + 1], limit = r.communication_range ** 2;
    for (let j = first; j < r.robots; j++) {
      if (j !== robot && this.alive(r, j) && (r.now[2 * j] - x) ** 2 + (r.now[2 * j + 1] - y) ** 2 < limit) numbers.push(j);
    }
    return numbers;
  },

  eachLink(r, visit) { for (let i = 0; i < r.robots; i++) for (const j of this.heard(r, i, i + 1)) visit(i, j); },

  spokes(c, r, view, robot, numbers) {
    for (const j of numbers) {
      c.moveTo(view.x(r.now[2 * robot]), view.y(r.now[2 * robot + 1]));
      c.lineTo(view.x(r.now[2 * j]), view.y(r.now[2 * j + 1]));
    }
  },

  links(c, r, view, size, colours) {
    c.strokeStyle = colours.robot;
    c.lineWidth = size.link;
    c.globalAlpha = 0.5;
    c.beginPath();
    for (let i = 0; i < r.robots; i++) this.spokes(c, r, view, i, this.heard(r, i, i + 1));
    c.stroke();
    c.globalAlpha = 1;
  },

  /** Under the robots: what one robot has seen itself, its cell, its window and way so far, the robots it hears. */
  focusBelow(c, r, view, size, robot, colours) {
    c.fillStyle = c.strokeStyle = colours.focus;
    c.beginPath(); this.sensed(c, r, view, robot);
    c.globalAlpha = 0.2; c.fill(); c.globalAlpha = 1;
    c.lineWidth = 2.2;
    c.lineJoin = "round";
    c.beginPath(); polygon(c, view, voronoiCell(r.now, robot, r.width)); c.stroke();
    team.focusBelow(c, r, view, size, robot, colours);
    c.strokeStyle = colours.focus;
    c.lineWidth = Math.max(size.link, 1.2);
    c.setLineDash([4, 3]);
    c.beginPath(); this.spokes(c, r, view, robot, this.heard(r, robot)); c.stroke();
    c.setLineDash([]);
  },

  /** The squares that a robot has sensed up to now, inside the world. */
  sensed(c, r, view, robot) {
    const stride = Math.ceil((r.index + 1) / OWN_SQUARES), inside = (v) => Math.min(Math.max(v, 0), r.width);
    for (let f = r.index; f >= 0; f -= stride) {
      const [x, y] = [0, 1].map((axis) => Math.round(r.track[2 * (f * r.robots + robot) + axis] / r.resolution) * r.resolution - r.sensor / 2);
      const [left, right, low, high] = [x, x + r.sensor, y, y + r.sensor].map(inside);
      c.rect(view.x(left), view.y(high), (right - left) * view.scale, (high - low) * view.scale);
    }
  },

  status(r) {
    return this.withFailed(r, `average ${r.arrays.cost_time_average[r.index].toFixed(r.metric.digits)} · ${(100 * r.seenShare[r.index]).toFixed(0)} % of the density seen`);
  },

  describe(r, robot) {
    const away = (j) => Math.hypot(r.now[2 * j] - r.now[2 * robot], r.now[2 * j + 1] - r.now[2 * robot + 1]);
    const heard = this.heard(r, robot).sort((a, b) => away(a) - away(b));
    const more = heard.length > HEARD_SHOWN ? ` and ${heard.length - HEARD_SHOWN} more` : "";
    const corners = voronoiCell(r.now, robot, r.width);
    let area = 0;
    for (let i = 0; i < corners.length; i += 2) {
      const next = (i + 2) % corners.length;
      area += (corners[i] * corners[next + 1] - corners[next] * corners[i + 1]) / 2;
    }
    return [
      ...team.describe(r, robot),
      ["Hears", this.distances(r, robot, heard.slice(0, HEARD_SHOWN), r.now) + more],
      ["Cell", `${((100 * area) / r.width ** 2).toFixed(1)} % of the world`],
    ];
  },
};
