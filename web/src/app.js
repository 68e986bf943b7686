// The page: what is shown, what is asked of the simulation, and what the user does with mouse, fingers and keys.

import { HELP, TASKS, TOOLS } from "./words.js";
import { drawCurve, lifted } from "./curve.js";
import { aged, attention, fit, KEYS, Painter, palette } from "./paint.js";
import workerText from "worker:text";

const $ = (id) => document.getElementById(id);
const SPEEDS = [1, 2, 5, 10, 20, 50, 100];
const BRUSH = 60; // metres
const NO_LIMIT = { age: 61, radius: 525 }; // the ends of these sliders stand for none

/** A thread that simulates; `ask` gives a promise of its answer. */
class Simulation {
  constructor() {
    const url = URL.createObjectURL(new Blob([workerText], { type: "text/javascript" }));
    this.worker = new Worker(url);
    this.waiting = new Map();
    this.next = 0;
    this.worker.onmessage = ({ data }) => {
      const { resolve, reject } = this.waiting.get(data.id);
      this.waiting.delete(data.id);
      if (data.error) reject(new Error(data.error));
      else resolve(data.answer && { ...data.answer, took: data.took });
    };
    this.worker.onerror = (event) => { for (const { reject } of this.waiting.values()) reject(new Error(event.message || "the simulation could not start")); this.waiting.clear(); };
  }

  ask(action, given = {}) {
    return new Promise((resolve, reject) => {
      this.waiting.set(this.next, { resolve, reject });
      this.worker.postMessage({ id: this.next++, action, ...given });
    });
  }
}

class Play {
  constructor(policies, alone) {
    this.policies = policies;
    this.alone = alone; // opened from a file: there are no policies
    this.simulation = new Simulation();
    this.painter = new Painter($("canvas"));
    this.settings = { task: "navigation", speed: 10, layer: -1, head: -1 };
    for (const [task, about] of Object.entries(TASKS)) {
      this.settings[task] = { robots: about.robots, scenario: about.scenarios[0][0], seed: 1, delay: about.delay, loss: 0, age: NO_LIMIT.age, radius: about.radius, drives: null };
    }
    this.tool = "move";
    this.playing = false;
    this.pinned = -1; // the robot that is kept, -1: none
    this.hovered = -1;
    this.runs = [];
    this.latest = new Map(); // changes that wait, and those that are being made, by action
    this.going = new Map();
    this.frames = 0;
    this.colours = palette();
  }

  get own() { return this.settings[this.settings.task]; }
  get about() { return TASKS[this.settings.task]; }
  get focus() { return this.pinned >= 0 ? this.pinned : this.hovered; }
  get drivers() {
    const learned = this.policies.filter((policy) => policy.task === this.settings.task);
    const named = learned.map((policy) => ({ key: policy.name, label: this.about.learned[policy.name]?.label ?? policy.name.split("/").pop(), about: this.about.learned[policy.name]?.about ?? "A policy of your own, run by every robot alone.", colour: this.about.learned[policy.name]?.colour ?? "#56b4e9", learned: policy }));
    const missing = this.alone ? Object.entries(this.about.learned).map(([key, one]) => ({ key, ...one, learned: {}, missing: true })) : [];
    return [...named, ...missing, ...this.about.controllers];
  }
  get driver() { return this.drivers.find((one) => one.key === this.own.drives); }

  async start() {
    // One core is left for drawing.
    this.threads = self.crossOriginIsolated ? Math.max(1, Math.min(4, (navigator.hardwareConcurrency || 1) - 1)) : 1;
    await this.simulation.ask("init", { address: location.href.replace(/[?#].*$/, ""), threads: this.threads, policies: this.policies });
    this.readAddress();
    this.wire();
    await this.chooseTask(this.settings.task);
    const frame = (now) => { this.frame(now); requestAnimationFrame(frame); };
    requestAnimationFrame(frame);
  }

  // The address keeps the settings, so that a link shows the same start.

  readAddress() {
    const given = new URLSearchParams(location.hash.slice(1));
    if (TASKS[given.get("task")]) this.settings.task = given.get("task");
    for (const name of ["robots", "seed", "delay", "loss", "age", "radius"]) {
      const value = Number(given.get(name));
      if (given.has(name) && Number.isFinite(value) && value >= 0) this.own[name] = value;
    }
    this.own.robots = Math.min(Math.max(Math.round(this.own.robots), 1), this.about.most);
    this.own.seed = Math.floor(this.own.seed);
    this.own.delay = Math.min(this.own.delay, 20 * this.about.dt);
    this.own.loss = Math.min(this.own.loss, 1);
    this.own.radius = Math.max(this.own.radius, 1);
    if (this.about.scenarios.some(([name]) => name === given.get("start"))) this.own.scenario = given.get("start");
    if (this.drivers.some((one) => one.key === given.get("policy") && !one.missing)) this.own.drives = given.get("policy");
  }

  writeAddress() {
    const { robots, seed, delay, loss, age, radius, scenario, drives } = this.own;
    const told = new URLSearchParams({ task: this.settings.task, policy: drives, start: scenario, robots, seed, delay, loss, age, radius });
    history.replaceState(null, "", `#${told}`);
  }

  // Asking the simulation.

  get channel() { return { delay: this.own.delay, loss: this.own.loss, maxAge: this.own.age >= NO_LIMIT.age ? null : this.own.age }; }
  get radius() { return this.own.radius >= NO_LIMIT.radius ? Infinity : this.own.radius; }

  async ask(action, given) {
    try {
      const answer = await this.simulation.ask(action, given);
      if (answer?.positions) this.show(answer, action);
      return answer;
    } catch (error) {
      this.pause();
      this.say(`${error.message}. Reload the page, or choose another policy.`, true);
      return null;
    }
  }

  async reset(given = {}) {
    this.pinned = this.hovered = -1;
    this.shown = this.queued = null;
    const run = { points: [], driver: this.own.drives };
    this.runs = [...this.runs.filter((old) => old.points.length > 2).map((old) => ({ ...old, faded: true })).slice(-3), run];
    this.writeAddress();
    this.busy(this.driver?.learned ? `Loading ${this.driver.label}` : "Drawing a start");
    const { task } = this.settings, { scenario, robots, seed, drives } = this.own;
    const answer = await this.ask("reset", { task, scenario, robots, seed, drives, channel: this.channel, radius: this.radius, dt: this.about.dt, ...given });
    this.busy(null);
    this.inspect();
    return answer;
  }

  show(snap, action) {
    if (action === "reset") this.before = this.shown = snap;
    else if (action === "step") {
      this.queued = snap;
      this.interval = performance.now() - (this.asked ?? 0);
    } else {
      // Something was changed: go on from what is on the screen.
      this.queued = null;
      this.before = this.shown && this.shown.ids.join() === snap.ids.join() ? { ...this.shown, positions: this.now() } : snap;
      if (!this.playing) this.before = snap;
      this.shown = snap;
      this.began = performance.now();
    }
    if (action === "reset" || action === "step") this.curveAt(snap);
    this.dirty = true;
    if (action !== "step") this.inspect();
  }

  curveAt(snap) {
    const points = this.runs.at(-1).points;
    if (!points.length || points.at(-1).t < snap.time) points.push({ t: snap.time, value: snap.metric, colour: this.driver.colour });
  }

  /** Positions at this moment, between two snapshots. */
  now() {
    const { before, shown } = this;
    if (!before || before === shown || before.positions.length !== shown.positions.length) return shown.positions;
    const share = this.share();
    if (share >= 1) return shown.positions;
    return shown.positions.map((value, at) => before.positions[at] + share * (value - before.positions[at]));
  }

  share() { return this.duration ? Math.min(1, (performance.now() - this.began) / this.duration) : 1; }

  frame(now) {
    if (!this.shown) return;
    const moving = this.before !== this.shown && this.share() < 1;
    if (!moving && this.queued) {
      this.before = this.shown;
      this.shown = this.queued;
      this.queued = null;
      this.began = now;
      const wanted = (1000 * this.shown.dt) / this.settings.speed;
      this.duration = Math.max(wanted, Math.min(this.interval ?? 0, 4000));
      this.reached = (1000 * this.shown.dt) / this.duration;
      this.inspect();
      this.dirty = true;
    }
    if (this.playing && !this.queued && !this.stepping) this.step();
    if (moving || this.dirty || this.tool === "paint" || this.tool === "wipe") {
      this.paint();
      this.frames++;
    }
  }

  step() {
    this.stepping = true;
    this.asked = performance.now();
    return this.ask("step").finally(() => { this.stepping = false; });
  }

  /** For tests and measurements: many control periods at once. */
  async advance(steps) {
    this.pause();
    const answer = await this.simulation.ask("step", { steps });
    this.before = this.shown = answer;
    this.queued = null;
    this.curveAt(answer);
    this.inspect();
    this.dirty = true;
    return answer;
  }

  paint() {
    const positions = this.drag?.robot >= 0 && this.drag.at ? Float32Array.from(this.now()) : this.now();
    if (this.drag?.robot >= 0 && this.drag.at) positions.set(this.drag.at, 2 * this.drag.robot);
    let snap = this.shown;
    if (this.drag?.goal >= 0 && this.drag.at) {
      const goals = snap.scene.goals.slice();
      goals.set(this.drag.at, 2 * this.drag.goal);
      snap = { ...snap, scene: { ...snap.scene, goals } };
    }
    const { layer, head } = this.settings;
    this.painter.paint(snap, positions, { focus: this.focus, layer, head, tool: this.tool, pointer: this.pointer, brush: BRUSH }, this.colours);
    const time = this.before.time + this.share() * (snap.time - this.before.time);
    drawCurve($("curve"), this.runs, time, this.colours);
    this.legend();
    $("clock").textContent = `${time.toFixed(this.about.dt < 1 ? 1 : 0)} s`;
    $("metric").textContent = this.about.format(snap.metric);
    const behind = this.playing && this.reached < 0.85 * this.settings.speed;
    $("speed-value").textContent = behind ? `${+this.reached.toPrecision(2)}× of ${this.settings.speed}×` : `${this.settings.speed}×`;
    this.dirty = false;
  }

  /** Which line of the curve is whose, once there are several. */
  legend() {
    const used = new Set(this.runs.flatMap((run) => run.points.map((point) => point.colour))), shown = this.drivers.filter((one) => used.has(one.colour));
    const told = shown.length > 1 ? shown.map((one) => `${one.label} ${lifted(one.colour, this.colours)}`).join() : "";
    if (told === this.told) return;
    this.told = told;
    $("runs").replaceChildren(...(told ? shown : []).map((one) => {
      const item = document.createElement("li"), line = document.createElement("i");
      line.style.setProperty("--swatch", lifted(one.colour, this.colours));
      item.append(line, one.label);
      return item;
    }));
  }

  // The parts of the page.

  say(words, wrong = false) {
    $("said").textContent = words;
    $("said").classList.toggle("wrong", wrong);
  }

  busy(words) {
    $("busy").hidden = words === null;
    if (words) $("busy-text").textContent = words;
  }

  pause() { this.playing = false; this.playIcon(); }
  toggle() { this.playing = !this.playing; this.say(""); this.playIcon(); this.dirty = true; }
  playIcon() {
    $("play-icon").setAttribute("d", this.playing ? "M3.5 2.5h3.2v11H3.5zM9.3 2.5h3.2v11H9.3z" : "M4 2.5v11l9-5.5z");
    $("play").setAttribute("aria-label", this.playing ? "Pause" : "Play");
  }

  radios(box, items, chosen, choose) {
    box.replaceChildren(...items.map(({ key, label, icon, title, disabled }) => {
      const button = document.createElement("button");
      button.type = "button";
      button.setAttribute("role", "radio");
      button.setAttribute("aria-checked", String(key === chosen));
      button.tabIndex = key === chosen ? 0 : -1;
      button.dataset.key = key;
      button.disabled = Boolean(disabled);
      if (title) button.title = title;
      if (icon) button.innerHTML = `<svg viewBox="0 0 16 16" aria-hidden="true">${icon}</svg>`;
      button.append(label);
      button.onclick = () => choose(key);
      return button;
    }));
    box.onkeydown = (event) => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (!step) return;
      event.preventDefault();
      event.stopPropagation();
      const open = items.filter((item) => !item.disabled), at = open.findIndex((item) => item.key === chosen);
      const next = open[(at + step + open.length) % open.length];
      choose(next.key);
      box.querySelector(`[data-key="${CSS.escape(next.key)}"]`)?.focus();
    };
  }

  async chooseTask(task) {
    this.settings.task = task;
    this.own.drives ??= this.drivers.find((one) => !one.missing).key;
    this.runs = [];
    this.tool = "move";
    $("metric-title").textContent = this.about.metric;
    this.radios($("tasks"), Object.entries(TASKS).map(([key, { label }]) => ({ key, label })), task, (key) => { if (key !== this.settings.task) { this.pause(); this.chooseTask(key); } });
    $("scenario").replaceChildren(...this.about.scenarios.map(([name, words]) => new Option(words, name, false, name === this.own.scenario)));
    Object.assign($("robots"), { max: this.about.most, value: this.own.robots });
    Object.assign($("delay"), { max: 3 * this.about.dt, step: this.about.dt / 10 });
    for (const name of ["delay", "loss", "age", "radius"]) $(name).value = this.own[name];
    this.showDrivers();
    this.showTools();
    this.showKey();
    this.showSliders();
    await this.reset();
    this.say(this.alone ? "Opened from a file: browsers keep the learned policies from being read. Run `mast play` for them." : this.about.first);
  }

  showDrivers() {
    this.radios($("drivers"), this.drivers.map(({ key, label, missing }) => ({ key, label, disabled: missing, title: missing ? "A page that was opened from a file may not read the policies: run `mast play`" : "" })), this.own.drives, (key) => this.drive(key));
    $("driver-about").textContent = this.driver.about;
    $("network").querySelectorAll(".row").forEach((row) => row.classList.toggle("off", !this.driver.learned));
    for (const name of ["delay", "loss", "age", "radius"]) $(name).disabled = !this.driver.learned;
  }

  async drive(key) {
    if (key === this.own.drives) return;
    this.own.drives = key;
    this.showDrivers();
    this.writeAddress();
    if (this.driver.learned) this.busy(`Loading ${this.driver.label}`);
    await this.ask("drive", { drives: key, radius: this.radius });
    this.busy(null);
  }

  showTools() {
    const tools = TOOLS.filter((tool) => !tool.only || tool.only === this.settings.task);
    this.radios($("tools"), tools, this.tool, (key) => this.chooseTool(key));
  }

  chooseTool(key) {
    this.tool = key;
    this.showTools();
    const tool = TOOLS.find((one) => one.key === key);
    this.say(matchMedia("(pointer: coarse)").matches ? tool.touch : tool.mouse);
    $("canvas").style.cursor = tool.cursor;
    this.dirty = true;
  }

  showKey() {
    $("key").replaceChildren(...KEYS[this.settings.task].map(([words, draw]) => {
      const item = document.createElement("li"), canvas = document.createElement("canvas");
      item.append(canvas, words);
      canvas.style.width = canvas.style.height = "20px";
      requestAnimationFrame(() => { const { context } = fit(canvas); context.lineWidth = 1.8; draw(context, this.colours, 10); });
      return item;
    }));
  }

  showSliders() {
    const { delay, loss, age, radius, robots } = this.own;
    const tell = (id, words) => { $(id).closest(".row").querySelector("output").textContent = words; $(id).setAttribute("aria-valuetext", words); };
    tell("delay", delay === 0 ? "none" : `${+delay.toFixed(2)} s`);
    tell("loss", `${Math.round(100 * loss)} %`);
    tell("age", age >= NO_LIMIT.age ? "never" : `${age} s`);
    tell("radius", radius >= NO_LIMIT.radius ? "none" : `${radius} m`);
    tell("robots", String(robots));
  }

  /** The robot that is pointed at: what it knows. */
  inspect() {
    const box = $("inspected"), snap = this.shown, { focus } = this;
    if (!snap) return;
    $("release").hidden = this.pinned < 0;
    $("mend").disabled = !snap.cuts.length && snap.alive.every(Boolean);
    if (focus < 0 || focus >= snap.ids.length) {
      $("inspector-title").textContent = "What a robot knows";
      const hint = document.createElement("p");
      hint.className = "hint";
      hint.textContent = matchMedia("(pointer: coarse)").matches ? "Tap a robot: whom it has heard of, how old the news is, where its attention goes." : "Point at a robot: whom it has heard of, how old the news is, where its attention goes. Click to keep it.";
      box.replaceChildren(hint);
      return;
    }
    $("inspector-title").textContent = `Robot ${snap.ids[focus]}`;
    const known = snap.focus?.robot === focus ? snap.focus.knows : null;
    if (!known) return;
    const others = known.filter((one) => one.robot !== focus), oldest = Math.max(0, ...others.map((one) => one.age));
    const facts = document.createElement("dl");
    const fact = (name, words) => { const dt = document.createElement("dt"), dd = document.createElement("dd"); dt.textContent = name; dd.textContent = words; facts.append(dt, dd); };
    const links = new Set();
    for (let e = 0; e < snap.links.length; e += 2) if (snap.links[e + 1] === focus && snap.alive[snap.links[e]]) links.add(snap.ids[snap.links[e]]);
    if (!snap.alive[focus]) fact("State", "failed: stands still and is silent");
    fact("Hears", links.size && snap.alive[focus] ? [...links].join(", ") : "nobody");
    fact("Has heard of", `${others.length} of ${snap.ids.length - 1} robots`);
    if (others.length) fact("Oldest news", oldest ? `${+oldest.toFixed(1)} s` : "of this instant");
    box.replaceChildren(facts);
    if (known.some((one) => one.weights)) box.append(this.heads(known, focus));
    if (others.length) box.append(this.news(others, snap.dt, known.some((one) => one.weights)));
  }

  /** A button for each layer and head, the darker the more of its attention goes to others. */
  heads(known, robot) {
    const box = document.createElement("div"), self = known.find((one) => one.robot === robot), { layer, head } = this.settings;
    box.className = "heads";
    box.style.setProperty("--heads", self.weights[0].length);
    box.title = "Attention to others, by layer and head; choose one to see where it goes";
    self.weights.forEach((heads, l) => {
      const row = document.createElement("div"), name = document.createElement("span");
      name.textContent = `Layer ${l + 1}`;
      row.append(name);
      heads.forEach((own, h) => {
        const button = document.createElement("button"), pressed = layer === l && head === h;
        button.type = "button";
        button.style.setProperty("--far", (1 - own).toFixed(3));
        button.textContent = heads.length > 4 ? "" : `${Math.round(100 * (1 - own))} %`;
        button.setAttribute("aria-pressed", String(pressed));
        button.setAttribute("aria-label", `Layer ${l + 1}, head ${h + 1}: ${Math.round(100 * (1 - own))} % to others`);
        button.onclick = () => { Object.assign(this.settings, pressed ? { layer: -1, head: -1 } : { layer: l, head: h }); this.inspect(); this.dirty = true; };
        row.append(button);
      });
      box.append(row);
    });
    return box;
  }

  news(others, dt, weighed) {
    const { layer, head } = this.settings, box = document.createElement("div");
    box.className = "news";
    const cell = (words, kind = "") => { const span = document.createElement("span"); span.className = kind; span.textContent = words; box.append(span); return span; };
    const which = layer < 0 ? "Attention (mean)" : `Layer ${layer + 1}, head ${head + 1}`;
    for (const words of ["Of", "Age", "Hops", weighed ? which : "", ""]) cell(words, "head");
    const weight = (one) => attention(one, layer, head);
    const rows = [...others].sort((a, b) => weight(b) - weight(a) || a.age - b.age || a.robot - b.robot);
    const most = Math.max(1e-9, ...rows.map(weight));
    for (const one of rows) {
      cell(one.id);
      cell(`${+one.age.toFixed(1)} s`, "age").style.setProperty("--tint", aged(one.age, dt, this.colours));
      cell(one.hops < 0 ? "–" : one.hops);
      const bar = document.createElement("span");
      if (weighed) { bar.className = "bar"; bar.style.width = `${(100 * weight(one)) / most}%`; }
      box.append(bar);
      cell(!weighed ? "" : one.weights ? `${(100 * weight(one)).toFixed(1)} %` : "out", "share");
    }
    return box;
  }

  // What the user does.

  wire() {
    $("play").onclick = () => this.toggle();
    $("step").onclick = () => this.once();
    $("again").onclick = () => this.reset();
    $("fresh").onclick = () => this.fresh();
    $("release").onclick = () => this.point(-1, true);
    $("mend").onclick = () => this.ask("mend");
    $("speed").oninput = () => { this.settings.speed = SPEEDS[$("speed").value]; this.dirty = true; };
    $("speed").value = SPEEDS.indexOf(this.settings.speed);
    $("scenario").onchange = () => { this.own.scenario = $("scenario").value; this.runs = []; this.reset(); };
    $("robots").oninput = () => { this.own.robots = +$("robots").value; this.showSliders(); };
    $("robots").onchange = () => { this.runs = []; this.reset(); };
    for (const name of ["delay", "loss", "age", "radius"]) {
      $(name).oninput = () => {
        this.own[name] = +$(name).value;
        this.showSliders();
        this.writeAddress();
        this.later(name === "radius" ? "window" : "channel", () => (name === "radius" ? { radius: this.radius } : { change: this.channel }));
      };
    }
    const themes = ["light dark", "light", "dark"], words = ["auto", "light", "dark"];
    $("theme").onclick = () => this.theme(themes[(themes.indexOf(document.documentElement.style.colorScheme || themes[0]) + 1) % 3]);
    this.theme = (scheme) => {
      document.documentElement.style.colorScheme = scheme;
      $("theme").textContent = `Theme: ${words[themes.indexOf(scheme)]}`;
      this.recolour();
    };
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.recolour());
    new ResizeObserver(() => { this.dirty = true; }).observe($("stage"));
    $("help-text").innerHTML = HELP;
    $("help").onclick = () => $("helped").showModal();
    document.addEventListener("keydown", (event) => this.key(event));
    const canvas = $("canvas");
    canvas.addEventListener("pointerdown", (event) => this.down(event));
    canvas.addEventListener("pointermove", (event) => this.over(event));
    canvas.addEventListener("pointerup", (event) => this.up(event));
    canvas.addEventListener("pointercancel", (event) => this.up(event));
    canvas.addEventListener("pointerleave", () => { this.pointer = null; if (this.hovered >= 0) this.point(-1, false); this.dirty = true; });
    canvas.addEventListener("contextmenu", (event) => event.preventDefault());
  }

  recolour() { this.colours = palette(); this.showKey(); this.dirty = true; }

  once() { this.pause(); if (!this.stepping) this.step(); }
  fresh() { this.own.seed += 1; this.runs = []; return this.reset(); }

  /** Ask once for the last of many changes, when the simulation has time; a promise that all of them are made. */
  later(action, given) {
    this.latest.set(action, given);
    if (!this.going.has(action)) this.going.set(action, this.catchUp(action));
    return this.going.get(action);
  }

  async catchUp(action) {
    while (this.latest.has(action)) {
      const given = this.latest.get(action);
      this.latest.delete(action);
      await this.ask(action, given());
    }
    this.going.delete(action);
  }

  point(robot, keep) {
    if (keep) this.pinned = robot; else this.hovered = robot;
    this.dirty = true;
    this.inspect();
    if (keep && robot >= 0 && matchMedia("(min-width: 901px)").matches) $("inspector").scrollIntoView({ block: "nearest" });
    this.later("focus", () => ({ robot: this.focus }));
  }

  spot(event) {
    const box = $("canvas").getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  }

  /** The thing nearest to a point of the picture: {robot} or {goal}, within reach. */
  pick(x, y, coarse) {
    const { view } = this.painter, reach = coarse ? 26 : 15, robots = this.now(), goals = this.shown.scene.goals ?? [];
    const nearest = (points) => {
      let best = -1, least = reach * reach;
      for (let i = 0; i < points.length / 2; i++) {
        const away = (view.x(points[2 * i]) - x) ** 2 + (view.y(points[2 * i + 1]) - y) ** 2;
        if (away < least) { least = away; best = i; }
      }
      return [best, least];
    };
    const [robot, robotAway] = nearest(robots), [goal, goalAway] = nearest(goals);
    if (robot < 0 && goal < 0) return { robot: -1, goal: -1 };
    return robot >= 0 && (goal < 0 || robotAway <= goalAway + 9) ? { robot, goal: -1 } : { robot: -1, goal };
  }

  /** The link, or cut link, nearest to a point. */
  pickLink(x, y, coarse) {
    const { view } = this.painter, points = this.now(), reach = coarse ? 20 : 11;
    let best = null, least = reach;
    for (const links of [this.shown.links, this.shown.cuts]) {
      for (let e = 0; e < links.length; e += 2) {
        const [i, j] = [links[e], links[e + 1]], [ax, ay, bx, by] = [view.x(points[2 * i]), view.y(points[2 * i + 1]), view.x(points[2 * j]), view.y(points[2 * j + 1])];
        const along = Math.min(1, Math.max(0, ((x - ax) * (bx - ax) + (y - ay) * (by - ay)) / ((bx - ax) ** 2 + (by - ay) ** 2 || 1)));
        const away = Math.hypot(x - ax - along * (bx - ax), y - ay - along * (by - ay));
        if (away < least) { least = away; best = [i, j]; }
      }
    }
    return best;
  }

  down(event) {
    if (!this.shown || event.button > 0) return;
    event.preventDefault();
    $("canvas").focus({ preventScroll: true });
    $("canvas").setPointerCapture(event.pointerId);
    const [x, y] = this.spot(event), coarse = event.pointerType !== "mouse";
    if (!this.painter.view) return;
    const found = this.pick(x, y, coarse), [mx, my] = this.inside(...this.painter.view.back(x, y));
    this.pointer = [x, y];
    if (this.tool === "move") this.drag = { ...found, from: [x, y], at: null };
    else if (this.tool === "robot") { if (this.shown.ids.length < this.about.most) this.ask("addRobot", { x: mx, y: my }); else this.say(`The playground has room for ${this.about.most} robots.`); }
    else if (this.tool === "goal") this.ask("addGoal", { x: mx, y: my });
    else if (this.tool === "kill") { if (found.robot >= 0) this.ask("kill", { robot: found.robot }); }
    else if (this.tool === "cut") { const pair = this.pickLink(x, y, coarse); if (pair) this.ask("cut", { pair }); }
    else if (this.tool === "erase") this.erase(found);
    else this.drag = { robot: -1, goal: -1, painting: true, from: [x, y], at: null };
    if (this.drag?.painting) this.brush(mx, my);
    if (this.drag?.robot >= 0) this.simulation.ask("hold", { robot: this.drag.robot });
  }

  over(event) {
    if (!this.shown || !this.painter.view) return;
    const [x, y] = this.spot(event), [mx, my] = this.inside(...this.painter.view.back(x, y));
    this.pointer = [x, y];
    if (!this.drag) {
      if (event.pointerType === "mouse" && this.pinned < 0) {
        const { robot } = this.pick(x, y, false);
        if (robot !== this.hovered) this.point(robot, false);
      }
      return;
    }
    if (this.drag.painting) { this.brush(mx, my); return; }
    if (!this.drag.at && Math.hypot(x - this.drag.from[0], y - this.drag.from[1]) < 4) return;
    const { robot, goal } = this.drag;
    if (robot < 0 && goal < 0) return;
    this.drag.at = [mx, my];
    if (robot >= 0) this.later("moveRobot", () => ({ robot, x: mx, y: my }));
    else this.later("moveGoal", () => ({ goal, x: mx, y: my }));
    this.dirty = true;
  }

  async up() {
    const { drag } = this;
    if (!drag) return;
    if (!drag.painting && !drag.at) {
      if (drag.robot >= 0 || this.pinned >= 0) this.point(drag.robot === this.pinned ? -1 : drag.robot, true);
      this.drag = null;
      if (drag.robot >= 0) this.simulation.ask("hold", { robot: -1 });
      return;
    }
    if (drag.at && drag.robot >= 0) {
      await this.later("moveRobot", () => ({ robot: drag.robot, x: drag.at[0], y: drag.at[1] }));
      await this.simulation.ask("hold", { robot: -1 });
    } else if (drag.at) await this.later("moveGoal", () => ({ goal: drag.goal, x: drag.at[0], y: drag.at[1] }));
    if (this.drag === drag) this.drag = null;
    this.dirty = true;
  }

  inside(x, y) {
    const [left, low, right, high] = this.shown.extent;
    return [Math.min(Math.max(x, left), right), Math.min(Math.max(y, low), high)];
  }

  brush(x, y) { this.later("paint", () => ({ x, y, radius: BRUSH, amount: this.tool === "wipe" ? -1 : 0.35 })); }

  erase({ robot, goal }) {
    if (robot >= 0 && this.shown.ids.length > 1) {
      if (this.pinned === robot) this.pinned = -1; else if (this.pinned > robot) this.pinned--;
      this.hovered = -1;
      this.ask("removeRobot", { robot });
    } else if (goal >= 0 && this.shown.scene.goals.length > 2) this.ask("removeGoal", { goal });
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || $("helped").open) return;
    const typing = /^(select|textarea)$/i.test(event.target.tagName) || (event.target.tagName === "INPUT" && /^(Arrow|Page|Home|End)/.test(event.key));
    if (typing) return;
    const count = this.shown?.ids.length ?? 0, next = (by) => this.point(count ? (this.pinned < 0 ? (by > 0 ? 0 : count - 1) : (this.pinned + by + count) % count) : -1, true);
    const onButton = event.target.tagName === "BUTTON";
    const acts = {
      " ": () => (onButton ? null : this.toggle()),
      ArrowRight: () => (event.target === $("canvas") ? next(1) : onButton ? null : this.once()),
      ArrowLeft: () => (event.target === $("canvas") ? next(-1) : null),
      ".": () => this.once(),
      r: () => this.reset(),
      n: () => this.fresh(),
      "[": () => this.faster(-1),
      "]": () => this.faster(1),
      "?": () => $("helped").showModal(),
      Escape: () => this.point(-1, true),
      Delete: () => this.erase({ robot: this.pinned, goal: -1 }),
      Backspace: () => this.erase({ robot: this.pinned, goal: -1 }),
      x: () => (this.pinned >= 0 ? this.ask("kill", { robot: this.pinned }) : null),
    };
    this.drivers.forEach((one, at) => { if (!one.missing) acts[String(at + 1)] = () => this.drive(one.key); });
    for (const tool of TOOLS) if (!tool.only || tool.only === this.settings.task) acts[tool.letter] = () => this.chooseTool(tool.key);
    const act = acts[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (!act || (onButton && event.key === " ")) return;
    event.preventDefault();
    act();
  }

  faster(by) {
    $("speed").value = Math.min(Math.max(+$("speed").value + by, 0), SPEEDS.length - 1);
    $("speed").oninput();
  }
}

function fail(words) {
  const box = document.createElement("p");
  box.className = "failure";
  box.setAttribute("role", "alert");
  box.textContent = words;
  document.querySelector("main").replaceChildren(box);
}

async function main() {
  if (typeof WebAssembly !== "object") {
    fail("The playground needs WebAssembly, which this browser does not have or has switched off. Use a current Firefox, Chrome, Edge or Safari, and allow WebAssembly if a setting or an extension forbids it.");
    return;
  }
  const alone = location.protocol === "file:";
  let policies = [];
  if (!alone) {
    try {
      const answer = await fetch("policies/policies.json");
      if (!answer.ok) throw new Error(String(answer.status));
      policies = await answer.json();
    } catch (error) {
      fail(`The list of policies, policies/policies.json, could not be read (${error.message}). Was the whole folder copied? \`make web\` writes it.`);
      return;
    }
  }
  window.mastPlay = new Play(policies, alone);
  try {
    await window.mastPlay.start();
    window.mastPlay.ready = true;
  } catch (error) {
    fail(`The playground could not start: ${error.message}.`);
  }
}
main();
