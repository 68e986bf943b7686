// One simulation: a world, who drives it, and what the user does to it between two control periods.

import { Relay } from "./relay.js";

export class Sim {
  /** world: of navigation.js or coverage.js; driver: a Policy, or the name of a controller. */
  constructor(world, driver, channel, seed = 0) {
    Object.assign(this, { world, driver, channel, seed });
    this.ids = Array.from({ length: world.n }, (_, i) => i); // names that stay when others are removed
    this.next = world.n;
    this.alive = new Uint8Array(world.n).fill(1);
    this.cuts = new Set(); // "a,b" of ids, the lower first
    this.held = -1; // the robot in the user's hand, which goes nowhere
    this.curve = [world.metric()];
    this.restart();
  }

  get learned() { return typeof this.driver !== "string"; }

  /** Nobody has said anything yet. */
  restart() {
    this.relay = this.learned ? new Relay(this.world.n, this.channel, this.world.dt, this.seed) : null;
    if (this.relay) {
      this.relay.alive = this.alive;
      this.relay.step = this.world.time;
    }
    this.trail = this.learned ? this.driver.trail(this.world.dt) : null;
    this.links = null; // those of the last instant
    this.sense = null;
  }

  drive(driver) {
    this.driver = driver;
    this.restart();
  }

  setChannel(change) {
    this.channel = { ...this.channel, ...change };
    this.relay?.set(this.channel);
  }

  cutName(i, j) { return [this.ids[i], this.ids[j]].sort((a, b) => a - b).join(); }

  /** The pairs of robots whose links are cut, in present numbers. */
  cutPairs() {
    const place = new Map(this.ids.map((id, i) => [id, i]));
    return [...this.cuts].map((name) => name.split(",").map((id) => place.get(+id))).filter((pair) => !pair.includes(undefined)).flat();
  }

  isCut(i, j) { return this.cuts.size > 0 && this.cuts.has(this.cutName(i, j)); }

  /** Robots look around and hear what has reached them; at every instant once. */
  async look() {
    if (this.sense) return;
    this.sense = this.world.observe((i, j) => this.isCut(i, j));
    if (!this.relay) return;
    if (this.links) this.relay.exchange(this.links);
    this.links = this.sense.links;
    const messages = await this.driver.perceive(this.sense.features, this.sense.shape);
    this.relay.sample(messages, this.world.positions, this.sense.links);
  }

  /** One control period. */
  async step() {
    await this.look();
    const command = await this.command();
    for (let i = 0; i < this.world.n; i++) if (!this.alive[i] || i === this.held) command[2 * i] = command[2 * i + 1] = 0;
    this.world.move(command);
    this.sense = null;
    this.curve.push(this.world.metric());
  }

  async command() {
    const { world, sense, driver, alive } = this;
    const away = this.trail?.away(world.positions, world.time) ?? null;
    if (this.relay) return driver.decide(this.relay, sense.landmark, this.seed, world.time * world.dt, away);
    return world.controlled(driver, sense, alive);
  }

  // What the user does.

  moveRobot(i, x, y) { this.world.positions.set([x, y], 2 * i); this.changed(); }

  addRobot(x, y) {
    this.world.addRobot(x, y);
    this.remapped([...this.ids.keys(), -1]);
  }

  removeRobot(i) {
    this.world.removeRobot(i);
    this.remapped([...this.ids.keys()].filter((j) => j !== i));
  }

  remapped(kept) {
    const alive = this.alive, ids = this.ids;
    this.alive = Uint8Array.from(kept, (i) => (i < 0 ? 1 : alive[i]));
    this.ids = kept.map((i) => (i < 0 ? this.next++ : ids[i]));
    if (this.held >= 0) this.held = kept.indexOf(this.held);
    this.trail?.remap(kept);
    if (this.relay) {
      this.relay.remap(kept);
      this.relay.alive = this.alive;
      this.links = null; // a period without news
      this.relay.step = this.world.time;
    }
    this.changed();
  }

  kill(i) { this.alive[i] = this.alive[i] ? 0 : 1; this.changed(); }

  cut(i, j) {
    const name = this.cutName(i, j);
    if (!this.cuts.delete(name)) this.cuts.add(name);
    this.changed();
  }

  /** The world is not what was sensed of it: robots look again, and say what they see under the same stamp. */
  changed() {
    if (this.sense && this.relay) this.links = null;
    this.sense = null;
  }

  /** What one robot knows: how it came by it, how old it is, and for learned policies where its attention goes. */
  async inspect(i) {
    await this.look();
    const hops = this.hopsTo(i), { world, sense, alive, ids } = this;
    if (this.relay) {
      if (!alive[i]) return [];
      const entries = await this.driver.attention(this.relay, i);
      const inside = new Map(entries.map((entry) => [entry.origin, entry])), rows = [];
      for (let j = 0; j < world.n; j++) {
        const stamp = this.relay.newest[i * world.n + j];
        if (stamp < 0) continue;
        const { x, y } = this.relay.store[j].get(stamp), entry = inside.get(j);
        rows.push({ robot: j, id: ids[j], age: (this.relay.step - stamp) * world.dt, hops: hops[j], x, y, level: entry?.level ?? null, weights: entry?.weights ?? null });
      }
      return rows;
    }
    const known = world.knows(this.driver, i, sense, alive);
    const rows = [];
    for (let j = 0; j < world.n; j++) {
      if (known[j] || j === i) rows.push({ robot: j, id: ids[j], age: 0, hops: hops[j], x: world.positions[2 * j], y: world.positions[2 * j + 1], level: null, weights: null });
    }
    return rows;
  }

  /** Fewest links from every robot to robot i, -1 where there is no way. */
  hopsTo(i) {
    const { n } = this.world, heard = Array.from({ length: n }, () => []), hops = new Int32Array(n).fill(-1);
    for (let e = 0; e < this.sense.links.length; e += 2) {
      if (this.alive[this.sense.links[e]] && this.alive[this.sense.links[e + 1]]) heard[this.sense.links[e + 1]].push(this.sense.links[e]);
    }
    hops[i] = 0;
    for (let front = [i], far = 1; front.length; far++) {
      const next = [];
      for (const a of front) for (const b of heard[a]) if (hops[b] < 0) { hops[b] = far; next.push(b); }
      front = next;
    }
    return hops;
  }

  /** All that a picture of this instant needs. */
  async snapshot(focus) {
    await this.look();
    const { world, ids } = this;
    return {
      time: world.time * world.dt,
      dt: world.dt,
      bounds: world.bounds,
      extent: world.extent,
      positions: world.positions.slice(),
      ids: ids.slice(),
      alive: this.alive.slice(),
      links: Int32Array.from(this.sense.links),
      cuts: Int32Array.from(this.cutPairs()),
      scene: world.scene(this.sense, focus < world.n ? focus : -1),
      metric: this.curve.at(-1),
      radius: this.learned ? this.driver.radius : null,
      focus: focus >= 0 && focus < world.n ? { robot: focus, knows: await this.inspect(focus) } : null,
    };
  }
}
