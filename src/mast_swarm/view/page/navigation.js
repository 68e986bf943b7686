// The painter of navigation recordings. A task's painter has: toggles, key, prepare, bounds, place, paint, pick, status, describe.

const TRAIL_SECONDS = 40;
const TRAIL_SEGMENTS = 12000; // in all; more robots get coarser trails, so that a frame stays cheap
const FADES = [0.12, 0.24, 0.4, 0.6]; // opacity of a trail, oldest part first
const GOAL = { unseen: 0, seen: 1, reached: 2 };

function dot(c, x, y, r) { c.moveTo(x + r, y); c.arc(x, y, r, 0, 2 * Math.PI); }
function cross(c, x, y, r) { c.moveTo(x - r, y - r); c.lineTo(x + r, y + r); c.moveTo(x - r, y + r); c.lineTo(x + r, y - r); }

const navigation = {
  toggles: [
    { key: "links", label: "Links", shortcut: "l", on: true },
    { key: "trails", label: "Trails", shortcut: "t", on: true },
    { key: "windows", label: "Windows", shortcut: "w", on: false, available: (r) => r.attention_radius !== null, without: "These policies have no attention window" },
    { key: "goals", label: "Observed goals", shortcut: "g", on: true },
  ],

  key: [
    ["Robot", (c, p, s) => { c.fillStyle = p.robot; c.beginPath(); dot(c, s / 2, s / 2, 4.5); c.fill(); }],
    ["Goal reached", (c, p, s) => { navigation.reachedGoals(c, p, [[s / 2, s / 2]], 5); }],
    ["Link", (c, p, s) => { c.strokeStyle = p.link; c.lineWidth = 1.5; c.beginPath(); c.moveTo(2, s / 2); c.lineTo(s - 2, s / 2); c.stroke(); }],
    ["Goal seen", (c, p, s) => { c.strokeStyle = p.seen; c.lineWidth = 2; c.beginPath(); cross(c, s / 2, s / 2, 4.5); c.stroke(); }],
    ["Window", (c, p, s) => { c.strokeStyle = p.robot; c.setLineDash([3, 2]); c.beginPath(); dot(c, s / 2, s / 2, 7); c.stroke(); c.setLineDash([]); }],
    ["Goal unseen", (c, p, s) => { c.strokeStyle = p.unseen; c.lineWidth = 2; c.beginPath(); cross(c, s / 2, s / 2, 4.5); c.stroke(); }],
  ],

  /** Metres for the stored integers, and room for what one frame needs. */
  prepare(r) {
    const metres = (values) => Float32Array.from(values, (v, i) => r.origin[i % 2] + v * r.unit);
    r.track = metres(r.arrays.positions); // [frames, robots, 2]
    r.goalPoints = metres(r.arrays.goals); // [goals, 2]
    r.now = new Float32Array(2 * r.robots);
    r.goalState = new Uint8Array(r.goals);
  },

  bounds(r) {
    const box = [-r.width / 2, -r.width / 2, r.width / 2, r.width / 2];
    for (const points of [r.track, r.goalPoints]) {
      for (let i = 0; i < points.length; i += 2) {
        box[0] = Math.min(box[0], points[i]); box[1] = Math.min(box[1], points[i + 1]);
        box[2] = Math.max(box[2], points[i]); box[3] = Math.max(box[3], points[i + 1]);
      }
    }
    return box;
  },

  /** Robots' positions at `time` (straight between frames) and every goal's state. */
  place(r, time) {
    const { index, fraction } = locate(r, time);
    const size = 2 * r.robots, from = index * size;
    const to = Math.min(index + 1, r.frames - 1) * size;
    for (let i = 0; i < size; i++) r.now[i] = r.track[from + i] + fraction * (r.track[to + i] - r.track[from + i]);
    r.index = index;

    const { goals_seen: seen, reached } = r.arrays;
    const k = r.shapes.goals_seen[2], row = r.shapes.reached[1];
    r.goalState.fill(GOAL.unseen);
    for (let i = index * r.robots * k; i < (index + 1) * r.robots * k; i++) if (seen[i]) r.goalState[seen[i] - 1] = GOAL.seen;
    for (let g = 0; g < r.goals; g++) if (reached[index * row + (g >> 3)] & (1 << (g & 7))) r.goalState[g] = GOAL.reached;
  },

  /** Pixel sizes that suit how crowded the picture is. */
  sizes(r, view) {
    const spacing = (view.scale * r.width) / Math.sqrt(Math.max(r.robots, r.goals));
    const robot = Math.min(Math.max(0.075 * spacing, 1.7), 5);
    return { robot, goal: Math.max(robot * 1.05, 2.2), stroke: Math.min(Math.max(robot * 0.42, 1), 2), link: Math.min(Math.max(robot * 0.3, 0.7), 1.3) };
  },

  paint(c, r, view, show, focus, colours) {
    const size = this.sizes(r, view);
    this.ground(c, r, view, colours);
    if (show.windows && r.attention_radius !== null) this.windows(c, r, view, colours);
    if (show.trails) this.trails(c, r, view, size, colours);
    if (show.links) this.links(c, r, view, size, colours);
    this.goals(c, r, view, size, show.goals, colours);
    if (focus >= 0 && focus < r.robots) this.focusBelow(c, r, view, size, focus, colours);
    c.fillStyle = colours.robot;
    c.strokeStyle = colours.world;
    c.lineWidth = size.robot * 0.35;
    c.beginPath();
    for (let i = 0; i < r.robots; i++) dot(c, view.x(r.now[2 * i]), view.y(r.now[2 * i + 1]), size.robot);
    if (size.robot > 2.5) c.stroke();
    c.fill();
    if (focus >= 0 && focus < r.robots) this.focusAbove(c, r, view, size, focus, colours);
  },

  ground(c, r, view, colours) {
    const half = r.width / 2, side = r.width * view.scale;
    c.fillStyle = colours.world;
    c.fillRect(view.x(-half), view.y(half), side, side);
    c.strokeStyle = colours.line;
    c.lineWidth = 1;
    c.strokeRect(view.x(-half), view.y(half), side, side);
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

  /** Lines from a robot to its entries in a [frames, robots, K] index array (0: none, else index + 1). */
  spokes(c, r, view, robot, name, points) {
    const values = r.arrays[name], k = r.shapes[name][2];
    const x = view.x(r.now[2 * robot]), y = view.y(r.now[2 * robot + 1]);
    for (let j = (r.index * r.robots + robot) * k, end = j + k; j < end; j++) {
      if (!values[j]) continue;
      const other = 2 * (values[j] - 1);
      c.moveTo(x, y);
      c.lineTo(view.x(points[other]), view.y(points[other + 1]));
    }
  },

  links(c, r, view, size, colours) {
    c.strokeStyle = colours.link;
    c.lineWidth = size.link;
    c.beginPath();
    for (let i = 0; i < r.robots; i++) this.spokes(c, r, view, i, "neighbours", r.now);
    c.stroke();
  },

  goals(c, r, view, size, coloured, colours) {
    const groups = [[], [], []];
    for (let g = 0; g < r.goals; g++) {
      groups[coloured ? r.goalState[g] : 0].push([view.x(r.goalPoints[2 * g]), view.y(r.goalPoints[2 * g + 1])]);
    }
    c.lineCap = "round";
    this.reachedGoals(c, colours, groups[GOAL.reached], Math.max(size.robot * 1.3 + 1.2, r.success_radius * view.scale));
    c.lineWidth = size.stroke;
    for (const [state, colour] of [[GOAL.unseen, coloured ? colours.unseen : colours.soft], [GOAL.seen, colours.seen]]) {
      c.strokeStyle = colour;
      c.beginPath();
      for (const [x, y] of groups[state]) cross(c, x, y, size.goal);
      c.stroke();
    }
    c.lineCap = "butt";
  },

  reachedGoals(c, colours, points, radius) {
    c.beginPath();
    for (const [x, y] of points) dot(c, x, y, radius);
    c.fillStyle = c.strokeStyle = colours.reached;
    c.lineWidth = Math.min(Math.max(radius * 0.2, 0.8), 1.4);
    c.globalAlpha = 0.22;
    c.fill();
    c.globalAlpha = 1;
    c.stroke();
  },

  /** Under the robots: one robot's window, its way so far, the goals it sees, the robots it hears. */
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
    c.strokeStyle = colours.seen;
    c.setLineDash([3, 3]);
    c.beginPath(); this.spokes(c, r, view, robot, "goals_seen", r.goalPoints); c.stroke();
    c.setLineDash([]);
    c.strokeStyle = colours.focus;
    c.beginPath(); this.spokes(c, r, view, robot, "neighbours", r.now); c.stroke();
  },

  focusAbove(c, r, view, size, robot, colours) {
    const x = view.x(r.now[2 * robot]), y = view.y(r.now[2 * robot + 1]);
    const radius = Math.max(size.robot, 3.5);
    c.fillStyle = colours.robot;
    c.strokeStyle = colours.focus;
    c.lineWidth = 2;
    c.beginPath(); dot(c, x, y, radius); c.fill(); c.stroke();
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

  status(r) {
    const count = [0, 0, 0];
    for (const state of r.goalState) count[state]++;
    return `${count[GOAL.reached]} reached · ${count[GOAL.seen]} seen · ${count[GOAL.unseen]} unseen`;
  },

  describe(r, robot) {
    const at = 2 * robot, size = 2 * r.robots, x = r.now[at], y = r.now[at + 1];
    const from = Math.min(r.index, Math.max(r.frames - 2, 0)) * size + at;
    const to = Math.min(from + size, r.track.length - 2 * r.robots + at);
    const speed = Math.hypot(r.track[to] - r.track[from], r.track[to + 1] - r.track[from + 1]) / r.dt;
    const near = (name, points) => {
      const k = r.shapes[name][2], start = (r.index * r.robots + robot) * k;
      const parts = [...r.arrays[name].subarray(start, start + k)].filter(Boolean).map((stored) => {
        const other = stored - 1;
        return `${other}\u00a0(${Math.hypot(points[2 * other] - x, points[2 * other + 1] - y).toFixed(0)})`;
      });
      return parts.length ? `${parts.join(", ")}\u00a0m` : "none";
    };
    return [
      ["Position", `${x.toFixed(1)}, ${y.toFixed(1)} m`],
      ["Speed", `${speed.toFixed(1)} m/s`],
      ["Hears", near("neighbours", r.now)],
      ["Sees goals", near("goals_seen", r.goalPoints)],
      ...(r.attention_radius === null ? [] : [["Window", `${+r.attention_radius.toPrecision(4)} m`]]),
    ];
  },
};

const painters = { navigation };
