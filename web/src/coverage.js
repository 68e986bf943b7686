// The world of coverage (src/mast_swarm/tasks/coverage): robots spread over what matters, which they discover as they go.
// Lengths are metres, and a map cell is one metre wide; maps are indexed [y * side + x], y up.

import { stream } from "./chance.js";

const SENSOR = 64, LOCAL = 256, PIXELS = 32, RANGE = 256, SHOWN = 128;
const FAR = 1e12; // stands for a vertical bisector's slope

/** Weights of an antialiased bilinear resize from LOCAL cells to PIXELS: for each cell the first pixel it adds to, and how much to that and the next. */
const FILTER = (() => {
  const scale = LOCAL / PIXELS, rows = Array.from({ length: LOCAL }, () => new Map()), share = new Float64Array((LOCAL + 1) * PIXELS);
  for (let pixel = 0; pixel < PIXELS; pixel++) {
    const centre = (pixel + 0.5) * scale, from = Math.max(Math.trunc(centre - scale + 0.5), 0), to = Math.min(Math.trunc(centre + scale + 0.5), LOCAL);
    const weights = [];
    for (let cell = from; cell < to; cell++) weights.push(Math.max(0, 1 - Math.abs((cell - centre + 0.5) / scale)));
    const total = weights.reduce((a, b) => a + b, 0);
    weights.forEach((weight, k) => { if (weight) rows[from + k].set(pixel, weight / total); });
  }
  for (let cell = 0; cell < LOCAL; cell++) {
    for (let pixel = 0; pixel < PIXELS; pixel++) share[(cell + 1) * PIXELS + pixel] = share[cell * PIXELS + pixel] + (rows[cell].get(pixel) ?? 0);
  }
  const taps = rows.map((row) => [...row].flat());
  return { taps, share };
})();

const corner = (position, size) => Math.floor(position + 0.5) - size / 2;

/** The first cell whose centre lies beyond x. */
function firstCell(x, cells) {
  if (x < 0.5) return 0;
  return x >= cells ? cells : Math.min(Math.floor(x - 0.5) + 1, cells);
}

/** Where the bisector of i and j crosses a row, x = at + slope * y, and the side on which j is nearer: 1 right, -1 left. */
function bisector(xi, yi, xj, yj, earlier) {
  if (xi === xj) return [(earlier ? 1e9 : -1e9) + (FAR * (yj - yi) * (yi + yj)) / 2, -FAR * (yj - yi), 1];
  const gap = xj - xi;
  return [(xi + xj) / 2 + ((yj - yi) * (yi + yj)) / (2 * gap), -(yj - yi) / gap, gap > 0 ? 1 : -1];
}

export class Coverage {
  constructor(positions, density, side, dt = 1) {
    this.task = "coverage";
    this.dt = dt;
    this.speed = 5;
    this.side = side;
    this.positions = Float32Array.from(positions);
    this.velocity = new Float32Array(this.positions.length);
    this.time = 0;
    this.density = Float32Array.from(density);
    this.seenByAny = new Uint8Array(side * side);
    this.seen = Array.from({ length: this.n }, () => new Uint8Array(side * side)); // what each robot has sensed
    this.begun = this.positions.slice();
    this.sums = [0, 1, 2].map(() => new Float64Array(side * (side + 1)));
    this.shownCells = Math.min(SHOWN, side);
    this.small = new Float32Array(this.shownCells ** 2);
    this.measure(0, side);
    this.look();
  }

  get n() { return this.positions.length / 2; }
  get bounds() { return [0, 0, this.side, this.side]; }
  get extent() { return this.bounds; }

  /** Running sums of the rows from..to-1 of the density, the picture of it, and the cost of the start. */
  measure(from, to) {
    const { side, density, sums: [m0, m1, m2], shownCells } = this;
    for (let y = from; y < to; y++) {
      for (let x = 0, at = y * (side + 1); x < side; x++, at++) {
        const value = density[y * side + x], middle = x + 0.5;
        m0[at + 1] = m0[at] + value;
        m1[at + 1] = m1[at] + value * middle;
        m2[at + 1] = m2[at] + value * middle * middle;
      }
    }
    const size = side / shownCells;
    for (let py = Math.floor(from / size); py < Math.min(Math.ceil(to / size), shownCells); py++) {
      const low = Math.floor(py * size), high = Math.max(Math.floor((py + 1) * size), low + 1);
      for (let px = 0; px < shownCells; px++) {
        const left = Math.floor(px * size), right = Math.max(Math.floor((px + 1) * size), left + 1);
        let total = 0;
        for (let y = low; y < high; y++) total += m0[y * (side + 1) + right] - m0[y * (side + 1) + left];
        this.small[py * shownCells + px] = total / ((high - low) * (right - left));
      }
    }
    this.startCost = this.cost(this.begun);
    this.moments = null;
  }

  /** Visit the pieces of robot i's cell among `others`: visit(row, from, to), cut to the box [left, low, right, high] of map cells. */
  pieces(p, i, others, [left, low, right, high], visit) {
    const xi = p[2 * i], yi = p[2 * i + 1];
    const lines = others.filter((j) => j !== i).map((j) => bisector(xi, yi, p[2 * j], p[2 * j + 1], i < j));
    for (let row = Math.max(low, 0); row < Math.min(high, this.side); row++) {
      let from = -Infinity, to = Infinity;
      for (const [at, slope, turn] of lines) {
        const x = at + slope * (row + 0.5);
        if (turn > 0) { if (x < to) to = x; } else if (x > from) from = x;
      }
      const begin = Math.max(left, 0, firstCell(from, this.side)), end = Math.min(right, firstCell(to, this.side));
      if (begin < end) visit(row, begin, end);
    }
  }

  everyone(p = this.positions) { return Array.from({ length: p.length / 2 }, (_, i) => i); }

  /** Mass, first moments and squared distance of the density over each robot's cell: [n][4]. */
  cellMoments(p) {
    const { side, sums: [s0, s1, s2] } = this, all = this.everyone(p);
    return all.map((i) => {
      const out = [0, 0, 0, 0], x = p[2 * i], y = p[2 * i + 1];
      this.pieces(p, i, all, this.bounds, (row, from, to) => {
        const a = row * (side + 1) + from, b = row * (side + 1) + to;
        const m0 = s0[b] - s0[a], m1 = s1[b] - s1[a], m2 = s2[b] - s2[a];
        out[0] += m0;
        out[1] += m1;
        out[2] += (row + 0.5) * m0;
        out[3] += m2 - 2 * x * m1 + (x * x + (row + 0.5 - y) ** 2) * m0;
      });
      return out;
    });
  }

  /** J: what matters times the squared distance to the nearest robot. */
  cost(p) { return this.cellMoments(p).reduce((total, moments) => total + moments[3], 0); }

  /** J now over J at the start. */
  metric() {
    this.moments ??= this.cellMoments(this.positions);
    const cost = this.moments.reduce((total, moments) => total + moments[3], 0);
    return this.startCost > 0 ? cost / this.startCost : 1;
  }

  /** Every robot senses the square around it. */
  look() {
    const { side } = this;
    for (let i = 0; i < this.n; i++) {
      const x0 = Math.max(corner(this.positions[2 * i], SENSOR), 0), x1 = Math.min(corner(this.positions[2 * i], SENSOR) + SENSOR, side);
      const y0 = Math.max(corner(this.positions[2 * i + 1], SENSOR), 0), y1 = Math.min(corner(this.positions[2 * i + 1], SENSOR) + SENSOR, side);
      for (let y = y0; y < y1; y++) {
        if (x0 >= x1) continue;
        this.seen[i].fill(1, y * side + x0, y * side + x1);
        this.seenByAny.fill(1, y * side + x0, y * side + x1);
      }
    }
  }

  observe(cut) {
    const { n, positions: p } = this, width = 5 * PIXELS * PIXELS, links = [];
    const features = new Float32Array(n * width), scale = RANGE * RANGE;
    this.look();
    for (let i = 0; i < n; i++) {
      for (let j = 0; j < n; j++) {
        if (j !== i && (p[2 * i] - p[2 * j]) ** 2 + (p[2 * i + 1] - p[2 * j + 1]) ** 2 < scale && !cut(i, j)) links.push(j, i);
      }
      this.picture(i, features.subarray(i * width, (i + 1) * width));
    }
    return { features, shape: [n, 5, PIXELS, PIXELS], landmark: new Float32Array(2 * n), links };
  }

  /** The five maps that a robot observes: density, boundary, its neighbours' x and y, and what it has seen. */
  picture(i, out) {
    const { side, positions: p, density } = this, size = PIXELS * PIXELS, seen = this.seen[i];
    const x0 = corner(p[2 * i], LOCAL), y0 = corner(p[2 * i + 1], LOCAL), { taps, share } = FILTER;
    const rowsKnown = new Float32Array(PIXELS * LOCAL), rowsSeen = new Float32Array(PIXELS * LOCAL); // along y pixels already
    for (let y = Math.max(0, -y0); y < Math.min(LOCAL, side - y0); y++) {
      const line = (y + y0) * side + x0;
      for (let x = Math.max(0, -x0); x < Math.min(LOCAL, side - x0); x++) {
        if (!seen[line + x]) continue;
        const value = density[line + x], tap = taps[y];
        for (let t = 0; t < tap.length; t += 2) {
          rowsKnown[tap[t] * LOCAL + x] += tap[t + 1] * value;
          rowsSeen[tap[t] * LOCAL + x] += tap[t + 1];
        }
      }
    }
    for (let row = 0; row < PIXELS; row++) {
      for (let x = 0; x < LOCAL; x++) {
        const known = rowsKnown[row * LOCAL + x], looked = rowsSeen[row * LOCAL + x];
        if (!looked) continue;
        for (let t = 0, tap = taps[x]; t < tap.length; t += 2) {
          out[row * PIXELS + tap[t]] += tap[t + 1] * known;
          out[4 * size + row * PIXELS + tap[t]] += tap[t + 1] * looked;
        }
      }
    }
    const inside = (from, pixel) => {
      const low = Math.min(Math.max(-from, 0), LOCAL), high = Math.min(Math.max(side - from, 0), LOCAL);
      return share[high * PIXELS + pixel] - share[low * PIXELS + pixel];
    };
    for (let row = 0; row < PIXELS; row++) {
      for (let column = 0; column < PIXELS; column++) out[size + row * PIXELS + column] = Math.max(0, 1 - inside(y0, row) * inside(x0, column));
    }
    for (let j = 0; j < this.n; j++) {
      const x = (p[2 * j] - p[2 * i]) / RANGE, y = (p[2 * j + 1] - p[2 * i + 1]) / RANGE;
      if (j === i || x * x + y * y >= 1) continue;
      const at = Math.min(Math.trunc((y + 1) * (PIXELS / 2)), PIXELS - 1) * PIXELS + Math.min(Math.trunc((x + 1) * (PIXELS / 2)), PIXELS - 1);
      out[2 * size + at] += x;
      out[3 * size + at] += y;
    }
  }

  move(command) {
    for (let i = 0; i < this.n; i++) {
      const length = Math.max(Math.hypot(command[2 * i], command[2 * i + 1]), 1);
      for (const axis of [0, 1]) {
        const at = 2 * i + axis;
        this.velocity[at] = command[at] / length;
        this.positions[at] = Math.min(Math.max(Math.fround(this.positions[at] + this.velocity[at] * this.speed * this.dt), 0), this.side);
      }
    }
    this.moments = null;
    this.time++;
  }

  /** Every robot to the centroid of its cell, under the density and among the robots that it is told of. */
  controlled(driver, sense, alive) {
    const { n, positions: p, side } = this, command = new Float64Array(2 * n), all = this.everyone();
    const heard = Array.from({ length: n }, () => []);
    for (let e = 0; e < sense.links.length; e += 2) if (alive[sense.links[e]] && alive[sense.links[e + 1]]) heard[sense.links[e + 1]].push(sense.links[e]);
    if (driver === "clairvoyant") this.moments ??= this.cellMoments(p);
    for (let i = 0; i < n; i++) {
      const local = driver === "d-cvt", others = local ? heard[i] : all, [x0, y0] = [0, 1].map((axis) => corner(p[2 * i + axis], LOCAL));
      const box = local ? [x0, y0, x0 + LOCAL, y0 + LOCAL] : this.bounds, seen = local ? this.seen[i] : this.seenByAny;
      let [mass, mx, my] = driver === "clairvoyant" ? this.moments[i] : [0, 0, 0];
      if (driver !== "clairvoyant") {
        this.pieces(p, i, others, box, (row, from, to) => {
          for (let x = from, at = row * side + from; x < to; x++, at++) {
            if (!seen[at]) continue;
            const value = this.density[at];
            mass += value;
            mx += value * (x + 0.5);
            my += value * (row + 0.5);
          }
        });
      }
      const cut = [Math.max(box[0], 0), Math.max(box[1], 0), Math.min(box[2], side), Math.min(box[3], side)];
      const goal = mass > 0 ? [mx / mass, my / mass] : this.middle(i, others, cut);
      const way = goal.map((to, axis) => (to - p[2 * i + axis]) / (this.dt * this.speed)), length = Math.max(Math.hypot(...way), 1);
      command.set([way[0] / length, way[1] / length], 2 * i);
    }
    return command;
  }

  /** The mean of the vertices of a robot's cell in a box. */
  middle(i, others, [left, low, right, high]) {
    const { positions: p } = this, x = p[2 * i], y = p[2 * i + 1];
    let polygon = [[left, low], [right, low], [right, high], [left, high]];
    for (const j of others) {
      const dx = p[2 * j] - x, dy = p[2 * j + 1] - y;
      if (j === i || !polygon.length) continue;
      if (dx === 0 && dy === 0) { if (j < i) polygon = []; continue; }
      const limit = dx * (x + dx / 2) + dy * (y + dy / 2), next = [];
      polygon.forEach(([px, py], k) => {
        const [qx, qy] = polygon[(k + 1) % polygon.length], s = dx * px + dy * py - limit, t = dx * qx + dy * qy - limit;
        if (s <= 0) next.push([px, py]);
        if ((s < 0 && t > 0) || (t < 0 && s > 0)) next.push([px + ((qx - px) * s) / (s - t), py + ((qy - py) * s) / (s - t)]);
      });
      polygon = next;
    }
    if (polygon.length < 3) return [x, y];
    return [0, 1].map((axis) => polygon.reduce((total, point) => total + point[axis], 0) / polygon.length);
  }

  /** Whom a robot knows of under a controller, [n]. */
  knows(driver, i, sense, alive) {
    if (driver !== "d-cvt") return new Uint8Array(this.n).fill(1);
    const known = new Uint8Array(this.n);
    for (let e = 0; e < sense.links.length; e += 2) if (sense.links[e + 1] === i && alive[i] && alive[sense.links[e]]) known[sense.links[e]] = 1;
    return known;
  }

  /** What is important where, and what of it has been seen: by the robot that is pointed at, or else by any. */
  scene(sense, focus) {
    const { side, shownCells: cells } = this, seen = focus >= 0 ? this.seen[focus] : this.seenByAny;
    const shown = new Uint8Array(cells * cells), size = side / cells;
    for (let y = 0; y < cells; y++) {
      const row = Math.floor((y + 0.5) * size) * side;
      for (let x = 0; x < cells; x++) shown[y * cells + x] = seen[row + Math.floor((x + 0.5) * size)];
    }
    return { density: this.small.slice(), pixels: cells, seen: shown, most: 1 };
  }

  addRobot(x, y) {
    this.positions = Float32Array.from([...this.positions, x, y]);
    this.velocity = Float32Array.from([...this.velocity, 0, 0]);
    this.begun = Float32Array.from([...this.begun, x, y]);
    this.seen.push(new Uint8Array(this.side * this.side));
    this.changedTeam();
  }

  removeRobot(number) {
    const keep = (_, at) => at >> 1 !== number;
    for (const name of ["positions", "velocity", "begun"]) this[name] = this[name].filter(keep);
    this.seen.splice(number, 1);
    this.changedTeam();
  }

  changedTeam() {
    this.startCost = this.cost(this.begun);
    this.moments = null;
  }

  /** A brush: what matters becomes more (or, below 0, nothing) around a point. Nobody knows yet. */
  paint(x, y, radius, amount) {
    const { side } = this, low = Math.max(Math.floor(y - radius), 0), high = Math.min(Math.ceil(y + radius), side);
    for (let row = low; row < high; row++) {
      for (let column = Math.max(Math.floor(x - radius), 0); column < Math.min(Math.ceil(x + radius), side); column++) {
        const away = ((column + 0.5 - x) ** 2 + (row + 0.5 - y) ** 2) / (radius * radius), at = row * side + column;
        if (away >= 1) continue;
        this.density[at] = amount < 0 ? 0 : Math.min(1, this.density[at] + amount * (1 - away) ** 2);
        this.seenByAny[at] = 0;
        for (const seen of this.seen) seen[at] = 0;
      }
    }
    this.measure(low, high);
  }
}

function gaussians(chance, side, count) {
  const density = new Float32Array(side * side);
  for (let f = 0; f < count; f++) {
    const [x, y, sigma, mass] = [chance() * side, chance() * side, 40 + 20 * chance(), 0.6 + 0.4 * chance()], reach = 2 * sigma;
    for (let row = Math.max(Math.floor(y - reach), 0); row < Math.min(Math.ceil(y + reach), side); row++) {
      for (let column = Math.max(Math.floor(x - reach), 0); column < Math.min(Math.ceil(x + reach), side); column++) {
        const away = (column + 0.5 - x) ** 2 + (row + 0.5 - y) ** 2;
        if (away < reach * reach) density[row * side + column] += (mass / (sigma * sigma)) * Math.exp(-away / (2 * sigma * sigma));
      }
    }
  }
  const most = density.reduce((a, b) => Math.max(a, b), 0);
  return most > 0 ? density.map((value) => value / most) : density;
}

export const DENSITIES = {
  gaussians: ["32 features", (chance, side) => gaussians(chance, side, 32)],
  few: ["8 features", (chance, side) => gaussians(chance, side, 8)],
  blank: ["Empty: paint it", (chance, side) => new Float32Array(side * side)],
};

/** A world of 1024 m with `n` robots anywhere. */
export function beginCoverage(density, n, seed, dt) {
  const chance = stream(seed), side = 1024;
  const positions = Float32Array.from({ length: 2 * n }, () => chance() * side);
  return new Coverage(positions, DENSITIES[density][1](chance, side), side, dt);
}
