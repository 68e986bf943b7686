// The embedded data: zlib streams in base64, arrays stored as differences in time.

const KINDS = { uint8: Uint8Array, int16: Int16Array, uint16: Uint16Array, uint32: Uint32Array, float32: Float32Array };

async function unpack(entry) {
  const bytes = Uint8Array.from(atob(entry.data), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  const values = new KINDS[entry.dtype](await new Response(stream).arrayBuffer());
  if (entry.delta) {
    // Integers wrap here exactly as they wrapped when the differences were taken.
    const stride = entry.shape.slice(1).reduce((a, b) => a * b, 1);
    for (let i = stride; i < values.length; i++) values[i] += values[i - stride];
  }
  return values;
}

/** A recording as the painters use it: its facts, and its arrays under `arrays` (shapes under `shapes`). */
async function unpackRecording(packed, number) {
  const recording = { ...packed, number, arrays: {}, shapes: {} };
  for (const [name, entry] of Object.entries(packed.arrays)) {
    recording.arrays[name] = await unpack(entry);
    recording.shapes[name] = entry.shape;
  }
  return recording;
}

/** The frame at or before `time` (s), and how far on towards the next one (0..1). */
function locate(recording, time) {
  const last = recording.frames - 1;
  const exact = Math.min(Math.max(time / recording.dt, 0), last);
  const index = Math.floor(exact + 1e-6);
  return { index, fraction: Math.max(exact - index, 0) };
}

/** Any CSS colour (variables, light-dark, color-mix) as one that a canvas understands. */
const probe = document.createElement("span");
probe.hidden = true;
document.body.append(probe);
function resolveColour(text) {
  probe.style.color = text;
  return getComputedStyle(probe).color;
}

/** A colour that a canvas understands as [red, green, blue], 0..255. */
const mixed = new Map();
function channels(colour) {
  if (!mixed.has(colour)) {
    const c = Object.assign(document.createElement("canvas"), { width: 1, height: 1 }).getContext("2d");
    c.fillStyle = colour;
    c.fillRect(0, 0, 1, 1);
    mixed.set(colour, [...c.getImageData(0, 0, 1, 1).data.subarray(0, 3)]);
  }
  return mixed.get(colour);
}

/** Match a canvas's pixels to its size on the screen; the context then draws in CSS pixels. */
function fitCanvas(canvas) {
  const ratio = window.devicePixelRatio || 1;
  const width = canvas.clientWidth, height = canvas.clientHeight;
  const across = Math.round(width * ratio), down = Math.round(height * ratio);
  if (canvas.width !== across || canvas.height !== down) { canvas.width = across; canvas.height = down; }
  const context = canvas.getContext("2d");
  context.reset(); // no setting left by the last picture: the same state always gives the same pixels
  context.scale(ratio, ratio);
  return { context, width, height };
}
