// The curve of the metric: the run that goes on, in the colours of who decided when, and earlier runs behind it.

import { fit } from "./paint.js";

const MARGIN = { left: 34, right: 8, top: 8, bottom: 20 };

export function niceStep(span, count) {
  const raw = span / count, power = 10 ** Math.floor(Math.log10(raw));
  return [1, 2, 5, 10].map((m) => m * power).find((s) => s >= raw * 0.999);
}

/** A colour as it reads well on this page: lifted where the page is dark. */
export function lifted(colour, colours) {
  const numbers = (text) => (text.startsWith("#") ? [1, 3, 5].map((at) => parseInt(text.slice(at, at + 2), 16)) : text.match(/[\d.]+/g).map(Number));
  const share = numbers(colours.world)[1] < 128 ? 0.35 : 0;
  return `rgb(${numbers(colour).slice(0, 3).map((value) => Math.round(value + share * (255 - value))).join(" ")})`;
}

/** runs: [{points: [{t, value, colour}], faded}], the present one last; until: the time to show the present one up to. */
export function drawCurve(canvas, runs, until, colours) {
  const { context: c, width, height } = fit(canvas), { left, right, top, bottom } = MARGIN;
  const last = Math.max(20, until, ...runs.map((run) => run.points.at(-1)?.t ?? 0)) * 1.02;
  const most = Math.max(1, ...runs.flatMap((run) => run.points.map((point) => point.value)));
  const x = (t) => left + (t / last) * (width - left - right), y = (v) => top + (1 - v / most) * (height - top - bottom);
  c.font = "11px system-ui, sans-serif";
  c.fillStyle = colours.soft;
  c.strokeStyle = colours.line;
  c.lineWidth = 1;
  c.textAlign = "right"; c.textBaseline = "middle";
  for (const share of [0, 0.5, 1]) {
    c.beginPath(); c.moveTo(left, y(share * most)); c.lineTo(width - right, y(share * most)); c.stroke();
    c.fillText((share * most).toFixed(most > 1 ? 1 : share === 0.5 ? 1 : 0), left - 6, y(share * most));
  }
  c.textAlign = "center"; c.textBaseline = "top";
  for (let t = 0, step = niceStep(last, 4); t <= last; t += step) c.fillText(`${+t.toPrecision(6)} s`, Math.max(x(t), left + 4), y(0) + 5);
  c.lineJoin = "round";
  for (const run of runs) {
    c.globalAlpha = run.faded ? 0.35 : 1;
    c.lineWidth = run.faded ? 1.5 : 2.2;
    let before = null;
    for (const point of run.points) {
      if (!run.faded && point.t > until + 1e-9) break;
      if (before) {
        c.strokeStyle = lifted(point.colour, colours);
        c.beginPath(); c.moveTo(x(before.t), y(before.value)); c.lineTo(x(point.t), y(point.value)); c.stroke();
      }
      before = point;
    }
    if (!run.faded && before) {
      c.fillStyle = lifted(before.colour, colours);
      c.beginPath(); c.arc(x(before.t), y(before.value), 4, 0, 2 * Math.PI); c.fill();
    }
  }
  c.globalAlpha = 1;
}
