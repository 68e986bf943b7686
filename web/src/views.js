// The lists that the team graph takes (src/mast_swarm/interop/team.py): which messages anybody holds, and what of them each
// robot's command depends on. A robot's view is what it holds; robots that hold the same share one. The level of an entry
// is the number of attention windows between it and the robot itself: layer l of L needs the rows of levels 0 .. L - l.

/** Views of the living robots, or of `only` one: {robots, holds, levels} with entries sorted by level. */
export function views(relay, radius, layers, only = -1) {
  const { n, newest, alive, store } = relay, messages = [], numbers = new Map();
  const message = (origin, stamp) => {
    const name = origin + n * stamp;
    let number = numbers.get(name);
    if (number === undefined) {
      numbers.set(name, (number = messages.length));
      messages.push({ origin, stamp, ...store[origin].get(stamp) });
    }
    return number;
  };
  const found = [], shared = new Map();
  for (let i = 0; i < n; i++) {
    if (!alive[i] || (only >= 0 && i !== only)) continue;
    // Only without delay do robots hold the very same.
    const name = relay.instant ? newest.subarray(i * n, (i + 1) * n).join() : i;
    if (shared.has(name)) { shared.get(name).robots.push(i); continue; }
    const view = { robots: [i], entries: [] };
    for (let j = 0; j < n; j++) if (newest[i * n + j] >= 0) view.entries.push(message(j, newest[i * n + j]));
    shared.set(name, view);
    found.push(view);
  }
  for (const view of found) sortByLevel(view, messages, radius, layers);
  return { messages, views: found };
}

/** Sort a view's entries by level, own robots first, and drop those of more than `layers` levels; find who sees whom. */
function sortByLevel(view, messages, radius, layers) {
  const all = view.entries, size = all.length, limit = radius === null ? Infinity : radius * radius;
  const x = Float32Array.from(all, (e) => messages[e].x), y = Float32Array.from(all, (e) => messages[e].y);
  const sees = (a, b) => a === b || (x[a] - x[b]) ** 2 + (y[a] - y[b]) ** 2 < limit;
  const own = new Map(view.robots.map((robot, order) => [robot, order]));
  const level = new Int32Array(size).fill(layers + 1);
  let front = [];
  for (let e = 0; e < size; e++) if (own.has(messages[all[e]].origin)) front.push(e);
  front.sort((a, b) => own.get(messages[all[a]].origin) - own.get(messages[all[b]].origin));
  const order = [...front];
  for (const e of front) level[e] = 0;
  for (let windows = 1; windows <= layers && front.length; windows++) {
    const next = [];
    for (let e = 0; e < size; e++) {
      if (level[e] <= layers) continue;
      if (front.some((f) => sees(e, f))) { level[e] = windows; next.push(e); }
    }
    front = next;
    order.push(...front);
  }
  view.counts = Array.from({ length: layers + 1 }, (_, most) => order.filter((e) => level[e] <= most).length);
  view.entries = order.map((e) => all[e]);
  view.levels = order.map((e) => level[e]);
  view.seen = order.slice(0, view.counts[layers - 1]).map((e) => order.flatMap((f, column) => (sees(e, f) ? [column] : [])));
}

/** The graph's inputs, as {name: {type, data, dims}}, and the robot behind each row of its answer. */
export function inputs({ messages, views: all }, layers, width) {
  const V = all.length, widths = [];
  for (let layer = 0; layer <= layers; layer++) widths.push(Math.max(...all.map((view) => view.counts[layers - layer])));
  const [C, M] = widths, [entry, merged, number] = [0, 1, 2].map(() => new BigInt64Array(V * C));
  const allowed = new Uint8Array(V * M * C), firstView = [], firstColumn = [], view = [], column = [], rows = [], robots = [];
  all.forEach(({ entries, seen }, v) => {
    entries.forEach((number_, c) => { entry[v * C + c] = BigInt(number_); });
    seen.forEach((columns, r) => { for (const c of columns) allowed[(v * M + r) * C + c] = 1; });
  });
  const alike = new Map(); // rows of layer 1 that read the same messages are one
  for (let level = 0; level < layers; level++) {
    all.forEach(({ counts, robots: own, entries, seen }, v) => {
      for (let c = level ? counts[level - 1] : 0; c < counts[level]; c++) {
        const name = layers > 1 ? String.fromCharCode(entries[c], ...seen[c].map((other) => entries[other]).sort((a, b) => a - b)) : firstView.length;
        if (!alike.has(name)) {
          alike.set(name, firstView.length);
          firstView.push(v);
          firstColumn.push(c);
        }
        merged[v * C + c] = BigInt(alike.get(name));
        if (level === 0) robots.push(own[c]);
        if (level > layers - 2) continue; // of no layer but the first
        number[v * C + c] = BigInt(view.length);
        view.push(v);
        column.push(c);
      }
    });
    if (level < layers - 1) rows.unshift(view.length);
  }
  rows.unshift(firstView.length);
  const told = new Float32Array(messages.length * width), places = new Float64Array(messages.length * 2);
  messages.forEach(({ message, x, y }, u) => { told.set(message, u * width); places[2 * u] = x; places[2 * u + 1] = y; });
  const whole = (data, ...dims) => ({ type: "int64", data: data instanceof BigInt64Array ? data : BigInt64Array.from(data, BigInt), dims });
  return {
    robots,
    feeds: {
      messages: { type: "float32", data: told, dims: [messages.length, width] },
      positions: { type: "float64", data: places, dims: [messages.length, 2] },
      entry: whole(entry, V, C),
      merged: whole(merged, V, C),
      number: whole(number, V, C),
      first_view: whole(firstView, firstView.length),
      first_column: whole(firstColumn, firstColumn.length),
      view: whole(view, view.length),
      column: whole(column, column.length),
      allowed: { type: "bool", data: allowed, dims: [V, M, C] },
      rows: whole(rows, layers),
      widths: whole(widths, layers + 1),
    },
  };
}
