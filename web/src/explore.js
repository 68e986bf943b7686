// Exploration, the same numbers as src/mast_swarm/explore.py: a heading of its own fills the speed that a policy leaves open.

import { combine, uniform } from "./chance.js";

const knots = new Map();
function angleOf(seed, knot, robot) {
  const name = `${seed},${knot},${robot}`;
  let angle = knots.get(name);
  if (angle === undefined) {
    angle = Math.fround(uniform(combine(BigInt.asUintN(64, BigInt(seed)), knot, robot))) * Math.fround(2 * Math.PI);
    if (knots.size > 20000) knots.clear();
    knots.set(name, angle);
  }
  return angle;
}

function unit([x, y]) {
  const length = Math.max(Math.hypot(x, y), 1e-3);
  return [x / length, y / length];
}

/** A unit vector that turns slowly at random; time in units of the exploration time. */
export function heading(seed, robot, time) {
  const knot = Math.floor(time), share = time - knot, smooth = share * share * (3 - 2 * share);
  const here = angleOf(seed, knot, robot), there = angleOf(seed, knot + 1, robot);
  return unit([
    Math.cos(here) + (Math.cos(there) - Math.cos(here)) * smooth,
    Math.sin(here) + (Math.sin(there) - Math.sin(here)) * smooth,
  ]);
}

const EVERY = 10; // seconds between two places that a robot remembers

/** Where each robot has been: its last `places` places, one every EVERY seconds. */
export class Trail {
  constructor(places, spread, dt) {
    Object.assign(this, { places, spread, every: Math.max(1, Math.round(EVERY / dt)), begun: null, last: null });
    this.past = []; // by robot: [x, y, x, y, ...]
  }

  /** What pushes each robot away from where it has been, [n * 2]; instant: control periods since any start. */
  away(positions, instant) {
    this.begun ??= instant;
    const n = positions.length / 2, push = new Float64Array(2 * n);
    while (this.past.length < n) this.past.push([]);
    if ((instant - this.begun) % this.every === 0 && this.last !== instant) {
      this.last = instant;
      this.past.forEach((past, i) => { past.push(positions[2 * i], positions[2 * i + 1]); past.splice(0, past.length - 2 * this.places); });
    }
    for (let i = 0; i < n; i++) {
      for (let k = 0; k < this.past[i].length; k += 2) {
        const x = positions[2 * i] - this.past[i][k], y = positions[2 * i + 1] - this.past[i][k + 1], distance = Math.hypot(x, y);
        const strength = Math.exp(-distance / this.spread) / Math.max(distance, 1);
        push[2 * i] += x * strength;
        push[2 * i + 1] += y * strength;
      }
    }
    return push;
  }

  remap(kept) { this.past = kept.map((i) => (i < 0 ? [] : this.past[i] ?? [])); }
}

/** A heading turned by a push: little by a weak one, and by a strong one nearly to where it points; most: of any push. */
export function turned([hx, hy], [x, y], most) {
  const strength = 1 + Math.hypot(x, y);
  return unit([hx + (most * x) / strength, hy + (most * y) / strength]);
}

/** A heading that turns towards the landmark (relative, metres): not at all up to half the reach, wholly beyond it. */
export function leashed([hx, hy], [x, y], reach) {
  const distance = Math.hypot(x, y), pull = Math.min(Math.max((2 * distance) / reach - 1, 0), 1), safe = Math.max(distance, 1e-6);
  return unit([hx + pull * (x / safe - hx), hy + pull * (y / safe - hy)]);
}

/** The command from a mean command, the speed that is expected of it and a heading. */
export function fill(x, y, speed, [hx, hy]) {
  const bounded = Math.min(Math.max(speed, 0), 1), gap = bounded * Math.max(bounded - Math.hypot(x, y), 0);
  return [x + gap * hx, y + gap * hy];
}
