// Chance without state, the same numbers as src/mast_swarm/chance.py: splitmix64 over integers that name an event.

const MASK = (1n << 64n) - 1n;
const GOLDEN = 0x9e3779b97f4a7c15n;

/** The finaliser of splitmix64. */
export function mix(x) {
  x = ((x ^ (x >> 30n)) * 0xbf58476d1ce4e5b9n) & MASK;
  x = ((x ^ (x >> 27n)) * 0x94d049bb133111ebn) & MASK;
  return x ^ (x >> 31n);
}

/** What an integer does to a key; the same for every key, so it can be kept. */
const effects = new Map();
function effect(counter) {
  let found = effects.get(counter);
  if (found === undefined) {
    found = mix((BigInt.asUintN(64, BigInt(counter)) * GOLDEN) & MASK);
    if (effects.size > 50000) effects.clear();
    effects.set(counter, found);
  }
  return found;
}

/** A new key from a key (BigInt) and integers that name an event. */
export function combine(key, ...counters) {
  for (const counter of counters) key = mix((key + GOLDEN + effect(counter)) & MASK);
  return key;
}

/** The number in [0, 1) of a key. */
export const uniform = (key) => Number(key >> 11n) * 2 ** -53;

/** The key of an environment from the channel's seed and its own. */
export const keyOf = (seed, environment) => combine(mix(BigInt.asUintN(64, BigInt(seed))), environment);

/** Numbers in [0, 1) one after the other, for start states. */
export function stream(seed) {
  let count = 0;
  const key = mix(BigInt.asUintN(64, BigInt(seed)));
  return () => uniform(combine(key, count++));
}
