// Builds the static folder: node build.mjs FOLDER. Policies are put beside it by `python -m mast_swarm.play.policies`.

import { copyFile, mkdir, readFile, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const folder = process.argv[2];
if (!folder) throw new Error("usage: node build.mjs FOLDER");
await mkdir(folder, { recursive: true });

const shared = { bundle: true, minify: true, format: "iife", target: "es2022", legalComments: "none", logLevel: "warning" };
// The worker travels inside the page's script: from file:// a browser starts no worker that is a file of its own.
const worker = await build({ ...shared, entryPoints: [join(here, "src/worker.js")], write: false });
const carried = {
  name: "worker",
  setup(made) {
    made.onResolve({ filter: /^worker:text$/ }, () => ({ path: "worker", namespace: "worker" }));
    made.onLoad({ filter: /.*/, namespace: "worker" }, () => ({ contents: worker.outputFiles[0].text, loader: "text" }));
  },
};
await build({ ...shared, entryPoints: [join(here, "src/app.js")], outfile: join(folder, "app.js"), plugins: [carried] });
await build({ ...shared, entryPoints: [join(here, "src/style.css")], outfile: join(folder, "style.css") });
await writeFile(join(folder, "index.html"), await readFile(join(here, "src/index.html")));

const runtime = join(here, "node_modules/onnxruntime-web");
for (const name of ["ort-wasm-simd-threaded.mjs", "ort-wasm-simd-threaded.wasm"]) await copyFile(join(runtime, "dist", name), join(folder, name));
const { version } = JSON.parse(await readFile(join(runtime, "package.json")));
await writeFile(
  join(folder, "THIRD-PARTY.txt"),
  `ort-wasm-simd-threaded.* and a part of app.js are onnxruntime-web ${version}, https://github.com/microsoft/onnxruntime

${await readFile(join(here, "onnxruntime-license.txt"), "utf8")}`,
);
