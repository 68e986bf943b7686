// What the page says, and what it starts with.

import { SCENARIOS } from "./navigation.js";
import { DENSITIES } from "./coverage.js";

const scenarios = (given) => Object.entries(given).map(([name, [words]]) => [name, words]);

export const TASKS = {
  navigation: {
    label: "Navigation",
    metric: "Goals reached",
    format: (share) => `${Math.round(100 * share)} %`,
    robots: 32, most: 150, dt: 1, delay: 1, radius: 250,
    scenarios: scenarios(SCENARIOS),
    first: "Press play. Drag robots and goals at any time.",
    learned: {
      "navigation/mast-m": { label: "MAST-M", colour: "#0072b2", about: "Every robot runs the transformer alone, on the messages that have reached it." },
      "navigation/mast-l": { label: "MAST-L", colour: "#cc79a7", about: "The same, trained without the mask of connected components." },
    },
    controllers: [
      { key: "dhba", label: "DHBA-8", colour: "#e69f00", about: "Every robot solves the assignment of all that is seen within 8 hops, without delay. Robots left over stand still." },
      { key: "lsap", label: "LSAP", colour: "#009e73", about: "One mind that sees every robot and every goal: what no team on messages can beat for long." },
    ],
  },
  coverage: {
    label: "Coverage",
    metric: "Cost, share of the start",
    format: (cost) => cost.toFixed(2),
    robots: 16, most: 40, dt: 1, delay: 0, radius: 256,
    scenarios: scenarios(DENSITIES),
    first: "Press play, and paint what matters with the brush.",
    learned: {
      "coverage/mast-m": { label: "MAST-M", colour: "#0072b2", about: "Every robot runs the transformer alone, on the messages that have reached it and the map it has seen itself." },
    },
    controllers: [
      { key: "d-cvt", label: "D-CVT", colour: "#e69f00", about: "Every robot goes to the centroid of its Voronoi cell, by what it has seen itself." },
      { key: "c-cvt", label: "C-CVT", colour: "#cc79a7", about: "The same, by what any robot has seen." },
      { key: "clairvoyant", label: "Clairvoyant", colour: "#009e73", about: "The same, by the whole truth." },
    ],
  },
};

const icon = {
  move: '<path d="M8 1.5v13M1.5 8h13M8 1.5 6 3.5M8 1.5l2 2M8 14.5l-2-2M8 14.5l2-2M1.5 8l2-2M1.5 8l2 2M14.5 8l-2-2M14.5 8l-2 2"/>',
  robot: '<circle cx="6.5" cy="9" r="4.5"/><path d="M12.5 1.5v5M10 4h5"/>',
  goal: '<path d="M3 6.5l6 6M9 6.5l-6 6M12.5 1.5v5M10 4h5"/>',
  kill: '<circle cx="8" cy="8" r="6"/><path d="M5.5 5.5l5 5M10.5 5.5l-5 5"/>',
  cut: '<circle cx="4" cy="12" r="2"/><circle cx="12" cy="12" r="2"/><path d="M5 10.5 11 2M11 10.5 5 2"/>',
  erase: '<path d="M3 4.5h10M6.5 4.5V2.5h3v2M4.5 4.5l.6 9h5.8l.6-9"/>',
  paint: '<path d="M13.5 2.5 7 9M7 9c-2 0-3 1.2-3 2.6 0 1-.7 1.6-1.7 1.9 3 .6 6.2-.3 6.2-2.8C8.500 9.700 7.800 9 7 9z"/>',
  wipe: '<path d="M6 13.500h8M9.500 2.500l4.500 4.500-6.500 6.500H5L2.500 11zM6 6l4.500 4.500"/>',
};

export const TOOLS = [
  { key: "move", label: "Move", letter: "m", icon: icon.move, cursor: "grab", mouse: "Drag robots and goals. Click a robot to keep what it knows in view.", touch: "Drag robots and goals. Tap a robot to see what it knows." },
  { key: "robot", label: "Robot", letter: "a", icon: icon.robot, cursor: "copy", mouse: "Click to add a robot.", touch: "Tap to add a robot." },
  { key: "goal", label: "Goal", letter: "g", icon: icon.goal, cursor: "copy", only: "navigation", mouse: "Click to add a goal.", touch: "Tap to add a goal." },
  { key: "paint", label: "Paint", letter: "p", icon: icon.paint, cursor: "crosshair", only: "coverage", mouse: "Paint what matters. Robots find out when they get there.", touch: "Paint what matters with a finger. Robots find out when they get there." },
  { key: "wipe", label: "Wipe", letter: "w", icon: icon.wipe, cursor: "crosshair", only: "coverage", mouse: "Wipe away what matters.", touch: "Wipe away what matters." },
  { key: "kill", label: "Kill", letter: "k", icon: icon.kill, cursor: "pointer", mouse: "Click a robot: it stands still and is silent. Click again to revive it.", touch: "Tap a robot: it stands still and is silent. Tap again to revive it." },
  { key: "cut", label: "Cut", letter: "c", icon: icon.cut, cursor: "crosshair", mouse: "Click a link to cut it. Click it again to mend it.", touch: "Tap a link to cut it. Tap it again to mend it." },
  { key: "erase", label: "Remove", letter: "e", icon: icon.erase, cursor: "pointer", mouse: "Click a robot or a goal to remove it.", touch: "Tap a robot or a goal to remove it." },
];

export const HELP = `
<p>A team of robots, and nobody is in charge. Each robot sees only what is near, hears only its neighbours, passes on what it has heard, and decides alone. The network that decides runs here, in your browser.</p>
<ul>
<li><b>Point at a robot</b> to see what it knows: grey robots it has never heard of, amber news is old, and the hollow dots are where it believes others to be. Pink lines are its attention.</li>
<li><b>Raise the delay</b>, lose messages, cut links, kill robots: the team goes on with what it has.</li>
<li><b>Compare</b>: let it run, choose another policy, press ↺. Earlier runs stay in the curve.</li>
</ul>
<p class="keys"><span><kbd>space</kbd> play</span><span><kbd>.</kbd> step</span><span><kbd>r</kbd> again</span><span><kbd>n</kbd> new start</span><span><kbd>[</kbd> <kbd>]</kbd> speed</span><span><kbd>1</kbd>–<kbd>4</kbd> policy</span><span><kbd>←</kbd> <kbd>→</kbd> robot (in the picture)</span><span><kbd>x</kbd> kill it</span><span><kbd>del</kbd> remove it</span><span><kbd>m</kbd> <kbd>a</kbd> <kbd>g</kbd> <kbd>k</kbd> <kbd>c</kbd> <kbd>e</kbd> tools</span><span><kbd>esc</kbd> let go</span></p>`;
