// The relay of Algorithm 1 for a whole team, by the rules of src/mast_swarm/comms/relay.py: at every control instant each
// robot stamps its own message; a message moves one hop in `delay` seconds over the links of that moment; a receiver keeps
// the newest of each origin and passes on what it has.
//
// A table says which stamp each robot holds of each other: layers[0] the newest, the others older ones that wait for their
// hop (none of these where the delay divides the control period). Contents are kept once, by origin and stamp.

import { combine, keyOf, uniform } from "./chance.js";

const LOSS = 1;
export const MOST_PERIODS = 20; // of a delay

/** A ratio as a fraction of small whole numbers: 0.3 / 0.1 is 3. */
export function fraction(value) {
  let [a, b, c, d] = [0, 1, 1, 0], rest = value; // a/b, c/d: the last two convergents
  for (let round = 0; round < 20; round++) {
    const whole = Math.floor(rest);
    [a, b, c, d] = [c, d, a + whole * c, b + whole * d];
    if (Math.abs(c / d - value) <= 1e-12 * Math.max(value, 1) || rest === whole) break;
    rest = 1 / (rest - whole);
  }
  return [c, d];
}

export class Relay {
  constructor(robots, channel, dt, environment = 0) {
    this.n = robots;
    this.dt = dt;
    this.step = 0;
    this.layers = [new Int32Array(robots * robots).fill(-1)];
    this.alive = new Uint8Array(robots).fill(1);
    this.store = Array.from({ length: robots }, () => new Map()); // by origin: stamp -> {message, x, y}
    this.environment = environment;
    this.set(channel);
  }

  /** Another channel {delay, loss, seed, maxAge} from now on; what is held stays held. */
  set(channel) {
    this.channel = { loss: 0, seed: 0, maxAge: null, ...channel };
    [this.hop, this.period] = fraction(this.channel.delay / this.dt); // ticks
    this.instant = this.channel.delay === 0;
    this.oldest = this.channel.maxAge === null ? Infinity : this.channel.maxAge / this.dt; // control periods
    this.key = keyOf(this.channel.seed, this.environment);
  }

  get newest() { return this.layers[0]; }

  /** Everyone's message and place, stamped now. messages [n * width], positions [n * 2], links: [source, target, ...]. */
  sample(messages, positions, links) {
    const { n } = this, width = messages.length / n;
    if (this.instant) this.layers = [new Int32Array(n * n).fill(-1)];
    for (let i = 0; i < n; i++) {
      if (!this.alive[i]) continue;
      this.store[i].set(this.step, { message: messages.slice(i * width, (i + 1) * width), x: positions[2 * i], y: positions[2 * i + 1] });
      const before = this.newest[i * n + i];
      if (before >= 0 && before < this.step && this.hop > 1) this.tuck(i * n + i, before); // it waits for its next hop
      this.newest[i * n + i] = this.step;
    }
    if (this.instant) this.arriveAtOnce(links);
    else this.forget();
    if (this.step % 8 === 0) this.clean();
  }

  /** What is due hops over the links, and it is the next instant. */
  exchange(links) {
    if (!this.instant) {
      const usable = this.usable(links);
      if (this.hop === 1 && this.oldest === Infinity) this.hopTogether(usable);
      else this.hopInTurn(usable);
    }
    this.step++;
  }

  usable(links) {
    const found = [];
    for (let e = 0; e < links.length; e += 2) {
      if (this.alive[links[e]] && this.alive[links[e + 1]]) found.push(links[e], links[e + 1]);
    }
    return found;
  }

  hopTogether(links) {
    const { n } = this;
    let table = this.newest;
    for (let q = 1; q <= this.period; q++) {
      const next = table.slice(), lost = this.losses(q);
      let news = false;
      for (let e = 0; e < links.length; e += 2) {
        const source = links[e], target = links[e + 1];
        if (lost && lost(source, target)) { news = true; continue; } // another round may bring it
        for (let j = 0, s = source * n, t = target * n; j < n; j++) {
          if (table[s + j] > next[t + j]) { next[t + j] = table[s + j]; news = true; }
        }
      }
      table = next;
      if (!news) break;
    }
    this.layers[0] = table;
    this.layers.length = 1;
  }

  hopInTurn(links) {
    const { n } = this;
    for (const [tick, due] of this.moments()) {
      const offered = new Int32Array(n * n).fill(-1);
      for (const layer of this.layers) {
        for (let p = 0; p < layer.length; p++) if (layer[p] > offered[p] && due.has(layer[p])) offered[p] = layer[p];
      }
      const lost = this.losses(Math.ceil(tick / this.hop)), arrived = new Int32Array(n * n).fill(-1);
      for (let e = 0; e < links.length; e += 2) {
        const source = links[e], target = links[e + 1];
        if (lost && lost(source, target)) continue;
        for (let j = 0, s = source * n, t = target * n; j < n; j++) if (offered[s + j] > arrived[t + j]) arrived[t + j] = offered[s + j];
      }
      // Of what has hopped only the newest stays; a newest that gives way before its hop waits for it.
      for (const layer of this.layers.slice(1)) {
        for (let p = 0; p < layer.length; p++) if (layer[p] >= 0 && due.has(layer[p])) layer[p] = -1;
      }
      for (let p = 0; p < arrived.length; p++) {
        const before = this.newest[p];
        if (arrived[p] <= before) continue;
        this.newest[p] = arrived[p];
        if (this.hop > 1 && before >= 0 && !due.has(before)) this.tuck(p, before);
      }
    }
  }

  /** When stamps hop in the period from this instant on, in ticks after it, and which. */
  moments() {
    const held = new Set(), found = new Map();
    for (const layer of this.layers) for (const stamp of layer) if (stamp >= 0) held.add(stamp);
    for (const stamp of held) {
      const age = (this.step - stamp) * this.period;
      for (let ends = Math.floor(age / this.hop) * this.hop + this.hop; ends <= age + this.period; ends += this.hop) {
        if (ends > this.oldest * this.period) break;
        if (!found.has(ends - age)) found.set(ends - age, new Set());
        found.get(ends - age).add(stamp);
      }
    }
    return [...found].sort((a, b) => a[0] - b[0]);
  }

  /** Put an older stamp into a free place after the first layer. */
  tuck(place, stamp) {
    for (const layer of this.layers.slice(1)) if (layer[place] < 0) { layer[place] = stamp; return; }
    this.layers.push(new Int32Array(this.n * this.n).fill(-1));
    this.layers.at(-1)[place] = stamp;
  }

  forget() {
    if (this.oldest === Infinity) return;
    const least = this.step - Math.floor(this.oldest);
    for (const layer of this.layers) for (let p = 0; p < layer.length; p++) if (layer[p] < least) layer[p] = -1;
  }

  /** No delay: everyone holds the present messages of those whose news can flow to it now. */
  arriveAtOnce(links) {
    const { n } = this, lost = this.losses(0), heard = Array.from({ length: n }, () => []);
    const usable = this.usable(links);
    for (let e = 0; e < usable.length; e += 2) {
      if (!lost || !lost(usable[e], usable[e + 1])) heard[usable[e + 1]].push(usable[e]);
    }
    for (let i = 0; i < n; i++) {
      if (!this.alive[i]) continue;
      const waiting = [i];
      while (waiting.length) {
        for (const j of heard[waiting.pop()]) if (this.newest[i * n + j] < 0) { this.newest[i * n + j] = this.step; waiting.push(j); }
      }
    }
  }

  /** Which links lose their transmission in round q of this period; null: none. */
  losses(q) {
    if (!(this.channel.loss > 0)) return null;
    const key = combine(this.key, LOSS, this.step, q);
    return (source, target) => uniform(combine(key, source, target)) < this.channel.loss;
  }

  /** Drop contents that nobody holds any more. */
  clean() {
    const used = Array.from({ length: this.n }, () => new Set());
    for (const layer of this.layers) for (let p = 0; p < layer.length; p++) if (layer[p] >= 0) used[p % this.n].add(layer[p]);
    this.store.forEach((kept, origin) => { for (const stamp of kept.keys()) if (!used[origin].has(stamp)) kept.delete(stamp); });
  }

  /** The team has become another one: `kept` lists the old numbers of those that stay, -1 for a new robot. */
  remap(kept) {
    const { n: before } = this, n = kept.length;
    this.layers = this.layers.map((layer) => {
      const next = new Int32Array(n * n).fill(-1);
      kept.forEach((i, a) => kept.forEach((j, b) => { if (i >= 0 && j >= 0) next[a * n + b] = layer[i * before + j]; }));
      return next;
    });
    this.alive = Uint8Array.from(kept, (i) => (i < 0 ? 1 : this.alive[i]));
    this.store = kept.map((i) => (i < 0 ? new Map() : this.store[i]));
    this.n = n;
  }
}
