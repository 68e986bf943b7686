// The painter of navigation recordings: goals in the colour and shape of their state, and links to the nearest robots.

const GOAL = { unseen: 0, seen: 1, reached: 2 };

function diamond(c, x, y, r) { c.moveTo(x, y - r); c.lineTo(x + r, y); c.lineTo(x, y + r); c.lineTo(x - r, y); c.closePath(); }

const painter = {
  ...team,

  about: "Robots, goals and links",
  shows: "whom it hears, the goals it sees and its window",
  colours: [...team.colours, "seen", "unseen", "reached"],

  toggles: [team.toggles.links, team.toggles.trails, team.toggles.windows, { key: "goals", label: "Observed goals", shortcut: "g", on: true }],

  key: [
    team.key.robot,
    team.key.failed,
    ["Goal reached", (c, p, s) => { painter.reachedGoals(c, p, [[s / 2, s / 2]], 5); }],
    ["Link", (c, p, s) => { c.strokeStyle = p.link; c.lineWidth = 1.5; c.beginPath(); c.moveTo(2, s / 2); c.lineTo(s - 2, s / 2); c.stroke(); }],
    ["Goal seen", (c, p, s) => { c.strokeStyle = p.seen; c.lineWidth = 2; c.beginPath(); cross(c, s / 2, s / 2, 4.5); c.stroke(); }],
    team.key.window,
    ["Goal unseen", (c, p, s) => { c.strokeStyle = p.unseen; c.lineWidth = 2; c.beginPath(); diamond(c, s / 2, s / 2, 5.5); c.stroke(); }],
  ],

  prepare(r) {
    team.prepare(r);
    r.goalPoints = this.metres(r, r.arrays.goals); // [goals, 2]
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

  /** Robots' positions at `time`, and every goal's state. */
  place(r, time) {
    team.place(r, time);
    const { index, robots } = r, { goals_seen: seen, reached } = r.arrays;
    const k = r.shapes.goals_seen[2], row = r.shapes.reached[1];
    r.goalState.fill(GOAL.unseen);
    for (let i = index * robots * k; i < (index + 1) * robots * k; i++) if (seen[i]) r.goalState[seen[i] - 1] = GOAL.seen;
    for (let g = 0; g < r.goals; g++) if (reached[index * row + (g >> 3)] & (1 << (g & 7))) r.goalState[g] = GOAL.reached;
  },

  paint(c, r, view, show, focus, colours) {
    const size = this.sizes(r, view, Math.max(r.robots, r.goals));
    this.ground(c, r, view, colours);
    if (show.windows && r.attention_radius !== null) this.windows(c, r, view, colours);
    if (show.trails) this.trails(c, r, view, size, colours);
    if (show.links) this.links(c, r, view, size, colours);
    this.goals(c, r, view, size, show.goals, colours);
    if (focus >= 0) this.focusBelow(c, r, view, size, focus, colours);
    this.robots(c, r, view, size, colours);
    if (focus >= 0) this.focusAbove(c, r, view, size, focus, colours);
  },

  ground(c, r, view, colours) {
    const half = r.width / 2, side = r.width * view.scale;
    c.fillStyle = colours.world;
    c.fillRect(view.x(-half), view.y(half), side, side);
    c.strokeStyle = colours.line;
    c.lineWidth = 1;
    c.strokeRect(view.x(-half), view.y(half), side, side);
  },

  /** Lines from a robot to its entries in a [frames, robots, K] index array (0: none, else index + 1). */
  spokes(c, r, view, robot, name, points) {
    const values = r.arrays[name], k = r.shapes[name][2];
    if (!this.alive(r, robot)) return;
    const x = view.x(r.now[2 * robot]), y = view.y(r.now[2 * robot + 1]);
    for (let j = (r.index * r.robots + robot) * k, end = j + k; j < end; j++) {
      if (!values[j] || (points === r.now && !this.alive(r, values[j] - 1))) continue;
      const other = 2 * (values[j] - 1);
      c.moveTo(x, y);
      c.lineTo(view.x(points[other]), view.y(points[other + 1]));
    }
  },

  eachLink(r, visit) {
    const k = r.shapes.neighbours[2], from = r.index * r.robots * k;
    for (let i = 0; i < r.robots * k; i++) {
      const robot = Math.floor(i / k), other = r.arrays.neighbours[from + i] - 1;
      if (other >= 0 && this.alive(r, robot) && this.alive(r, other)) visit(robot, other);
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
    for (const [state, colour, mark] of [[GOAL.unseen, coloured ? colours.unseen : colours.soft, diamond], [GOAL.seen, colours.seen, cross]]) {
      c.strokeStyle = colour;
      c.beginPath();
      for (const [x, y] of groups[state]) mark(c, x, y, size.goal * (mark === diamond ? 1.25 : 1));
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

  /** Under the robots: one robot's window and way so far, the goals it sees, the robots it hears. */
  focusBelow(c, r, view, size, robot, colours) {
    team.focusBelow(c, r, view, size, robot, colours);
    c.strokeStyle = colours.seen;
    c.setLineDash([3, 3]);
    c.beginPath(); this.spokes(c, r, view, robot, "goals_seen", r.goalPoints); c.stroke();
    c.setLineDash([]);
    c.strokeStyle = colours.focus;
    c.beginPath(); this.spokes(c, r, view, robot, "neighbours", r.now); c.stroke();
  },

  status(r) {
    const count = [0, 0, 0];
    for (const state of r.goalState) count[state]++;
    return this.withFailed(r, `${count[GOAL.reached]} reached · ${count[GOAL.seen]} seen · ${count[GOAL.unseen]} unseen`);
  },

  describe(r, robot) {
    const near = (name, points) => {
      const k = r.shapes[name][2], start = (r.index * r.robots + robot) * k;
      const numbers = [...r.arrays[name].subarray(start, start + k)].filter(Boolean).map((stored) => stored - 1);
      return this.distances(r, robot, numbers.filter((n) => points !== r.now || this.alive(r, n)), points);
    };
    const told = team.describe(r, robot);
    return this.alive(r, robot) ? [...told, ["Hears", near("neighbours", r.now)], ["Sees goals", near("goals_seen", r.goalPoints)]] : told;
  },
};
