// What a swarm of processes adds to any painter: messages on their way, how old each robot's news is, and who is gone.
//
// Its recordings have three arrays more: `status` (0 not there yet, 1 alive, 2 dead), `age` (hundredths of a second + 1,
// 0: knows of nobody) and `used` (row i: from whom robot i got news until the next frame, a bit per robot).

const STATUS = { waiting: 0, alive: 1, dead: 2 };

const swarm = {
  toggles: [
    { key: "messages", label: "Messages", shortcut: "m", on: true },
    { key: "ages", label: "Age of news", shortcut: "a", on: true },
  ],

  key(recordings) {
    const oldest = Math.max(...recordings.map((r) => r.stale));
    return [
      ["Message", (c, p, s) => {
        c.strokeStyle = c.fillStyle = p.pulse; c.lineWidth = 1.5;
        c.beginPath(); c.moveTo(1, s / 2); c.lineTo(s - 1, s / 2); c.globalAlpha = 0.5; c.stroke(); c.globalAlpha = 1;
        c.beginPath(); dot(c, s * 0.62, s / 2, 3); c.fill();
      }],
      [`News ${+oldest.toPrecision(2)} s old`, (c, p, s) => { c.fillStyle = p.stale; c.beginPath(); dot(c, s / 2, s / 2, 4.5); c.fill(); }],
      ["Dead", (c, p, s) => { team.failed(c, s / 2, s / 2, 4.5, p); }],
      ["Not there yet", (c, p, s) => { c.strokeStyle = p.robot; c.lineWidth = 1.3; c.beginPath(); dot(c, s / 2, s / 2, 4); c.stroke(); }],
    ];
  },

  /** Give a painter all of this. */
  dress(painter, recordings) {
    const plain = { ...painter };
    Object.assign(painter, {
      colours: [...plain.colours, "pulse", "stale"],
      toggles: [...plain.toggles, ...this.toggles],
      key: [...plain.key, ...this.key(recordings)],
      place(r, time) { plain.place.call(painter, r, time); r.fraction = locate(r, time).fraction; },
      paint(c, r, view, show, focus, colours) { r.shown = show; plain.paint.call(painter, c, r, view, show, focus, colours); },
      robots(c, r, view, size, colours) {
        if (!r.arrays.status) { plain.robots.call(painter, c, r, view, size, colours); return; }
        if (r.shown.messages) swarm.messages(c, r, view, size, colours);
        swarm.robots(c, r, view, size, colours);
      },
      status(r) { return r.arrays.status ? `${swarm.alive(r)} of ${r.robots} alive · ${plain.status.call(painter, r)}` : plain.status.call(painter, r); },
      describe(r, robot) {
        const known = plain.describe.call(painter, r, robot);
        if (!r.arrays.status) return known;
        const state = r.arrays.status[r.index * r.robots + robot], age = swarm.age(r, robot);
        const words = { [STATUS.waiting]: "not there yet", [STATUS.dead]: "dead", [STATUS.alive]: "alive" };
        return [["Process", words[state]], ["News", age < 0 ? "of nobody" : `${age.toFixed(1)} s old on average`], ...known];
      },
    });
  },

  alive(r) {
    let count = 0;
    for (let i = 0; i < r.robots; i++) count += r.arrays.status[r.index * r.robots + i] === STATUS.alive;
    return count;
  },

  /** How old a robot's news of others is, seconds; -1: it knows of nobody. */
  age(r, robot) { return (r.arrays.age[r.index * r.robots + robot] - 1) / 100; },

  /** Links that carry news between this frame and the next, and the news on them. */
  messages(c, r, view, size, colours) {
    const row = r.shapes.used[2], ways = [];
    for (let i = 0; i < r.robots; i++) {
      for (let j = 0; j < r.robots; j++) {
        if ((r.arrays.used[(r.index * r.robots + i) * row + (j >> 3)] >> (j & 7)) & 1) ways.push([j, i]);
      }
    }
    const point = (i) => [view.x(r.now[2 * i]), view.y(r.now[2 * i + 1])];
    c.strokeStyle = c.fillStyle = colours.pulse;
    c.lineWidth = size.link * 1.2;
    c.globalAlpha = 0.35;
    c.beginPath();
    for (const [from, to] of ways) { c.moveTo(...point(from)); c.lineTo(...point(to)); }
    c.stroke();
    c.globalAlpha = 1;
    if (r.fraction === 0) return; // they are about to leave
    c.beginPath();
    for (const [from, to] of ways) {
      const [x0, y0] = point(from), [x1, y1] = point(to);
      dot(c, x0 + (x1 - x0) * r.fraction, y0 + (y1 - y0) * r.fraction, Math.max(size.robot * 0.45, 1.3));
    }
    c.fill();
  },

  robots(c, r, view, size, colours) {
    for (let i = 0; i < r.robots; i++) {
      const x = view.x(r.now[2 * i]), y = view.y(r.now[2 * i + 1]), state = r.arrays.status[r.index * r.robots + i];
      if (state === STATUS.dead) { team.failed(c, x, y, size.robot, colours); continue; }
      const share = r.shown.ages ? Math.min(Math.max((this.age(r, i) - r.fresh) / (r.stale - r.fresh), 0), 1) : 0;
      c.beginPath(); dot(c, x, y, size.robot);
      c.lineWidth = size.robot * 0.35;
      if (state === STATUS.waiting) { c.fillStyle = colours.world; c.strokeStyle = colours.robot; c.fill(); c.stroke(); continue; }
      c.strokeStyle = colours.world; c.stroke();
      c.fillStyle = colours.robot; c.fill();
      c.globalAlpha = share; c.fillStyle = colours.stale; c.fill(); c.globalAlpha = 1;
    }
  },
};
