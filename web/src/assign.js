// The linear sum assignment problem by shortest augmenting paths, rectangular, in float64.

/** Least total squared distance: for rows of points [n, 2] the columns [m, 2] that they get, -1 for none. */
export function assign(rows, columns) {
  const n = rows.length / 2, m = columns.length / 2;
  if (n > m) {
    const partner = assign(columns, rows), found = new Int32Array(n).fill(-1);
    partner.forEach((row, column) => { if (row >= 0) found[row] = column; });
    return found;
  }
  const columnOf = new Int32Array(n).fill(-1), rowOf = new Int32Array(m).fill(-1);
  const u = new Float64Array(n), v = new Float64Array(m);
  const shortest = new Float64Array(m), previous = new Int32Array(m), done = new Uint8Array(m);
  const reached = new Int32Array(m);
  const cost = (i, j) => {
    const x = rows[2 * i] - columns[2 * j], y = rows[2 * i + 1] - columns[2 * j + 1];
    return x * x + y * y;
  };
  for (let start = 0; start < n; start++) {
    shortest.fill(Infinity);
    done.fill(0);
    let row = start, least = 0, sink = -1, count = 0;
    while (sink < 0) {
      let next = -1, lowest = Infinity;
      for (let j = 0; j < m; j++) {
        if (done[j]) continue;
        const path = least + cost(row, j) - u[row] - v[j];
        if (path < shortest[j]) { shortest[j] = path; previous[j] = row; }
        if (shortest[j] < lowest || (shortest[j] === lowest && rowOf[j] < 0)) { lowest = shortest[j]; next = j; }
      }
      least = lowest;
      done[next] = 1;
      reached[count++] = next;
      if (rowOf[next] < 0) sink = next; else row = rowOf[next];
    }
    u[start] += least;
    for (let r = 0; r < count; r++) {
      const j = reached[r];
      if (j !== sink) u[rowOf[j]] += least - shortest[j];
      v[j] -= least - shortest[j];
    }
    for (let j = sink; ;) {
      const i = previous[j], before = columnOf[i];
      rowOf[j] = i;
      columnOf[i] = j;
      if (i === start) break;
      j = before;
    }
  }
  return columnOf;
}
