// Asks the built page's checker in node: `node check_page_in_node.mjs FILES CASES` prints one line of JSON a case.
// FILES: the folder of what the page carries. CASES: JSON, a list of the options of check_page.answer.answer.
import { readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";

const [folder, cases] = process.argv.slice(2);
const load = (name) => import(pathToFileURL(join(resolve(folder), name)));
const { startChecker } = await load("checker.js");
const { loadPyodide } = await load("pyodide.mjs");
const { default: createPyodideModule } = await load("pyodide.asm.mjs");
const { Parser, Language } = await load("web-tree-sitter.js");
const settings = JSON.parse(readFileSync(join(folder, "settings.json"), "utf8"));
const names = [...settings.zips, "web-tree-sitter.wasm", "tree-sitter-bash.wasm"];
const files = Object.fromEntries(names.map((name) => [name, new Uint8Array(readFileSync(join(folder, name)))]));
const ask = await startChecker(
  { loadPyodide, createPyodideModule, Parser, Language, files, settings, indexURL: resolve(folder) });
for (const options of JSON.parse(readFileSync(cases, "utf8"))) {
  let line;
  try {
    line = ask("answer", options);
  } catch (error) {
    line = { failed: String(error) };
  }
  process.stdout.write(`${JSON.stringify(line)}\n`);
}
