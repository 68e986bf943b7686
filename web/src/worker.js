// The simulation in a thread of its own, so that the page stays smooth: it is asked one thing at a time and answers each.

import * as ort from "onnxruntime-web/wasm";
import { assign } from "./assign.js";
import { beginCoverage, Coverage } from "./coverage.js";
import { begin, Navigation } from "./navigation.js";
import { Policy } from "./policy.js";
import { Sim } from "./sim.js";

let base = "", sim = null, focus = -1, loading = new Map(), listed = [];
const radii = new Map(); // of policies, where the user has set one

async function read(name) {
  const answer = await fetch(new URL(name, base));
  if (!answer.ok) throw new Error(`${name} could not be loaded (${answer.status})`);
  return new Uint8Array(await answer.arrayBuffer());
}

/** The driver of a name: a learned policy once it is loaded, or the name itself. */
function driver(name) {
  const about = listed.find((policy) => policy.name === name);
  if (!about) return name;
  if (!loading.has(name)) {
    const load = Policy.load(ort, (file) => read(`policies/${file}`), about);
    load.catch(() => loading.delete(name));
    loading.set(name, load);
  }
  return loading.get(name);
}

/** The window of a learned driver in metres, Infinity for none, undefined for its own. */
function window_(radius) {
  if (!sim.learned) return;
  sim.driver.radius = radius === undefined ? sim.driver.about.attention_radius : radius === Infinity ? null : radius;
}

const actions = {
  async init({ address, threads, policies }) {
    base = address;
    listed = policies;
    ort.env.wasm.numThreads = threads;
    ort.env.wasm.wasmPaths = { mjs: new URL("ort-wasm-simd-threaded.mjs", base).href, wasm: new URL("ort-wasm-simd-threaded.wasm", base).href };
    ort.env.logLevel = "error";
  },

  /** A new world: drawn from a seed, or from given places. */
  async reset({ task, scenario, robots, seed, positions, goals, density, side, drives, channel, radius, dt }) {
    const drive = await driver(drives);
    const world = task === "coverage"
      ? positions ? new Coverage(positions, density, side, dt) : beginCoverage(scenario, robots, seed, dt)
      : positions ? new Navigation(positions, goals) : begin(scenario, robots, seed);
    sim = new Sim(world, drive, channel, seed);
    window_(radius);
    focus = -1;
  },

  async drive({ drives, radius }) { sim.drive(await driver(drives)); window_(radius); },
  async channel({ change }) { sim.setChannel(change); },
  async window({ radius }) { window_(radius); },
  async focus({ robot }) { focus = robot; },
  async hold({ robot }) { sim.held = robot; },
  async moveRobot({ robot, x, y }) { if (robot < sim.world.n) sim.moveRobot(robot, x, y); },
  async moveGoal({ goal, x, y }) { if (goal < sim.world.goals.length / 2) sim.world.goals.set([x, y], 2 * goal); sim.changed(); },
  async addRobot({ x, y }) { sim.addRobot(x, y); },
  async addGoal({ x, y }) { sim.world.goals = Float32Array.from([...sim.world.goals, x, y]); sim.changed(); },
  async removeRobot({ robot }) {
    sim.removeRobot(robot);
    focus = focus === robot ? -1 : focus > robot ? focus - 1 : focus;
  },
  async removeGoal({ goal }) { sim.world.goals = sim.world.goals.filter((_, at) => at >> 1 !== goal); sim.changed(); },
  async kill({ robot }) { sim.kill(robot); },
  async cut({ pair }) { sim.cut(...pair); },
  async mend() { sim.cuts.clear(); sim.alive.fill(1); sim.changed(); },
  async paint({ x, y, radius, amount }) { sim.world.paint(x, y, radius, amount); sim.changed(); },
  async step({ steps = 1 }) { for (let s = 0; s < steps; s++) await sim.step(); },
  async look() {},

  /** For tests: the answer of a part alone. */
  async assign({ rows, columns }) { return { columns: assign(rows, columns) }; },
  async commands() { await sim.look(); return { command: await sim.command(), stamps: sim.relay?.newest.slice() ?? null }; },
};

const PARTS = new Set(["init", "hold", "assign", "commands"]);
let queue = Promise.resolve();
self.onmessage = ({ data }) => {
  queue = queue.then(async () => {
    const began = performance.now();
    try {
      const found = await actions[data.action](data);
      const answer = PARTS.has(data.action) ? found : await sim.snapshot(focus);
      self.postMessage({ id: data.id, took: performance.now() - began, answer });
    } catch (error) {
      self.postMessage({ id: data.id, error: String(error?.message ?? error) });
    }
  });
};
