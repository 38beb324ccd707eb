// Pyodide with the checker in it, and bash's grammar beside it. Runs in the page's worker, and in node for the test.

// The tree of a text as numbers, six a node: type, flags, start, end, parent (-1: none), field.
function spelled(tree) {
  const types = new Map(), fields = new Map(), numbers = [];
  const place = (known, word) => {
    if (!known.has(word)) known.set(word, known.size);
    return known.get(word);
  };
  const cursor = tree.walk();
  const walk = (parent, above) => {
    const at = numbers.length / 6;
    const error = above && cursor.currentNode.hasError;  // only what is in an error has one
    numbers.push(
      place(types, cursor.nodeType),
      (cursor.nodeIsNamed ? 1 : 0) | (error ? 2 : 0) | (cursor.nodeIsMissing ? 4 : 0),
      cursor.startIndex, cursor.endIndex, parent, place(fields, cursor.currentFieldName ?? ""));
    return [at, error];
  };
  const stack = [];
  let [parent, error] = [-1, true];
  for (;;) {
    const found = walk(parent, error);
    if (cursor.gotoFirstChild()) {
      stack.push([parent, error]);
      [parent, error] = found;
      continue;
    }
    while (!cursor.gotoNextSibling()) {
      if (!stack.length) {
        cursor.delete();
        return { numbers: Int32Array.from(numbers), types: [...types.keys()], fields: [...fields.keys()] };
      }
      cursor.gotoParent();
      [parent, error] = stack.pop();
    }
  }
}

// parts: loadPyodide, createPyodideModule, Parser, Language; indexURL; files: name -> Uint8Array; settings.
// Returns ask(name, options): what the function of check_page.answer returns, as JavaScript's values.
export async function startChecker(parts) {
  await parts.Parser.init({ wasmBinary: parts.files["web-tree-sitter.wasm"], locateFile: (name) => name });
  const parser = new parts.Parser();
  parser.setLanguage(await parts.Language.load(parts.files["tree-sitter-bash.wasm"]));
  const python = await parts.loadPyodide({
    indexURL: parts.indexURL,
    createPyodideModule: parts.createPyodideModule,
    lockFileContents: { info: parts.settings.lockInfo, packages: {} },
    packageBaseUrl: parts.indexURL,
  });
  python.registerJsModule("bash_grammar", {
    parse: (text) => {
      const tree = parser.parse(text);
      try {
        return spelled(tree);
      } finally {
        tree.delete();
      }
    },
  });
  for (const name of parts.settings.zips) python.unpackArchive(parts.files[name], "zip", { extractDir: "/checker" });
  python.runPython("import sys; sys.path.insert(0, '/checker')");
  const ask = python.runPython(`
import json
from check_page import answer
lambda name, options: json.dumps(getattr(answer, name)(**json.loads(options)))
`);
  return (name, options = {}) => JSON.parse(ask(name, JSON.stringify(options)));
}
