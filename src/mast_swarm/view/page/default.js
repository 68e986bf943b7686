// The painter of a task that brings none: robots, their links and their trails.

const painter = {
  ...team,

  about: "Robots and links",
  shows: "whom it hears, its way and its window",

  toggles: [team.toggles.links, team.toggles.trails, team.toggles.windows],

  key: [
    team.key.robot,
    team.key.failed,
    ["Link", (c, p, s) => { c.strokeStyle = p.link; c.lineWidth = 1.5; c.beginPath(); c.moveTo(2, s / 2); c.lineTo(s - 2, s / 2); c.stroke(); }],
    team.key.window,
  ],

  bounds(r) {
    const box = [Infinity, Infinity, -Infinity, -Infinity];
    for (let i = 0; i < r.track.length; i += 2) {
      box[0] = Math.min(box[0], r.track[i]); box[1] = Math.min(box[1], r.track[i + 1]);
      box[2] = Math.max(box[2], r.track[i]); box[3] = Math.max(box[3], r.track[i + 1]);
    }
    const room = Math.max(0.03 * Math.max(box[2] - box[0], box[3] - box[1]), 5e-4 * r.width);
    return [box[0] - room, box[1] - room, box[2] + room, box[3] + room];
  },

  /** Whether robot i hears robot j at the frame that is shown. */
  hears(r, i, j) {
    const row = r.shapes.links[2];
    return this.alive(r, i) && this.alive(r, j) && (r.arrays.links[(r.index * r.robots + i) * row + (j >> 3)] >> (j & 7)) & 1;
  },

  /** Whom a robot hears, by their numbers. */
  heard(r, robot) {
    const found = [];
    for (let j = 0; j < r.robots; j++) if (j !== robot && this.hears(r, robot, j)) found.push(j);
    return found;
  },

  paint(c, r, view, show, focus, colours) {
    const size = this.sizes(r, view, r.robots);
    c.fillStyle = colours.world;
    c.fillRect(0, 0, view.width, view.height);
    if (show.windows && r.attention_radius !== null) this.windows(c, r, view, colours);
    if (show.trails) this.trails(c, r, view, size, colours);
    if (show.links) this.links(c, r, view, size, colours);
    if (focus >= 0) this.focusBelow(c, r, view, size, focus, colours);
    this.robots(c, r, view, size, colours);
    if (focus >= 0) this.focusAbove(c, r, view, size, focus, colours);
  },

  eachLink(r, visit) {
    for (let i = 0; i < r.robots; i++) for (let j = i + 1; j < r.robots; j++) if (this.hears(r, i, j) || this.hears(r, j, i)) visit(i, j);
  },

  line(c, r, view, i, j) {
    c.moveTo(view.x(r.now[2 * i]), view.y(r.now[2 * i + 1]));
    c.lineTo(view.x(r.now[2 * j]), view.y(r.now[2 * j + 1]));
  },

  links(c, r, view, size, colours) {
    c.strokeStyle = colours.link;
    c.lineWidth = size.link;
    c.beginPath();
    this.eachLink(r, (i, j) => this.line(c, r, view, i, j));
    c.stroke();
  },

  focusBelow(c, r, view, size, robot, colours) {
    team.focusBelow(c, r, view, size, robot, colours);
    c.strokeStyle = colours.focus;
    c.beginPath();
    for (const other of this.heard(r, robot)) this.line(c, r, view, robot, other);
    c.stroke();
  },

  status(r) {
    let links = 0;
    this.eachLink(r, () => { links++; });
    return this.withFailed(r, `${links} links`);
  },

  describe(r, robot) {
    return [...team.describe(r, robot), ["Hears", this.distances(r, robot, this.heard(r, robot), r.now)]];
  },
};
