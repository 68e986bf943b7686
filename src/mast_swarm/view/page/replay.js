// The page: what is shown, the controls, and the loop that paints when something has changed.

const SPEEDS = [0.5, 1, 2, 4, 8, 16]; // simulated seconds a second
const ICONS = { play: "M4 2.5v11l9-5.5z", pause: "M3.5 2.5h3.2v11H3.5zM9.3 2.5h3.2v11H9.3z" };
const STILL = window.matchMedia("(prefers-reduced-motion: reduce)"), FINGERS = window.matchMedia("(pointer: coarse)");
const $ = (id) => document.getElementById(id);
const seconds = (t) => `${t.toFixed(1)} s`;

function element(name, properties = {}, ...children) {
  const node = Object.assign(document.createElement(name), properties);
  node.append(...children);
  return node;
}

class Replay {
  constructor(recordings, palette) {
    this.recordings = recordings;
    // A little lighter on a dark page.
    this.palette = palette.map((colour) => `light-dark(${colour}, color-mix(in srgb, ${colour}, white 22%))`);
    this.duration = Math.max(...recordings.map((r) => (r.frames - 1) * r.dt)) || recordings[0].dt;
    this.step = Math.min(...recordings.map((r) => r.dt));
    Object.assign(this, { knowledge, time: 0, playing: false, speed: 8, selected: -1, hovered: -1, zoom: 1, show: {}, dirty: true, paintMs: 0 });
    if (recordings.some((r) => r.arrays.status)) swarm.dress(painter, recordings.filter((r) => r.arrays.status));
    knowledge.dress(painter, recordings);
    for (const r of recordings) painter.prepare(r);
    const boxes = recordings.map((r) => painter.bounds(r));
    // One view for all panels, so that the same place is at the same spot in each.
    this.box = [0, 1, 2, 3].map((i) => (i < 2 ? Math.min : Math.max)(...boxes.map((b) => b[i])));
    this.home();
    this.header();
    this.panels = recordings.map((r) => this.panel(r));
    $("panels").classList.toggle("four", recordings.length === 4);
    this.curve = new Curve($("curve"), recordings, this.duration, (t) => this.seek(t));
    this.values = recordings.map((r) => this.value(r));
    this.controls();
    this.keys();
    this.theme();
    const observer = new ResizeObserver(() => this.touch());
    for (const canvas of document.querySelectorAll("canvas")) observer.observe(canvas);
    this.defaults = { ...this.show };
    window.addEventListener("hashchange", () => this.recall());
    // It starts by itself, unless a link says where to stand or someone has asked for less motion.
    if (!this.recall() && this.duration > this.step / 2 && !STILL.matches) this.play(true);
    requestAnimationFrame((now) => this.loop(now));
  }

  /** What a link has to say so that it opens this view: time, robot, place, layer and head, and what is shown. */
  get address() {
    const told = new URLSearchParams({ t: +this.time.toFixed(2) });
    if (this.playing) told.set("play", 1);
    if (this.selected >= 0) told.set("robot", this.selected);
    if (this.zoom > 1) { told.set("zoom", +this.zoom.toPrecision(4)); told.set("at", this.centre.map((v) => +v.toFixed(2)).join()); }
    for (const name of ["layer", "head"]) if (knowledge[name] >= 0) told.set(name, knowledge[name] + 1);
    const turned = Object.keys(this.show).filter((key) => this.show[key] !== this.defaults[key]);
    if (turned.length) told.set("turned", turned.join());
    return `#${told}`;
  }

  /** Put the view into the page's address; while it plays once a second, since browsers count. */
  remember(now) {
    if (this.playing && now - (this.remembered ?? -1e9) < 1000) return;
    const { address } = this;
    if (address === this.written) return;
    Object.assign(this, { remembered: now, written: address });
    try { history.replaceState(history.state, "", address); } catch { /* a frame that may not: the page works without */ }
  }

  /** Take the view from the page's address; whether it told one. What is no number there, or out of range, is left. */
  recall() {
    const told = new URLSearchParams(location.hash.slice(1)), number = (name) => (told.get(name) ? Number(told.get(name)) : NaN);
    if (!Number.isFinite(number("t"))) return false;
    const robot = number("robot"), at = (told.get("at") ?? "").split(",").map(Number);
    this.selected = Number.isInteger(robot) && robot >= 0 && this.recordings.some((r) => robot < r.robots) ? robot : -1;
    this.home();
    if (number("zoom") > 1 && at.length === 2 && at.every(Number.isFinite)) Object.assign(this, { zoom: Math.min(number("zoom"), 40), centre: at });
    for (const name of ["layer", "head"]) {
      const box = $(`attention-${name}`), index = number(name) - 1;
      if (!box) continue;
      knowledge[name] = Number.isInteger(index) && index >= 0 && index < box.length - 1 ? index : -1;
      box.value = knowledge[name];
    }
    const turned = (told.get("turned") ?? "").split(",");
    for (const key of Object.keys(this.show)) this.set[key](this.defaults[key] !== turned.includes(key));
    this.play(false);
    this.seek(number("t"));
    if (told.has("play") && !STILL.matches) this.play(true);
    return true;
  }

  get focus() { return this.hovered >= 0 ? this.hovered : this.selected; }

  touch() { this.dirty = true; }

  home() {
    this.zoom = 1;
    this.centre = [(this.box[0] + this.box[2]) / 2, (this.box[1] + this.box[3]) / 2];
    this.touch();
  }

  // What holds for all recordings stands in the header, the rest with each picture.
  header() {
    const all = this.recordings.map((r) => r.facts);
    const common = all[0].filter((fact) => all.every((facts) => facts.includes(fact)));
    const { label } = this.recordings[0].metric, title = label[0].toUpperCase() + label.slice(1);
    $("curve-title").textContent = title;
    $("curve").setAttribute("aria-label", `${title} over time, one line a policy; drag to move in time`);
    this.hint = $("inspected").firstElementChild;
    const words = () => { this.hint.textContent = this.hints(); };
    FINGERS.addEventListener("change", words);
    words();
    $("facts").append(...common.map((text) => element("li", { textContent: text })));
    this.recordings.forEach((r) => { r.about = r.facts.filter((fact) => !common.includes(fact)).join(" · "); });
  }

  /** What there is to see of a robot, in the words of those who point and of those who tap. */
  hints() {
    const told = [["hasNews", "whom it has heard of and how old that news is"], ["hasAttention", "where its attention goes"]];
    const known = told.filter(([has]) => this.recordings.some((r) => knowledge[has](r))).map(([, words]) => words);
    const more = known.length ? `; and ${known.join(", and ")}` : "";
    return FINGERS.matches ? `Tap a robot to see ${painter.shows}${more}.` : `Point at a robot to see ${painter.shows}${more}. Click to keep it.`;
  }

  heading(name, r, text) {
    const swatch = element("span", { className: "swatch" });
    swatch.style.setProperty("--swatch", this.palette[r.number]);
    return element(name, {}, swatch, text);
  }

  panel(r) {
    const canvas = element("canvas", { tabIndex: 0 });
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", `${painter.about} under ${r.policy}; up and down arrows choose a robot`);
    const rate = element("span", { className: "rate" });
    const status = element("span", { className: "status" });
    const name = this.heading("h2", r, element("span", { textContent: r.policy }));
    const about = element("span", { className: "about", textContent: r.about, title: r.about });
    const header = element("header", {}, element("div", { className: "named" }, name, rate), element("div", { className: "told" }, about, status));
    const stage = element("div", { className: "stage" }, canvas);
    $("panels").append(element("article", { className: "panel" }, header, stage));
    const panel = { r, canvas, rate, status, view: null };
    this.pointer(panel);
    return panel;
  }

  pointer(panel) {
    const { canvas } = panel, down = new Map(); // pointers on the canvas, where they are
    let dragged = false;
    const pick = (event) => painter.pick(panel.r, panel.view, event.offsetX, event.offsetY, event.pointerType === "touch" ? 26 : 14);
    const world = ([x, y]) => { const box = canvas.getBoundingClientRect(); return [panel.view.worldX(x - box.left), panel.view.worldY(y - box.top)]; };
    const middle = () => [0, 1].map((i) => [...down.values()].reduce((sum, point) => sum + point[i], 0) / down.size);
    const spread = () => { const [a, b] = down.values(); return Math.max(Math.hypot(a[0] - b[0], a[1] - b[1]), 1); };
    canvas.addEventListener("pointerdown", (event) => {
      if (!down.size) dragged = false;
      down.set(event.pointerId, [event.clientX, event.clientY]);
    });
    canvas.addEventListener("pointermove", (event) => {
      if (!down.has(event.pointerId)) { if (event.pointerType !== "touch") this.hover(pick(event)); return; }
      const before = middle(), wide = down.size === 2 ? spread() : 0, from = down.get(event.pointerId);
      if (!dragged && down.size < 2 && (this.zoom === 1 || Math.hypot(event.clientX - from[0], event.clientY - from[1]) <= 4)) return;
      dragged = true;
      down.set(event.pointerId, [event.clientX, event.clientY]);
      if (wide) this.magnify(spread() / wide, world(middle()));
      const after = middle(), { scale } = panel.view;
      if (this.zoom > 1) this.centre = [this.centre[0] - (after[0] - before[0]) / scale, this.centre[1] + (after[1] - before[1]) / scale];
      this.touch();
    });
    canvas.addEventListener("pointerleave", (event) => { if (event.pointerType !== "touch") this.hover(-1); });
    for (const name of ["pointerup", "pointercancel"]) window.addEventListener(name, (event) => down.delete(event.pointerId));
    canvas.addEventListener("click", (event) => { if (!dragged) this.select(pick(event)); });
    canvas.addEventListener("dblclick", () => this.home());
    canvas.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey) return; // a plain wheel scrolls the page; a pinch arrives with ctrl
      event.preventDefault();
      this.magnify(Math.exp(-event.deltaY * 0.01), [panel.view.worldX(event.offsetX), panel.view.worldY(event.offsetY)]);
    }, { passive: false });
    canvas.addEventListener("keydown", (event) => {
      const move = { ArrowUp: 1, ArrowDown: -1 }[event.key];
      if (!move) return;
      event.preventDefault();
      this.select((Math.max(this.selected, move > 0 ? -1 : 0) + move + panel.r.robots) % panel.r.robots, true);
    });
  }

  magnify(factor, about = this.centre) {
    const zoom = Math.min(Math.max(this.zoom * factor, 1), 40);
    this.centre = this.centre.map((v, i) => about[i] + (v - about[i]) * (this.zoom / zoom));
    this.zoom = zoom;
    if (zoom === 1) this.home();
    this.touch();
  }

  hover(robot) { if (robot !== this.hovered) { this.hovered = robot; this.touch(); } }

  select(robot, keep = false) { this.selected = robot === this.selected && !keep ? -1 : robot; this.touch(); }

  value(r) {
    const number = element("b");
    const item = this.heading("li", r, element("span", { className: "name", textContent: r.policy }));
    item.append(number);
    $("values").append(item);
    return number;
  }

  controls() {
    $("play").addEventListener("click", () => this.play(!this.playing));
    Object.assign($("scrub"), { max: this.duration, step: "any" });
    $("scrub").addEventListener("input", () => this.seek(Number($("scrub").value)));
    for (const speed of SPEEDS) $("speed").append(new Option(`${speed}×`, speed));
    $("speed").addEventListener("change", () => this.setSpeed(Number($("speed").value)));
    this.setSpeed(this.speed);
    this.set = {};
    for (const toggle of painter.toggles) this.toggle(toggle);
    $("choice").append(...knowledge.choice(this.recordings, () => this.touch()));
    $("link").addEventListener("click", () => this.copy());
    // A button that was clicked gives the focus back, so that the space bar plays again.
    document.addEventListener("click", (event) => { if (event.detail) event.target.closest?.("button")?.blur(); });
  }

  toggle({ key, label, shortcut, on, available = () => true, without }) {
    const possible = this.recordings.some(available);
    const button = element("button", { type: "button", textContent: label, disabled: !possible });
    button.id = `toggle-${key}`;
    button.title = possible ? `Show or hide (${shortcut.toUpperCase()})` : without;
    button.setAttribute("aria-keyshortcuts", shortcut);
    const set = (value) => { this.show[key] = value; button.setAttribute("aria-pressed", value); this.touch(); };
    button.addEventListener("click", () => set(!this.show[key]));
    this.set[key] = (value) => set(value && possible);
    set(on && possible);
    $("toggles").append(button);
  }

  /** A link to what is shown now, into the clipboard or, where that is not allowed, before the user's eyes. */
  async copy() {
    this.written = undefined;
    this.remember(Infinity);
    const { href } = window.location;
    try {
      await navigator.clipboard.writeText(href);
      $("link").textContent = "Copied";
      setTimeout(() => { $("link").textContent = "Copy link"; }, 1500);
    } catch { window.prompt("Copy this link", href); }
  }

  setSpeed(speed) { this.speed = speed; $("speed").value = speed; }

  play(on) {
    if (on && this.time >= this.duration) this.time = 0;
    this.playing = on;
    this.last = undefined;
    $("play").setAttribute("aria-label", on ? "Pause" : "Play");
    $("play-icon").setAttribute("d", on ? ICONS.pause : ICONS.play);
    this.touch();
  }

  seek(time) { this.time = Math.min(Math.max(time, 0), this.duration); this.touch(); }

  keys() {
    const faster = (way) => this.setSpeed(SPEEDS[Math.min(Math.max(SPEEDS.indexOf(this.speed) + way, 0), SPEEDS.length - 1)]);
    const stepTo = (way, event) => {
      this.play(false);
      const size = this.step * (event.shiftKey ? 10 : 1);
      this.seek(this.step * Math.round((this.time + way * size) / this.step));
    };
    const actions = {
      " ": () => this.play(!this.playing), ArrowLeft: (e) => stepTo(-1, e), ArrowRight: (e) => stepTo(1, e),
      Home: () => this.seek(0), End: () => this.seek(this.duration), "[": () => faster(-1), "]": () => faster(1),
      "+": () => this.magnify(1.5), "=": () => this.magnify(1.5), "-": () => this.magnify(1 / 1.5), "0": () => this.home(),
      Escape: () => this.select(-1, true),
    };
    document.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("select")) return;
      if (event.target.matches("button") && event.key === " ") return; // the space bar presses a focused button
      const button = document.querySelector(`#toggles [aria-keyshortcuts="${CSS.escape(event.key.toLowerCase())}"]`);
      const action = actions[event.key] ?? (button && (() => button.click()));
      if (!action) return;
      event.preventDefault();
      action(event);
    });
  }

  theme() {
    const themes = [["auto", "light dark"], ["light", "light"], ["dark", "dark"]];
    let current = 0;
    const read = () => {
      // The number tells a painter that what it made from the colours before is out of date.
      this.colours = { number: (this.colours?.number ?? 0) + 1 };
      for (const name of painter.colours) this.colours[name] = resolveColour(`var(--${name})`);
      this.colours.policies = this.palette.map(resolveColour);
      this.key();
      this.touch();
    };
    $("theme").addEventListener("click", () => {
      current = (current + 1) % themes.length;
      $("theme").textContent = `Theme: ${themes[current][0]}`;
      document.documentElement.style.colorScheme = themes[current][1];
      read();
    });
    window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", read);
    read();
  }

  key() {
    $("key").replaceChildren(...painter.key.filter(([,, present = () => true]) => this.recordings.some(present)).map(([label, draw]) => {
      const canvas = element("canvas");
      const item = element("li", {}, canvas, label);
      requestAnimationFrame(() => { const { context, width } = fitCanvas(canvas); draw(context, this.colours, width); });
      return item;
    }));
  }

  loop(now) {
    if (this.playing) {
      // A tab that slept goes on where it was instead of leaping.
      const passed = Math.min(now - (this.last ?? now), 100) / 1000;
      this.last = now;
      this.seek(this.time + passed * this.speed);
      if (this.time >= this.duration) this.play(false);
    }
    if (this.dirty) this.paint();
    this.remember(now);
    requestAnimationFrame((next) => this.loop(next));
  }

  paint() {
    this.dirty = false;
    const start = performance.now();
    // A finger scrolls the page past a whole world, and moves a part of it.
    $("panels").style.setProperty("--touch", this.zoom > 1 ? "none" : "pan-y");
    for (const panel of this.panels) this.paintPanel(panel);
    this.curve.paint(this.time, this.colours);
    $("clock").innerHTML = `${seconds(this.time)} <small>/ ${seconds(this.duration)}</small>`;
    $("scrub").value = this.time;
    $("scrub").setAttribute("aria-valuetext", `${seconds(this.time)} of ${seconds(this.duration)}`);
    this.inspect();
    this.paintMs = performance.now() - start;
  }

  paintPanel(panel) {
    const { r, canvas } = panel;
    const { context, width, height } = fitCanvas(canvas);
    const [x0, y0, x1, y1] = this.box, margin = 24;
    const scale = this.zoom * Math.min((width - 2 * margin) / (x1 - x0), (height - 2 * margin) / (y1 - y0));
    const [cx, cy] = this.centre;
    panel.view = {
      scale, width, height,
      x: (v) => (v - cx) * scale + width / 2, y: (v) => height / 2 - (v - cy) * scale,
      worldX: (px) => (px - width / 2) / scale + cx, worldY: (py) => (height / 2 - py) / scale + cy,
    };
    painter.place(r, this.time);
    painter.paint(context, r, panel.view, this.show, this.focus < r.robots ? this.focus : -1, this.colours);
    this.scaleBar(context, panel.view);
    const rate = r.arrays[r.metric.name][r.index].toFixed(r.metric.digits);
    panel.rate.replaceChildren(`${rate} `, element("small", { textContent: r.metric.label }));
    panel.status.textContent = painter.status(r);
    this.values[r.number].textContent = rate;
  }

  scaleBar(c, view) {
    const length = niceStep(view.width / view.scale / 8, 1), pixels = length * view.scale;
    const x = 12, y = view.height - 8;
    c.strokeStyle = c.fillStyle = this.colours.soft;
    c.lineWidth = 1.5;
    c.beginPath(); c.moveTo(x, y - 4); c.lineTo(x, y); c.lineTo(x + pixels, y); c.lineTo(x + pixels, y - 4); c.stroke();
    c.font = "11px system-ui, sans-serif"; c.textAlign = "left"; c.textBaseline = "bottom";
    const text = length >= 1000 ? `${length / 1000} km` : `${+length.toPrecision(3)} m`;
    c.fillText(text, x + pixels + 6, y + 4);
  }

  /** The list of what a robot knows, made anew only when it has changed. */
  known(r, robot) {
    const state = [robot, knowledge.frame(r), knowledge.layer, knowledge.head, this.colours.number, painter.alive(r, robot)].join();
    if (r.listed !== state) Object.assign(r, { listed: state, list: knowledge.list(r, robot, this.colours) });
    return r.list;
  }

  inspect() {
    const robot = this.focus;
    if (robot === this.shownRobot && robot < 0) return;
    this.shownRobot = robot;
    $("inspector-title").textContent = robot < 0 ? "Robot" : `Robot ${robot}`;
    const blocks = robot < 0 ? [this.hint] : this.recordings.filter((r) => robot < r.robots).flatMap((r) => [
      this.heading("h3", r, r.policy),
      element("dl", {}, ...painter.describe(r, robot).flatMap(([name, text]) => [
        element("dt", { textContent: name }), element("dd", { textContent: text })])),
      ...this.known(r, robot),
    ]);
    $("choice").hidden = robot < 0 || !$("choice").childNodes.length;
    $("inspected").replaceChildren(...blocks);
  }
}

try {
  const data = JSON.parse($("mast-data").textContent);
  const recordings = await Promise.all(data.recordings.map(unpackRecording));
  window.mastReplay = new Replay(recordings, data.palette);
} catch (error) {
  document.querySelector("main").replaceChildren(element("p", { className: "failure",
    textContent: `This replay cannot be shown: ${error.message}. A browser from 2024 or later is needed.` }));
  throw error;
}
