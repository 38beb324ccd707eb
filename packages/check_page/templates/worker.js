// The page's worker: unpacks what the page carries, starts the checker, answers. It cannot reach a network.
const INSIDE = "https://inside.invalid/";  // Pyodide asks for its files by address; they are answered from the page

async function unpacked(text) {
  const letters = atob(text), bytes = new Uint8Array(letters.length);
  for (let i = 0; i < letters.length; i++) bytes[i] = letters.charCodeAt(i);
  const stream = new DecompressionStream("gzip"), writer = stream.writable.getWriter();
  writer.write(bytes).then(() => writer.close(), () => {});  // no Blob: WebKit reads none of a page that is a file
  return new Uint8Array(await new Response(stream.readable).arrayBuffer());
}

// A classic worker, because Chromium starts no module worker from a page that is a file; `modules` stands in front of
// this, because WebKit imports none there. Pyodide wants a module worker, which it knows by importScripts failing;
// nothing here needs it.
self.importScripts = () => { throw new TypeError("the page loads no scripts"); };

let ask;

async function start({ packed, settings }) {
  const names = Object.keys(packed);
  const contents = await Promise.all(names.map((name) => unpacked(packed[name])));
  const files = Object.fromEntries(names.map((name, at) => [name, contents[at]]));
  self.fetch = async (address) => {
    const url = String(address.url ?? address);
    const found = url.startsWith(INSIDE) ? files[url.slice(INSIDE.length)] : undefined;
    if (!found) throw new TypeError(`${url} is not in the page, and the page asks no network`);
    const type = url.endsWith(".wasm") ? "application/wasm" : "application/octet-stream";
    return new Response(found, { headers: { "Content-Type": type } });
  };
  const { startChecker } = modules["checker.js"]();
  const { loadPyodide } = modules["pyodide.mjs"]();
  const { default: createPyodideModule } = modules["pyodide.asm.mjs"]();
  const { Parser, Language } = modules["web-tree-sitter.js"]();
  ask = await startChecker({ loadPyodide, createPyodideModule, Parser, Language, files, settings, indexURL: INSIDE });
  ask("answer", { text: "trtllm-build --checkpoint_dir ckpt --output_dir engine" });  // reads the rules, once
}

self.onmessage = async ({ data }) => {
  try {
    const value = data.start ? await start(data.start) : ask("answer", data.ask);
    self.postMessage({ id: data.id, value });
  } catch (error) {
    self.postMessage({ id: data.id, failed: String(error?.message ?? error) });
  }
};
