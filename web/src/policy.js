// A learned policy that every robot runs alone, on the messages that have reached it. onnxruntime-web computes the two
// graphs of src/mast_swarm/interop/team.py: perceive (features -> messages) and team (what everyone holds -> predictions).

import { fill, heading, leashed, Trail, turned } from "./explore.js";
import { inputs, views } from "./views.js";

const MOST_VIEWS = 100; // that are computed at a time, which bounds the memory

export class Policy {
  /** ort: the module of onnxruntime-web; read: a file's name -> its bytes; about: the policy's entry in policies.json. */
  static async load(ort, read, about) {
    const options = { executionProviders: ["wasm"], graphOptimizationLevel: "all" };
    const [perceive, team] = await Promise.all(
      ["perceive", "team"].map(async (part) => ort.InferenceSession.create(await read(`${about.folder}/${part}.onnx`), options)),
    );
    return new Policy(ort, about, perceive, team);
  }

  constructor(ort, about, perceive, team) {
    Object.assign(this, { ort, about, perceiving: perceive, team });
    this.radius = about.attention_radius; // metres; null: no window. The page may change it
  }

  /** Messages [n * d_msg] of what robots sense: features with their shape [n, ...]. */
  async perceive(features, shape) {
    const given = new this.ort.Tensor("float32", features, shape);
    return (await this.perceiving.run({ features: given })).message.data;
  }

  /** What robots that explore remember; null: nothing. */
  trail(dt) {
    const { memory, spread_m: spread } = this.about.exploration ?? {};
    return memory ? new Trail(memory, spread, dt) : null;
  }

  /** Commands [n * 2] from what robots hold; 0 for those that have failed. away: what a trail pushes, or null. */
  async decide(relay, landmark, seed, time, away) {
    const { layers, outputs } = this.about, all = views(relay, this.radius, layers);
    const command = new Float64Array(2 * relay.n);
    for (let first = 0; first < all.views.length; first += MOST_VIEWS) {
      const part = { messages: all.messages, views: all.views.slice(first, first + MOST_VIEWS) };
      const { feeds, robots } = inputs(part, layers, this.about.message_width);
      const { prediction } = await this.run(feeds, ["prediction"]);
      robots.forEach((robot, row) => {
        const [x, y, speed] = prediction.data.subarray(row * outputs, (row + 1) * outputs);
        const explored = speed === undefined ? [x, y] : this.explore(x, y, speed, robot, landmark, seed, time, away);
        command.set(explored, 2 * robot);
      });
    }
    return command;
  }

  explore(x, y, speed, robot, landmark, seed, time, away) {
    const { time_s: turn, reach_m: reach, push } = this.about.exploration, of = [2 * robot, 2 * robot + 2];
    const free = heading(seed, robot, time / turn), pushed = away ? turned(free, away.subarray(...of), push) : free;
    return fill(x, y, speed, leashed(pushed, landmark.subarray(...of), reach));
  }

  /** What one robot holds and where its attention goes: [{origin, stamp, x, y, level, weights: [layer][head]}], own first. */
  async attention(relay, robot) {
    const { layers, heads } = this.about, all = views(relay, this.radius, layers, robot);
    if (!all.views.length) return [];
    const { feeds } = inputs(all, layers, this.about.message_width), [view] = all.views;
    const names = Array.from({ length: layers }, (_, layer) => `weights_${layer + 1}`);
    const found = await this.run(feeds, names);
    return view.entries.map((number, column) => ({
      ...all.messages[number],
      message: undefined,
      level: view.levels[column],
      weights: names.map((name) => {
        const [, , written, read] = found[name].dims; // the robot's own row is the first
        return Array.from({ length: heads }, (_, head) => (column < read ? found[name].data[head * written * read + column] : 0));
      }),
    }));
  }

  async run(feeds, fetches) {
    const given = {};
    for (const name of this.team.inputNames) given[name] = new this.ort.Tensor(feeds[name].type, feeds[name].data, feeds[name].dims); // few layers do not need all
    return this.team.run(given, fetches);
  }
}
