// What robots know of each other, added to any painter: for the robot that is chosen, whom it has heard of, where it believes them to be, how old that news is
// and how many links it has crossed, and where the robot's attention goes. Said of every `every`-th frame:
//
// `news_age` [F, N, N] (control periods + 1, 0: never heard), `news_hops` [F, N, N], `attends` [F, N, K] (tokens + 1, 0: fewer; from N on goals) and `weights`
// [F, N, L, H, K] (in 255ths; H is 1 where the heads' mean was kept). What a recording lacks is not shown, and `knows` says how its robots know at all.

const NEWS_SHOWN = 8; // robots that the list names
const FAINT = 0.004; // attention that is not drawn

/** The colour of news by its age: fresh is the robots' blue, then violet, and from 15 control periods on amber. */
function aged(periods, colours) {
  const share = 2 * Math.min(1, Math.log2(1 + periods) / 4), late = share >= 1;
  const [a, b] = (late ? [colours.middling, colours.old] : [colours.robot, colours.middling]).map(channels);
  return `rgb(${a.map((part, k) => Math.round(part + (share - late) * (b[k] - part))).join(" ")})`;
}

const knowledge = {
  layer: -1, head: -1, // -1: the mean over all

  toggles: {
    news: { key: "news", label: "News", shortcut: "n", on: true, available: (r) => knowledge.hasNews(r) },
    attention: { key: "attention", label: "Attention", shortcut: "a", on: true, available: (r) => knowledge.hasAttention(r) },
  },

  key: [
    ["News by age", (c, p, s) => { [0, 2, 15].forEach((age, k) => { c.fillStyle = aged(age, p); c.beginPath(); dot(c, 3 + k * (s / 2 - 3), s / 2, 3); c.fill(); }); }, (r) => knowledge.hasNews(r)],
    ["Never heard of", (c, p, s) => { c.strokeStyle = p.dead; c.lineWidth = 1.5; c.beginPath(); dot(c, s / 2, s / 2, 4); c.stroke(); }, (r) => knowledge.hasNews(r)],
    ["Believed place", (c, p, s) => knowledge.ghost(c, 5, s / 2, s - 2, s / 2, 4, aged(15, p), p), (r) => knowledge.hasNews(r)],
    ["Attention", (c, p, s) => { c.strokeStyle = p.focus; c.globalAlpha = 0.5; c.lineWidth = 5; c.beginPath(); c.moveTo(1, s / 2); c.lineTo(s - 1, s / 2); c.stroke(); }, (r) => knowledge.hasAttention(r)],
  ],

  hasNews(r) { return r.arrays.news_age !== undefined; },
  hasAttention(r) { return r.arrays.attends !== undefined; },

  /** Give a painter all of this. */
  dress(painter, recordings) {
    const plain = { ...painter }, some = (has) => recordings.some(has);
    Object.assign(painter, {
      colours: [...plain.colours, "middling", "old"],
      toggles: [...plain.toggles, ...Object.values(this.toggles).filter((toggle) => some(toggle.available))],
      key: [...plain.key, ...this.key],
      paint(c, r, view, show, focus, colours) {
        r.told = show.news && knowledge.hasNews(r) && focus >= 0 && painter.alive(r, focus) ? focus : -1;
        r.weighed = show.attention && knowledge.hasAttention(r) && focus >= 0 && painter.alive(r, focus) ? focus : -1;
        plain.paint.call(painter, c, r, view, show, focus, colours);
      },
      focusBelow(c, r, view, size, robot, colours) {
        plain.focusBelow.call(painter, c, r, view, size, robot, colours);
        if (r.weighed >= 0) knowledge.attention(c, r, view, size, robot, colours);
        if (r.told >= 0) knowledge.ghosts(c, r, view, size, robot, colours);
      },
      robots(c, r, view, size, colours) { (r.told >= 0 ? knowledge.robots : plain.robots).call(painter, c, r, view, size, colours); },
      describe(r, robot) { return [...plain.describe.call(painter, r, robot), ...knowledge.describe(r, robot)]; },
    });
  },

  /** The kept frame that is shown. */
  frame(r) { return Math.floor(r.index / r.every); },

  /** How old robot i's news of robot j is, in control periods; -1: it has never heard of it. */
  age(r, i, j) { return r.arrays.news_age[(this.frame(r) * r.robots + i) * r.robots + j] - 1; },

  hops(r, i, j) { return r.arrays.news_hops[(this.frame(r) * r.robots + i) * r.robots + j]; },

  /** Where robot i believes a token to be, metres: robots where they were when they said so, others as they are. */
  believed(r, i, token) {
    if (token >= r.robots) return [r.goalPoints[2 * (token - r.robots)], r.goalPoints[2 * (token - r.robots) + 1]];
    if (token === i || !this.hasNews(r)) return [r.now[2 * token], r.now[2 * token + 1]];
    const at = 2 * ((this.frame(r) * r.every - this.age(r, i, token)) * r.robots + token);
    return [r.track[at], r.track[at + 1]];
  },

  /** What robot i attends to: [[token, share], ...], most first, of the layer and head that are chosen. */
  attended(r, i) {
    const [, , layers, heads, tokens] = r.shapes.weights, row = this.frame(r) * r.robots + i, found = [];
    const among = (count, one) => (one >= 0 && one < count ? [one] : [...Array(count).keys()]);
    const rows = among(layers, this.layer).flatMap((layer) => among(heads, this.head).map((head) => layer * heads + head));
    for (let k = 0; k < tokens; k++) {
      const token = r.arrays.attends[row * tokens + k];
      if (!token) break;
      let sum = 0;
      for (const at of rows) sum += r.arrays.weights[(row * layers * heads + at) * tokens + k];
      found.push([token - 1, sum / 255 / rows.length]);
    }
    return found.sort((a, b) => b[1] - a[1]);
  },

  attention(c, r, view, size, robot, colours) {
    const x = view.x(r.now[2 * robot]), y = view.y(r.now[2 * robot + 1]);
    c.strokeStyle = colours.focus;
    c.lineCap = "round";
    for (const [token, share] of this.attended(r, robot)) {
      if (share < FAINT || token === robot) continue;
      const [tx, ty] = this.believed(r, robot, token);
      c.globalAlpha = Math.min(0.75, 0.22 + 1.2 * share);
      c.lineWidth = Math.min(1.5 + 22 * share, 9);
      c.beginPath(); c.moveTo(x, y); c.lineTo(view.x(tx), view.y(ty)); c.stroke();
    }
    c.globalAlpha = 1;
    c.lineCap = "butt";
  },

  /** A hollow mark at (x, y), where a robot is believed to be, and a line from there to where it is. */
  ghost(c, x, y, toX, toY, radius, colour, colours) {
    c.strokeStyle = colour;
    c.lineWidth = 1.4;
    c.setLineDash([2, 2]);
    c.beginPath(); c.moveTo(x, y); c.lineTo(toX, toY); c.stroke();
    c.setLineDash([]);
    c.fillStyle = colours.world;
    c.beginPath(); dot(c, x, y, radius); c.fill(); c.stroke();
  },

  ghosts(c, r, view, size, robot, colours) {
    for (let j = 0; j < r.robots; j++) {
      const age = this.age(r, robot, j);
      if (j === robot || age < 0) continue;
      const [x, y] = this.believed(r, robot, j);
      const [gx, gy, nx, ny] = [view.x(x), view.y(y), view.x(r.now[2 * j]), view.y(r.now[2 * j + 1])];
      if (Math.hypot(gx - nx, gy - ny) > size.robot) this.ghost(c, gx, gy, nx, ny, size.robot * 0.85, aged(age, colours), colours);
    }
  },

  /** Robots in the colour of the chosen one's news of them; hollow where it has none. `this` is the painter. */
  robots(c, r, view, size, colours) {
    c.lineWidth = Math.max(size.robot * 0.35, 1);
    for (let j = 0; j < r.robots; j++) {
      const x = view.x(r.now[2 * j]), y = view.y(r.now[2 * j + 1]), age = j === r.told ? 0 : knowledge.age(r, r.told, j);
      if (!this.alive(r, j)) { this.failed(c, x, y, size.robot, colours); continue; }
      c.beginPath(); dot(c, x, y, size.robot);
      if (age < 0) { c.fillStyle = colours.world; c.strokeStyle = colours.dead; c.fill(); c.stroke(); continue; }
      c.strokeStyle = colours.world; c.fillStyle = aged(age, colours);
      if (size.robot > 2.5) c.stroke();
      c.fill();
    }
  },

  describe(r, robot) {
    if (!painter.alive(r, robot)) return [];
    if (!this.hasNews(r)) return !painter.eachLink ? [] : [["Connected to", `${painter.connected(r, robot)} of ${r.robots - 1} robots`]];
    let count = 0, oldest = 0, whose = -1;
    for (let j = 0; j < r.robots; j++) {
      const age = this.age(r, robot, j);
      if (j === robot || age < 0) continue;
      count++;
      if (age > oldest) { oldest = age; whose = j; }
    }
    const rows = [["Has heard of", `${count} of ${r.robots - 1} robots`]];
    if (count) rows.push(["Oldest news", whose < 0 ? "of this instant" : `${+(oldest * r.dt).toFixed(1)} s, of robot ${whose}`]);
    return rows;
  },

  /** The list of what a robot knows, attention first and then the oldest news; or a sentence on why there is none. */
  list(r, robot, colours) {
    const note = (text) => element("p", { className: "hint", textContent: text });
    if (!painter.alive(r, robot)) return [];
    const how = r.knows ? [note(`${r.knows[0].toUpperCase()}${r.knows.slice(1)}.`)] : [];
    const news = this.hasNews(r), weighed = this.hasAttention(r);
    if (!news && !weighed) return how;
    const shares = new Map(weighed ? this.attended(r, robot) : []), rows = [];
    for (const [token, share] of shares) if (token !== robot) rows.push({ token, share });
    if (news) for (let j = 0; j < r.robots; j++) if (j !== robot && !shares.has(j) && this.age(r, robot, j) >= 0) rows.push({ token: j, share: 0 });
    const age = ({ token }) => (news && token < r.robots ? this.age(r, robot, token) : 0);
    rows.sort((a, b) => b.share - a.share || age(b) - age(a) || a.token - b.token);
    if (!rows.length) return how;
    const most = Math.max(1e-9, ...rows.map((row) => row.share));
    const table = element("div", { className: `known${news ? " aged" : ""}${weighed ? " weighed" : ""}` });
    const cell = (text, className = "") => { const node = element("span", { className, textContent: text }); table.append(node); return node; };
    for (const word of ["Of", ...(news ? ["Age", "Hops"] : []), ...(weighed ? ["Attention", ""] : [])]) cell(word, "head");
    for (const row of rows.slice(0, NEWS_SHOWN)) {
      const robots = row.token < r.robots;
      cell(robots ? String(row.token) : `goal ${row.token - r.robots}`);
      if (news) {
        cell(robots ? `${+(age(row) * r.dt).toFixed(1)} s` : "–", "age").style.setProperty("--tint", aged(age(row), colours));
        cell(robots ? String(this.hops(r, robot, row.token)) : "–");
      }
      if (weighed) {
        cell("", "bar").style.setProperty("--share", row.share / most);
        cell(shares.has(row.token) ? `${(100 * row.share).toFixed(1)} %` : "–", "share"); // none, or less than all that are kept
      }
    }
    const after = [];
    if (rows.length > NEWS_SHOWN) after.push(`and ${rows.length - NEWS_SHOWN} more`);
    if (weighed) after.push(`${(100 * (shares.get(robot) ?? 0)).toFixed(1)} % to itself`);
    if (r.every > 1) after.push(`as of ${seconds(this.frame(r) * r.every * r.dt)}, kept every ${seconds(r.every * r.dt)}`);
    return [table, ...(after.length ? [note(after.join(" · "))] : []), ...how];
  },

  /** Which layer and head attention is shown of: two lists to choose from. */
  choice(recordings, changed) {
    const weighed = recordings.filter((r) => this.hasAttention(r));
    if (!weighed.length) return [];
    const layers = Math.max(...weighed.map((r) => r.shapes.weights[2])), heads = Math.max(...weighed.map((r) => r.shapes.weights[3]));
    const averaged = weighed.some((r) => r.shapes.weights[3] < r.heads);
    const select = (name, count, mean) => {
      const box = element("select", {}, new Option(mean, -1), ...[...Array(count).keys()].map((n) => new Option(`${name} ${n + 1}`, n)));
      box.setAttribute("aria-label", `Attention: ${name}`);
      box.id = `attention-${name}`;
      box.value = this[name];
      box.addEventListener("change", () => { this[name] = Number(box.value); changed(); });
      return box;
    };
    const found = ["Attention of", select("layer", layers, "all layers")];
    return heads > 1 ? [...found, select("head", heads, "all heads")] : [...found, averaged ? "mean over heads" : ""];
  },
};
