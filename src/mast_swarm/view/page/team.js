// What the painters of all tasks share: robots that move, their trails and windows, and the robot that is pointed at.
//
// A task's painter is this and more, under the name `painter`: about, shows, colours, toggles, key, prepare, bounds, place, paint, eachLink, status, describe.

const TRAIL_SECONDS = 40;
const TRAIL_SEGMENTS = 12000; // in all; more robots get coarser trails, so that a frame stays cheap
const FADES = [0.12, 0.24, 0.4, 0.6]; // opacity of a trail, oldest part first

function dot(c, x, y, r) { c.moveTo(x + r, y); c.arc(x, y, r, 0, 2 * Math.PI); }
function cross(c, x, y, r) { c.moveTo(x - r, y - r); c.lineTo(x + r, y + r); c.moveTo(x - r, y + r); c.lineTo(x + r, y - r); }

const team = {
  shows: "its way and its window", // when one points at a robot

  colours: ["robot", "link", "focus", "dead", "world", "line", "soft", "ink", "card"], // names in the style sheet

  toggles: {
    links: { key: "links", label: "Links", shortcut: "l", on: true },
    trails: { key: "trails", label: "Trails", shortcut: "t", on: true },
    windows: { key: "windows", label: "Windows", shortcut: "w", on: false, available: (r) => r.attention_radius !== null, without: "These policies have no attention window" },
  },

  key: {
    robot: ["Robot", (c, p, s) => { c.fillStyle = p.robot; c.beginPath(); dot(c, s / 2, s / 2, 4.5); c.fill(); }],
    failed: ["Failed", (c, p, s) => { team.failed(c, s / 2, s / 2, 4.5, p); }, (r) => r.arrays.alive !== undefined],
    window: ["Window", (c, p, s) => { c.strokeStyle = p.robot; c.setLineDash([3, 2]); c.beginPath(); dot(c, s / 2, s / 2, 7); c.stroke(); c.setLineDash([]); }, (r) => r.attention_radius !== null],
  },

  /** Metres for stored integers. */
  metres(r, values) { return Float32Array.from(values, (v, i) => r.origin[i % 2] + v * r.unit); },

  /** Metres, and room for what one frame needs. */
  prepare(r) {
    r.track = this.metres(r, r.arrays.positions); // [frames, robots, 2]
    r.now = new Float32Array(2 * r.robots);
  },

  /** Robots' positions at `time`, straight between frames. */
  place(r, time) {
    const { index, fraction } = locate(r, time);
    const size = 2 * r.robots, from = index * size;
    const to = Math.min(index + 1, r.frames - 1) * size;
    for (let i = 0; i < size; i++) r.now[i] = r.track[from + i] + fraction * (r.track[to + i] - r.track[from + i]);
    r.index = index;
  },

  /** Pixel sizes that suit how crowded the picture is. */
  sizes(r, view, things) {
    const spacing = (view.scale * r.width) / Math.sqrt(things);
    const robot = Math.min(Math.max(0.075 * spacing, 1.7), 5);
    return { robot, goal: Math.max(robot * 1.05, 2.2), stroke: Math.min(Math.max(robot * 0.42, 1), 2), link: Math.min(Math.max(robot * 0.3, 0.7), 1.3) };
  },

  robots(c, r, view, size, colours) {
    c.fillStyle = colours.robot;
    c.strokeStyle = colours.world;
    c.lineWidth = size.robot * 0.35;
    c.beginPath();
    for (let i = 0; i < r.robots; i++) if (this.alive(r, i)) dot(c, view.x(r.now[2 * i]), view.y(r.now[2 * i + 1]), size.robot);
    if (size.robot > 2.5) c.stroke();
    c.fill();
    for (let i = 0; i < r.robots; i++) if (!this.alive(r, i)) this.failed(c, view.x(r.now[2 * i]), view.y(r.now[2 * i + 1]), size.robot, colours);
  },

  /** Whether a robot has not failed by the frame that is shown: those that have stand still and are silent. */
  alive(r, robot) { return !r.arrays.alive || r.arrays.alive[r.index * r.robots + robot] === 1; },

  /** The mark of a robot that is gone: a cross over a faint disk. */
  failed(c, x, y, radius, colours) {
    c.fillStyle = c.strokeStyle = colours.dead;
    c.globalAlpha = 0.45;
    c.beginPath(); dot(c, x, y, radius); c.fill();
    c.globalAlpha = 1;
    c.lineWidth = Math.max(radius * 0.4, 1.2);
    c.beginPath(); cross(c, x, y, radius); c.stroke();
  },

  /** How many robots are linked to a robot now, over any number of links; a painter's `eachLink(r, visit)` names the links. */
  connected(r, robot) {
    if (r.joinedAt !== r.index) {
      const root = Uint32Array.from({ length: r.robots }, (_, i) => i), find = (i) => { while (root[i] !== i) i = root[i] = root[root[i]]; return i; };
      this.eachLink(r, (i, j) => { root[find(i)] = find(j); });
      Object.assign(r, { joinedAt: r.index, joined: root.map(find) });
    }
    return r.joined.reduce((count, label) => count + (label === r.joined[robot]), 0) - 1;
  },

  /** How many have failed, in front of what else a status says. */
  withFailed(r, text) {
    let count = 0;
    for (let i = 0; i < r.robots; i++) count += !this.alive(r, i);
    return count ? `${count} failed · ${text}` : text;
  },

  windows(c, r, view, colours) {
    c.strokeStyle = colours.robot;
    c.lineWidth = 1;
    c.globalAlpha = Math.min(0.35, 12 / r.robots + 0.1);
    // One stroke a circle: overlaps add up, so crowded places show as such (and one huge path is slower).
    for (let i = 0; i < r.robots; i++) {
      c.beginPath();
      dot(c, view.x(r.now[2 * i]), view.y(r.now[2 * i + 1]), r.attention_radius * view.scale);
      c.stroke();
    }
    c.globalAlpha = 1;
  },

  trails(c, r, view, size, colours) {
    const frames = Math.min(Math.round(TRAIL_SECONDS / r.dt), r.index);
    const stride = Math.max(1, Math.ceil((frames * r.robots) / TRAIL_SEGMENTS));
    c.strokeStyle = colours.robot;
    c.lineWidth = size.link * 1.4;
    c.lineJoin = "round";
    FADES.forEach((opacity, part) => {
      // Fixed multiples of the stride, so that a coarse trail does not shiver from frame to frame.
      const snap = (share) => Math.ceil((r.index - frames * (1 - share)) / stride) * stride;
      const first = snap(part / FADES.length), final = part === FADES.length - 1;
      const last = final ? r.index : snap((part + 1) / FADES.length);
      c.globalAlpha = opacity;
      c.beginPath();
      for (let i = 0; i < r.robots; i++) this.trail(c, r, view, i, Math.max(first, 0), last, stride, final);
      c.stroke();
    });
    c.globalAlpha = 1;
  },

  trail(c, r, view, robot, first, last, stride, toNow) {
    const at = 2 * robot, size = 2 * r.robots;
    for (let f = Math.min(first, r.index), start = true; f <= last; f += stride, start = false) {
      const x = view.x(r.track[f * size + at]), y = view.y(r.track[f * size + at + 1]);
      if (start) c.moveTo(x, y); else c.lineTo(x, y);
    }
    if (toNow) c.lineTo(view.x(r.now[at]), view.y(r.now[at + 1]));
  },

  /** Under the robots: one robot's window, and its way so far. */
  focusBelow(c, r, view, size, robot, colours) {
    const x = view.x(r.now[2 * robot]), y = view.y(r.now[2 * robot + 1]);
    c.strokeStyle = c.fillStyle = colours.robot;
    c.lineWidth = 1.3;
    if (r.attention_radius !== null) {
      c.beginPath(); dot(c, x, y, r.attention_radius * view.scale);
      c.globalAlpha = 0.08; c.fill(); c.globalAlpha = 1;
      c.setLineDash([6, 4]); c.stroke(); c.setLineDash([]);
    }
    c.lineWidth = Math.max(size.link * 2, 1.6);
    c.beginPath(); this.trail(c, r, view, robot, 0, r.index, 1, true); c.stroke();
  },

  focusAbove(c, r, view, size, robot, colours) {
    const x = view.x(r.now[2 * robot]), y = view.y(r.now[2 * robot + 1]);
    const radius = Math.max(size.robot, 3.5);
    c.fillStyle = colours.robot;
    c.strokeStyle = colours.focus;
    c.lineWidth = 2;
    c.beginPath(); dot(c, x, y, radius);
    if (this.alive(r, robot)) c.fill();
    c.stroke();
    c.font = "600 12px system-ui, sans-serif";
    c.textAlign = "left"; c.textBaseline = "bottom";
    c.lineWidth = 3;
    c.strokeStyle = colours.world;
    c.strokeText(String(robot), x + radius + 3, y - radius);
    c.fillStyle = colours.focus;
    c.fillText(String(robot), x + radius + 3, y - radius);
  },

  /** The robot nearest to a point of the picture and within `reach` pixels of it, or -1. */
  pick(r, view, x, y, reach) {
    let best = -1, least = reach * reach;
    for (let i = 0; i < r.robots; i++) {
      const dx = view.x(r.now[2 * i]) - x, dy = view.y(r.now[2 * i + 1]) - y;
      if (dx * dx + dy * dy < least) { least = dx * dx + dy * dy; best = i; }
    }
    return best;
  },

  /** What can be said of a robot in any task: [name, text], ... */
  describe(r, robot) {
    const at = 2 * robot, size = 2 * r.robots;
    const from = Math.min(r.index, Math.max(r.frames - 2, 0)) * size + at;
    const to = Math.min(from + size, r.track.length - 2 * r.robots + at);
    const speed = Math.hypot(r.track[to] - r.track[from], r.track[to + 1] - r.track[from + 1]) / r.dt;
    return [
      ...(this.alive(r, robot) ? [] : [["State", "failed: stands still, says nothing"]]),
      ["Position", `${r.now[at].toFixed(1)}, ${r.now[at + 1].toFixed(1)} m`],
      ["Speed", `${speed.toFixed(1)} m/s`],
      ...(r.attention_radius === null ? [] : [["Window", `${+r.attention_radius.toPrecision(4)} m`]]),
    ];
  },

  /** Points by their numbers, each with its distance from a robot. */
  distances(r, robot, numbers, points) {
    const away = (n) => Math.hypot(points[2 * n] - r.now[2 * robot], points[2 * n + 1] - r.now[2 * robot + 1]);
    return numbers.length ? `${numbers.map((n) => `${n}\u00a0(${away(n).toFixed(0)})`).join(", ")}\u00a0m` : "none";
  },
};
