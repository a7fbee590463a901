// Bundle the page's program and style into ../built, with the licences of what is in it and a bill of materials (CycloneDX) that
// the wheel carries in its .dist-info/sboms. `node build.mjs DIR` writes elsewhere.
import { build } from "esbuild";
import { readFile, writeFile, mkdir } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const out = process.argv[2] ?? join(here, "..", "built");
await mkdir(out, { recursive: true });

const options = { bundle: true, minify: true, target: "es2022", legalComments: "none", charset: "utf8", logLevel: "warning" };
const worker = await build({
  ...options, entryPoints: [join(here, "src/search-worker.js")], format: "iife", write: false,
});
const done = await build({
  ...options,
  entryPoints: [join(here, "src/main.jsx")],
  format: "iife",
  jsx: "automatic",
  jsxImportSource: "preact",
  define: { SEARCH_WORKER: JSON.stringify(worker.outputFiles[0].text) },
  metafile: true,
  outfile: join(out, "report.js"),
});
await build({ ...options, entryPoints: [join(here, "src/style.css")], outfile: join(out, "report.css") });

const script = await readFile(join(out, "report.js"), "utf8");
if (/<\/script|<!--/i.test(script)) throw new Error("the bundle would end the element that it stands in");

const packages = new Set(
  Object.keys(done.metafile.inputs).map((path) => path.match(/node_modules\/((?:@[^/]+\/)?[^/]+)/)?.[1]).filter(Boolean),
);
const lock = JSON.parse(await readFile(join(here, "package-lock.json"), "utf8")).packages;
const components = [];
let notice = "The report's page holds these libraries.\n";
for (const name of [...packages].sort()) {
  const folder = join(here, "node_modules", name);
  const { version, license } = JSON.parse(await readFile(join(folder, "package.json"), "utf8"));
  const text = await readFile(join(folder, "LICENSE"), "utf8");
  notice += `\n${"=".repeat(78)}\n${name} ${version} (${license})\n\n${text.trim()}\n`;
  const { integrity } = lock[`node_modules/${name}`];
  const purl = `pkg:npm/${name.replace("@", "%40")}@${version}`;
  const hashes = [{ alg: "SHA-512", content: Buffer.from(integrity.replace("sha512-", ""), "base64").toString("hex") }];
  components.push({
    type: "library", "bom-ref": purl, name, version, licenses: [{ license: { id: license } }], purl, hashes,
  });
}
await writeFile(join(out, "NOTICE.txt"), notice);
const bill = {
  bomFormat: "CycloneDX", specVersion: "1.6", version: 1,
  metadata: { component: { type: "application", "bom-ref": "curate-report", name: "curate-report" } },
  components,
};
await writeFile(join(out, "report.cdx.json"), `${JSON.stringify(bill, null, 2)}\n`);
