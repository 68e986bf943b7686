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
