// Builds the console.
//   node build.mjs            writes dist/
//   node build.mjs --verify   fails when dist/ is not what the sources give
//   node build.mjs --test     runs the tests of the pure functions
import { spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const root = path.dirname(fileURLToPath(import.meta.url));
const dist = path.join(root, "dist");
// What is copied as it is.
const PAGES = ["index.html", "icon.svg"];
// What the bundle holds of others, with their licences: they go into its first lines.
const LIBRARIES = ["preact", "uplot"];

function licences() {
  const texts = LIBRARIES.map((name) => {
    const { version } = JSON.parse(readFileSync(path.join(root, "node_modules", name, "package.json"), "utf8"));
    const text = readFileSync(path.join(root, "node_modules", name, "LICENSE"), "utf8").trim();
    return `${name} ${version}\n\n${text}`;
  });
  return `/*! The console of Forebay, licensed under the Apache License, version 2.0. It contains:\n\n${texts.join("\n\n")}\n*/`;
}

const common = { absWorkingDir: root, bundle: true, jsx: "automatic", jsxImportSource: "preact", target: "es2022", write: false };

/** The files of dist/, by name. */
async function bundle() {
  const banner = licences();
  const result = await build({
    ...common,
    entryPoints: { app: "src/main.tsx" },
    outdir: "dist",
    minify: true,
    charset: "utf8",
    legalComments: "none",
    banner: { js: banner, css: "/*! The console of Forebay; licences are in app.js. */" },
  });
  const files = new Map(result.outputFiles.map((file) => [path.basename(file.path), Buffer.from(file.contents)]));
  for (const name of PAGES) files.set(name, readFileSync(path.join(root, "src", name)));
  return files;
}

function differences(files) {
  const present = new Set([...readdirSync(dist), ...files.keys()]);
  const read = (name) => (readdirSync(dist).includes(name) ? readFileSync(path.join(dist, name)) : undefined);
  return [...present].filter((name) => !files.get(name) || !read(name)?.equals(files.get(name)));
}

function write(files) {
  rmSync(dist, { recursive: true, force: true });
  mkdirSync(dist);
  for (const [name, bytes] of files) writeFileSync(path.join(dist, name), bytes);
}

async function test() {
  const directory = mkdtempSync(path.join(tmpdir(), "console-test-"));
  const entryPoints = readdirSync(path.join(root, "src")).filter((name) => name.endsWith(".test.ts"));
  await build({
    ...common,
    entryPoints: entryPoints.map((name) => `src/${name}`),
    outdir: directory,
    outExtension: { ".js": ".mjs" },
    format: "esm",
    platform: "node",
    write: true,
  });
  const files = readdirSync(directory).map((name) => path.join(directory, name));
  const { status } = spawnSync(process.execPath, ["--test", ...files], { stdio: "inherit" });
  rmSync(directory, { recursive: true });
  process.exitCode = status ?? 1;
}

export { bundle, write };

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  if (process.argv.includes("--test")) {
    await test();
  } else if (process.argv.includes("--verify")) {
    const different = differences(await bundle());
    if (different.length > 0) {
      console.error(`dist/ is not what the sources give (${different.sort().join(", ")}): run "npm run build" in console/`);
      process.exitCode = 1;
    }
  } else {
    write(await bundle());
  }
}
