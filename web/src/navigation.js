// The world of navigation (src/mast_swarm/tasks/navigation): robots sense the three nearest goals and robots, and hear the
// latter. And its controllers that are not learned: LSAP, which sees everything, and DHBA-k, which knows what k hops bring.

import { assign } from "./assign.js";
import { stream } from "./chance.js";

const OBSERVED = 3, SCALE = 100, SUCCESS = 5, SEPARATION = 5;
const HOPS = 8; // of DHBA

/** The `count` nearest of the points to (x, y), nearest first, -1 where there are fewer; ties by lowest number. */
function nearest(x, y, points, count, except, out, at) {
  const best = new Float64Array(count).fill(Infinity);
  for (let s = 0; s < count; s++) out[at + s] = -1;
  for (let j = 0; j < points.length / 2; j++) {
    if (j === except) continue;
    const away = (points[2 * j] - x) ** 2 + (points[2 * j + 1] - y) ** 2;
    if (!(away < best[count - 1])) continue;
    let s = count - 1;
    for (; s > 0 && away < best[s - 1]; s--) { best[s] = best[s - 1]; out[at + s] = out[at + s - 1]; }
    best[s] = away;
    out[at + s] = j;
  }
}

export class Navigation {
  constructor(positions, goals) {
    this.task = "navigation";
    this.dt = 1;
    this.speed = 5;
    this.positions = Float32Array.from(positions);
    this.goals = Float32Array.from(goals);
    this.velocity = new Float32Array(this.positions.length);
    this.time = 0; // control periods
    this.side = Navigation.side(Math.max(this.n, this.goals.length / 2));
  }

  static side(robots) { return 1000 * Math.sqrt(robots / 100); }

  get n() { return this.positions.length / 2; }

  /** The corners of the world: x, y from, x, y to. */
  get bounds() { return [-this.side / 2, -this.side / 2, this.side / 2, this.side / 2]; }

  /** The same, with all robots and goals: some start outside, and robots may leave. */
  get extent() {
    const box = this.bounds;
    for (const points of [this.positions, this.goals]) {
      points.forEach((value, at) => { box[at % 2] = Math.min(box[at % 2], value - 8); box[2 + (at % 2)] = Math.max(box[2 + (at % 2)], value + 8); });
    }
    return box;
  }

  /** What robots sense now, and who hears whom: links [source, target, ...], each way once. `cut` says which links are cut. */
  observe(cut) {
    const { n, positions: p, goals } = this, width = 2 + 4 * OBSERVED;
    const features = new Float32Array(n * width), landmark = new Float32Array(2 * n);
    const seen = new Int32Array(n * OBSERVED), neighbours = new Int32Array(n * OBSERVED);
    const heard = new Set();
    for (let i = 0; i < n; i++) {
      const x = p[2 * i], y = p[2 * i + 1];
      nearest(x, y, goals, OBSERVED, -1, seen, i * OBSERVED);
      nearest(x, y, p, OBSERVED, i, neighbours, i * OBSERVED);
      features[i * width] = this.velocity[2 * i];
      features[i * width + 1] = this.velocity[2 * i + 1];
      for (let s = 0; s < OBSERVED; s++) {
        const goal = seen[i * OBSERVED + s], other = neighbours[i * OBSERVED + s], at = i * width + 2 + 2 * s;
        for (const axis of [0, 1]) {
          if (goal >= 0) features[at + axis] = Math.fround(goals[2 * goal + axis] - p[2 * i + axis]) / SCALE;
          if (other >= 0) features[at + 2 * OBSERVED + axis] = Math.fround(p[2 * other + axis] - p[2 * i + axis]) / SCALE;
        }
        if (other >= 0 && !cut(i, other)) { heard.add(i * n + other); heard.add(other * n + i); }
      }
      const goal = seen[i * OBSERVED];
      if (goal >= 0) for (const axis of [0, 1]) landmark[2 * i + axis] = goals[2 * goal + axis] - p[2 * i + axis];
    }
    const links = [];
    for (const pair of heard) links.push(pair % n, Math.floor(pair / n));
    return { features, shape: [n, width], landmark, links, seen, neighbours };
  }

  /** One control period with commands [n * 2] in units of the longest one, at most 1 long. */
  move(command) {
    for (let i = 0; i < this.n; i++) {
      const length = Math.max(Math.hypot(command[2 * i], command[2 * i + 1]), 1);
      for (const axis of [0, 1]) {
        this.velocity[2 * i + axis] = command[2 * i + axis] / length;
        this.positions[2 * i + axis] += this.velocity[2 * i + axis] * this.speed * this.dt;
      }
    }
    this.time++;
  }

  /** Which goals some robot is on. */
  reached() {
    const { positions: p, goals, n } = this;
    return Uint8Array.from({ length: goals.length / 2 }, (_, g) => {
      for (let i = 0; i < n; i++) if ((p[2 * i] - goals[2 * g]) ** 2 + (p[2 * i + 1] - goals[2 * g + 1]) ** 2 < SUCCESS * SUCCESS) return 1;
      return 0;
    });
  }

  /** The share of goals that are reached. */
  metric() {
    const reached = this.reached();
    return reached.length ? reached.reduce((a, b) => a + b, 0) / reached.length : 0;
  }

  /** What a picture needs besides robots and links. */
  scene(sense) {
    const state = this.reached(); // 0 unseen, 1 reached, 2 seen
    for (const goal of sense.seen) if (goal >= 0 && !state[goal]) state[goal] = 2;
    return { goals: this.goals.slice(), state, seen: sense.seen };
  }

  /** Commands of a controller that is not learned. */
  controlled(driver, sense, alive) { return driver === "lsap" ? lsap(this) : dhba(this, sense, HOPS, alive); }

  /** Whom a robot knows of under a controller, [n]. */
  knows(driver, i, sense, alive) {
    if (driver === "lsap") return new Uint8Array(this.n).fill(1);
    return alive[i] ? knowledge(this, sense, HOPS, alive)[i].slice(0, this.n) : new Uint8Array(this.n);
  }

  addRobot(x, y) {
    this.positions = Float32Array.from([...this.positions, x, y]);
    this.velocity = Float32Array.from([...this.velocity, 0, 0]);
  }

  removeRobot(number) {
    const keep = (_, at) => at >> 1 !== number;
    this.positions = this.positions.filter(keep);
    this.velocity = this.velocity.filter(keep);
  }
}

/** Commands straight to goals, -1 for none: as far as speed and time allow. */
function towards(world, goal) {
  const command = new Float64Array(2 * world.n);
  for (let i = 0; i < world.n; i++) {
    if (goal[i] < 0) continue;
    const way = [0, 1].map((axis) => (world.goals[2 * goal[i] + axis] - world.positions[2 * i + axis]) / (world.dt * world.speed));
    const length = Math.max(Math.hypot(...way), 1);
    command[2 * i] = way[0] / length;
    command[2 * i + 1] = way[1] / length;
  }
  return command;
}

/** Least total squared distance over all robots and goals. */
const lsap = (world) => towards(world, assign(world.positions, world.goals));

/** What each robot knows within k hops: sets of robots and of goals, shared by robots that know the same. */
function knowledge(world, sense, k, alive) {
  const { n } = world, heard = Array.from({ length: n }, () => []);
  for (let e = 0; e < sense.links.length; e += 2) {
    if (alive[sense.links[e]] && alive[sense.links[e + 1]]) heard[sense.links[e + 1]].push(sense.links[e]);
  }
  const goals = world.goals.length / 2, size = n + goals;
  let known = Array.from({ length: n }, (_, i) => {
    const own = new Uint8Array(size);
    own[i] = 1;
    for (let s = 0; s < OBSERVED; s++) {
      if (sense.neighbours[i * OBSERVED + s] >= 0) own[sense.neighbours[i * OBSERVED + s]] = 1;
      if (sense.seen[i * OBSERVED + s] >= 0) own[n + sense.seen[i * OBSERVED + s]] = 1;
    }
    return own;
  });
  for (let hop = 0; hop < k; hop++) {
    let news = false;
    known = known.map((own, i) => {
      const next = own.slice();
      for (const j of heard[i]) for (let s = 0; s < size; s++) if (known[j][s] && !next[s]) { next[s] = 1; news = true; }
      return next;
    });
    if (!news) break;
  }
  return known;
}

/** Each robot solves the assignment on all that robots within k hops observe, and goes to its own goal. */
function dhba(world, sense, k, alive) {
  const { n } = world, own = new Int32Array(n).fill(-1), solved = new Map();
  knowledge(world, sense, k, alive).forEach((known, i) => {
    const name = String.fromCharCode(...known);
    if (!solved.has(name)) {
      const robots = [], goals = [];
      known.forEach((is, s) => { if (is) (s < n ? robots : goals).push(s < n ? s : s - n); });
      const pick = (points, numbers) => Float64Array.from(numbers.flatMap((j) => [points[2 * j], points[2 * j + 1]]));
      const columns = assign(pick(world.positions, robots), pick(world.goals, goals));
      solved.set(name, new Map(robots.map((robot, r) => [robot, columns[r] < 0 ? -1 : goals[columns[r]]])));
    }
    own[i] = solved.get(name).get(i);
  });
  return towards(world, own);
}

// Start states. They are drawn by rules like those of the package, from other random numbers.

function separated(count, gap, draw) {
  const points = [];
  for (let tries = 0; points.length < count && tries < 200 * count + 2000; tries++) {
    const point = draw(points.length);
    if (points.every(([x, y]) => (x - point[0]) ** 2 + (y - point[1]) ** 2 >= gap * gap)) points.push(point);
  }
  while (points.length < count) points.push(draw(points.length)); // too dense: as it comes
  return points;
}

function clustered(chance, count, size, side) {
  const box = () => [(chance() - 0.5) * side, (chance() - 0.5) * side];
  if (size === 1) return separated(count, SEPARATION, box);
  const radius = 5 * SEPARATION * Math.sqrt(size), centres = separated(Math.ceil(count / size), 2 * radius, box);
  return separated(count, SEPARATION, (made) => {
    const [x, y] = centres[Math.floor(made / size)], r = radius * Math.sqrt(chance()), angle = 2 * Math.PI * chance();
    return [x + r * Math.cos(angle), y + r * Math.sin(angle)];
  });
}

const LETTERS = {
  M: ["10001", "11011", "10101", "10001", "10001", "10001", "10001"],
  A: ["01110", "10001", "10001", "11111", "10001", "10001", "10001"],
  S: ["01111", "10000", "10000", "01110", "00001", "00001", "11110"],
  T: ["11111", "00100", "00100", "00100", "00100", "00100", "00100"],
};

function word(count, side) {
  const dots = [];
  [..."MAST"].forEach((letter, l) => LETTERS[letter].forEach((row, y) => [...row].forEach((on, x) => { if (on === "1") dots.push([l * 6 + x, 6 - y]); })));
  const cell = (0.86 * side) / 22, made = [];
  for (let g = 0; g < count; g++) { // evenly along the dots; more goals than dots sit between them
    const at = (g * dots.length) / count, [x, y] = dots[Math.floor(at)], twice = Math.floor(at) === Math.floor(((g - 1) * dots.length) / count);
    made.push([(x - 11 + (twice ? 0.45 : 0)) * cell, (y - 3 + (twice ? 0.2 : 0)) * cell]);
  }
  return made;
}

export const SCENARIOS = {
  "clusters-5": ["Clusters of 5", (chance, n, side) => [clustered(chance, n, 5, side), clustered(chance, n, 5, side)]],
  "clusters-1": ["Anywhere", (chance, n, side) => [clustered(chance, n, 1, side), clustered(chance, n, 1, side)]],
  "clusters-10": ["Clusters of 10", (chance, n, side) => [clustered(chance, n, 10, side), clustered(chance, n, 10, side)]],
  "two-lines": ["Left to right", (chance, n, side) => {
    const strip = (from) => separated(n, SEPARATION, () => [from * side + chance() * side / 8, (chance() - 0.5) * side]);
    return [strip(-3 / 8), strip(1 / 4)];
  }],
  circle: ["From a ring", (chance, n, side) => [
    separated(n, SEPARATION, () => {
      const r = side * Math.sqrt((3 / 16) ** 2 + chance() * ((5 / 16) ** 2 - (3 / 16) ** 2)), angle = 2 * Math.PI * chance();
      return [r * Math.cos(angle), r * Math.sin(angle)];
    }),
    clustered(chance, n, 1, side),
  ]],
  word: ["Spell a word", (chance, n, side) => [clustered(chance, n, 1, side), word(n, side)]],
};

/** The world of a scenario with `n` robots and as many goals. */
export function begin(scenario, n, seed) {
  const [robots, goals] = SCENARIOS[scenario][1](stream(seed), n, Navigation.side(n));
  return new Navigation(robots.flat(), goals.flat());
}
