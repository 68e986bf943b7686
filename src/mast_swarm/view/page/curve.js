// The curve of the task's metric: one line per policy, what has been played in full colour, the rest faint.

const CURVE_MARGIN = { left: 30, right: 10, top: 8, bottom: 32 }; // left: at least, see `room`
const CURVE_FONT = "11px system-ui, sans-serif";

function niceStep(span, count) {
  const raw = span / count;
  const power = 10 ** Math.floor(Math.log10(raw));
  return [1, 2, 5, 10].map((m) => m * power).find((s) => s >= raw * 0.999);
}

class Curve {
  constructor(canvas, recordings, duration, onScrub) {
    Object.assign(this, { canvas, recordings, duration });
    // The scale comes from the data, and from the limits that the metric has.
    const values = recordings.map((r) => r.arrays[r.metric.name]);
    const least = Math.min(...values.map((v) => v.reduce((a, b) => Math.min(a, b)))), [low, high] = recordings[0].metric.limits;
    this.bottom = Math.min(low ?? 0, least);
    const most = Math.max(...values.map((v) => v.reduce((a, b) => Math.max(a, b))), high ?? -Infinity);
    this.top = most > this.bottom ? most : this.bottom + 1;
    // Lines across, every second one with its number; the margin has room for the longest of these.
    this.fine = niceStep(this.top - this.bottom, 4) / 2;
    const digits = Math.max(0, Math.ceil(-Math.log10(2 * this.fine) - 1e-9)), c = canvas.getContext("2d");
    this.levels = [];
    for (let n = Math.ceil(this.bottom / this.fine - 1e-4); n * this.fine <= this.top + 1e-4 * (this.top - this.bottom); n++) {
      this.levels.push({ value: n * this.fine, text: n % 2 === 0 ? (n * this.fine).toFixed(digits) : "" });
    }
    c.font = CURVE_FONT;
    this.left = Math.max(CURVE_MARGIN.left, 8 + Math.ceil(Math.max(...this.levels.map((level) => c.measureText(level.text).width))));
    const scrub = (event) => {
      const box = canvas.getBoundingClientRect();
      const { left } = this, { right } = CURVE_MARGIN;
      const share = (event.clientX - box.left - left) / (box.width - left - right);
      onScrub(Math.min(Math.max(share, 0), 1) * duration);
    };
    canvas.addEventListener("pointerdown", (event) => { canvas.setPointerCapture(event.pointerId); scrub(event); });
    canvas.addEventListener("pointermove", (event) => { if (event.buttons) scrub(event); });
  }

  paint(time, colours) {
    const { context: c, width, height } = fitCanvas(this.canvas);
    const { left } = this, { right, top, bottom } = CURVE_MARGIN;
    const x = (t) => left + (t / this.duration) * (width - left - right);
    const y = (v) => top + (1 - (v - this.bottom) / (this.top - this.bottom)) * (height - top - bottom);
    this.axes(c, x, y, colours, height);
    for (const recording of this.recordings) {
      const { index } = locate(recording, time);
      c.strokeStyle = colours.policies[recording.number];
      c.lineWidth = 2;
      c.lineJoin = "round";
      c.globalAlpha = 0.28;
      this.line(c, x, y, recording, index, recording.frames - 1);
      c.globalAlpha = 1;
      this.line(c, x, y, recording, 0, index, Math.min(time, (recording.frames - 1) * recording.dt));
    }
    c.strokeStyle = colours.soft;
    c.lineWidth = 1;
    c.beginPath(); c.moveTo(x(time), y(this.bottom)); c.lineTo(x(time), y(this.top)); c.stroke();
    for (const recording of this.recordings) {
      c.fillStyle = colours.policies[recording.number];
      c.strokeStyle = colours.card;
      c.lineWidth = 1.5;
      c.beginPath(); c.arc(x(time), y(valueAt(recording, time)), 4.5, 0, 2 * Math.PI); c.fill(); c.stroke();
    }
  }

  axes(c, x, y, colours, height) {
    c.font = CURVE_FONT;
    c.fillStyle = colours.soft;
    c.strokeStyle = colours.line;
    c.lineWidth = 1;
    c.textAlign = "right"; c.textBaseline = "middle";
    for (const { value, text } of this.levels) {
      c.beginPath(); c.moveTo(x(0), y(value)); c.lineTo(x(this.duration), y(value)); c.stroke();
      if (text) c.fillText(text, x(0) - 6, y(value));
    }
    c.textAlign = "center"; c.textBaseline = "top";
    const step = niceStep(this.duration, 4);
    for (let t = 0; t <= this.duration * 1.0001; t += step) c.fillText(String(+t.toPrecision(6)), x(t), y(this.bottom) + 4);
    c.fillText("time (s)", x(this.duration / 2), height - 12);
  }

  line(c, x, y, recording, first, last, until) {
    const values = recording.arrays[recording.metric.name];
    c.beginPath();
    c.moveTo(x(first * recording.dt), y(values[first]));
    for (let i = first + 1; i <= last; i++) c.lineTo(x(i * recording.dt), y(values[i]));
    if (until !== undefined) c.lineTo(x(until), y(valueAt(recording, until)));
    c.stroke();
  }
}

/** The metric at any time, straight between frames, so that marker and line agree. */
function valueAt(recording, time) {
  const { index, fraction } = locate(recording, time);
  const values = recording.arrays[recording.metric.name];
  const next = Math.min(index + 1, recording.frames - 1);
  return values[index] + fraction * (values[next] - values[index]);
}
