"use strict";
// The page: text in, findings out, a link that carries the text. The checker is in a worker; see worker.js.
const SIGNS = { error: "✖", warning: "▲", info: "●" };
const WORDS = { error: "error", warning: "warning", info: "hint" };
const RANKS = ["error", "warning", "info"];
const MOST_CHARACTERS = 1_000_000;
const PATIENCE_MS = 1_000;
const BROWSERS = "use a browser of 2023 or later, such as Firefox 114, Chrome 110 or Safari 16.4";
const LONG_LINK = 8_000;
const $ = (id) => document.getElementById(id);
const began = performance.now();
const CHOICES = ["log", "release", "gpu", "number"];
const waiting = new Map();
let worker, script = null, packed = null, ready = false, shown = null;

function element(name, { text, ...properties } = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  if (text !== undefined) made.textContent = text;
  made.append(...children);
  return made;
}

function took(since) {
  const passed = performance.now() - since;
  return passed < 1000 ? `${Math.round(passed)} ms` : `${(passed / 1000).toFixed(1)} s`;
}

function say(text) { $("status").textContent = text; }

function problem(what, why = "", fix = "") {
  $("problem").hidden = !what;
  $("problem").replaceChildren(
    element("p", {}, element("b", { text: what })),
    ...[["why", why], ["fix", fix]].filter(([, text]) => text).map(([name, text]) => element("p", { text: `${name}: ${text}` })));
}

// ---- the worker
function call(message) {
  return new Promise((resolve, reject) => {
    const id = waiting.size ? Math.max(...waiting.keys()) + 1 : 1;
    waiting.set(id, { resolve, reject });
    worker.postMessage({ id, ...message });
  });
}

function giveUp(why) {
  for (const { reject } of waiting.values()) reject(new Error(why));
  waiting.clear();
}

// What the page carries: taken out of the document, and kept for a second start.
function taken() {
  const found = {};
  for (const part of document.querySelectorAll("script.packed")) {
    found[part.dataset.name] = part.textContent;
    part.remove();
  }
  return found;
}

function unpackedScript(word) {
  const bytes = Uint8Array.from(atob(word), (letter) => letter.charCodeAt(0));
  return new Response(through(new DecompressionStream("gzip"), bytes)).text();
}

async function start() {
  if (typeof DecompressionStream === "undefined" || typeof WebAssembly === "undefined") {
    throw new Error("this browser has no DecompressionStream or no WebAssembly");
  }
  packed ??= taken();
  script ??= await unpackedScript(packed["worker.js"]);
  delete packed["worker.js"];
  worker = new Worker(URL.createObjectURL(new Blob([script], { type: "text/javascript" })));
  worker.onmessage = ({ data }) => {
    const { resolve, reject } = waiting.get(data.id);
    waiting.delete(data.id);
    if ("failed" in data) reject(new Error(data.failed)); else resolve(data.value);
  };
  worker.onerror = (event) => giveUp(event.message || "the worker did not start");
  await call({ start: { packed, settings: JSON.parse($("settings").textContent) } });
}

// Ready for a text, or said why not.
async function begin() {
  const since = packed ? performance.now() : began;
  try {
    await start();
  } catch (error) {
    problem("the checker did not start", error.message, BROWSERS);
    say("");
    return;
  }
  ready = true;
  $("check").disabled = false;
  say(`Ready after ${took(since)}.`);
}

// ---- checking
function options() {
  return { log: $("log").value === "1", release: $("release").value, gpu: $("gpu").value, number: Number($("number").value) || null };
}

async function check() {
  if (!ready) return;
  const text = $("text").value.replaceAll("\r\n", "\n"), since = performance.now();
  say("Checking.");
  problem("");
  $("check").disabled = true;
  const patience = setTimeout(() => { $("stop").hidden = false; }, PATIENCE_MS);
  try {
    const answer = await call({ ask: { text, ...options() } });
    shown = { text, answer };
    show();
    say(`Checked in ${took(since)}.`);
  } catch (error) {
    if (!ready) return;
    $("result").hidden = true;
    problem("the checker failed on this text", error.message.trim().split("\n").pop(), "please report it with the text, and try a part of it");
    say("");
  } finally {
    clearTimeout(patience);
    $("stop").hidden = true;
    $("check").disabled = !ready;
  }
}

async function stop() {
  ready = false;
  worker.terminate();
  giveUp("stopped");
  say("Stopped. Loading the checker again.");
  await begin();
}

// ---- showing
function show() {
  const { text, answer } = shown;
  const refused = answer.refused;
  $("result").hidden = Boolean(refused);
  problem(refused?.what, refused?.why, refused?.fix);
  if (refused) return;
  const hidden = $("hints").checked ? 0 : answer.findings.filter((one) => one.severity === "info").length;
  const findings = answer.findings.filter((one) => one.severity !== "info" || $("hints").checked);
  $("summary").textContent = answer.summary;
  $("told").textContent = answer.release_told ? `The release is ${answer.release_told}.` : "";
  const more = hidden ? [`${hidden} hint${hidden > 1 ? "s" : ""} not shown`] : [];
  $("remarks").replaceChildren(...[...answer.remarks, ...more].map((text) => element("li", { text })));
  $("findings").replaceChildren(...findings.map((one, at) => finding(one, at, findings)));
  $("lines").replaceChildren(...annotated(text.split("\n"), findings));
}

function finding(one, at, all) {
  const repeated = one.fix.kind === "command" && all.slice(at + 1).some((other) => other.fix.text === one.fix.text);
  const jump = element("button", { type: "button", className: "jump", text: `line ${one.line}` });
  jump.onclick = () => go(`line-${one.line}`);
  const fix = element("div", { className: "fix" }, element("b", { text: "fix: " }));
  if (repeated) fix.append("with the other findings on this command, see below");
  else if (one.fix.kind === "command") {
    const copy = element("button", { type: "button", text: "Copy command" });
    copy.onclick = () => copyCommand(one.fix.text);
    fix.append(element("pre", {}, element("code", { text: one.fix.text })), copy);
  } else fix.append(one.fix.text);
  return element("li", { id: `finding-${at}`, className: one.severity, tabIndex: -1 },
    element("div", { className: "head" },
      element("span", { className: "level", text: `${SIGNS[one.severity]} ${WORDS[one.severity]}` }), jump,
      element("code", { text: one.rule })),
    element("p", { text: one.message }),
    ...(one.why ? [element("p", { text: `why: ${one.why}` })] : []),
    fix,
    element("p", { className: "source", text: `source: ${one.source}` }));
}

function annotated(lines, findings) {
  const at = new Map();
  findings.forEach((one, number) => at.set(one.line, [...(at.get(one.line) ?? []), { ...one, number }]));
  return lines.map((line, index) => row(line, index + 1, at.get(index + 1) ?? []));
}

function row(line, number, found) {
  const worst = RANKS.find((severity) => found.some((one) => one.severity === severity));
  const made = element("div", { id: `line-${number}`, className: worst ? `row marked ${worst}` : "row", tabIndex: -1 },
    element("span", { className: "place", text: String(number) }));
  if (worst) {
    const says = found.map((one) => `${WORDS[one.severity]}: ${one.message}`).join("; ");
    const sign = element("button", { type: "button", className: "sign", text: SIGNS[worst], title: says });
    sign.setAttribute("aria-label", `line ${number}: ${says}`);
    sign.onclick = () => go(`finding-${found[0].number}`);
    made.append(sign);
  } else made.append(element("span"));
  const code = element("span"), letters = Array.from(line);
  let done = 0;
  for (const column of [...new Set(found.map((one) => one.column - 1))].sort((a, b) => a - b)) {
    if (column < done) continue;
    let end = column;
    while (end < letters.length && letters[end].trim()) end++;
    code.append(letters.slice(done, column).join(""), element("mark", { text: letters.slice(column, end).join("") }));
    done = end;
  }
  code.append(letters.slice(done).join(""));
  made.append(code);
  return made;
}

function go(id) {
  const target = $(id);
  target.scrollIntoView({ block: "center" });
  target.focus({ preventScroll: true });
}

// ---- the link: text and choices in the fragment, which no browser sends to a server
function through(stream, bytes) {
  const writer = stream.writable.getWriter();
  writer.write(bytes).then(() => writer.close(), () => {});  // no Blob: WebKit reads none of a page that is a file
  return stream.readable;
}

async function fragment() {
  const packer = through(new CompressionStream("deflate-raw"), new TextEncoder().encode($("text").value));
  const bytes = new Uint8Array(await new Response(packer).arrayBuffer());
  let letters = "";
  for (const byte of bytes) letters += String.fromCharCode(byte);
  const chosen = new URLSearchParams();
  for (const name of CHOICES) if ($(name).value) chosen.set(name, $(name).value);
  chosen.set("text", btoa(letters).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, ""));
  return `#${chosen}`;
}

async function unpackedText(word) {
  const letters = atob(word.replaceAll("-", "+").replaceAll("_", "/"));
  const bytes = Uint8Array.from(letters, (letter) => letter.charCodeAt(0));
  const reader = through(new DecompressionStream("deflate-raw"), bytes).pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return text;
    text += value;
    if (text.length > MOST_CHARACTERS) throw new Error(`its text has more than ${MOST_CHARACTERS} characters`);
  }
}

async function fromLink() {
  const chosen = new URLSearchParams(location.hash.slice(1));
  if (!chosen.has("text")) return false;
  try {
    $("text").value = await unpackedText(chosen.get("text"));
  } catch (error) {
    problem("the link does not carry a text", error.message, "ask for the link again, or paste the text");
    return false;
  }
  for (const name of CHOICES) $(name).value = chosen.get(name) ?? "";
  return true;
}

async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
}

async function copyCommand(text) {
  say(await copied(text) ? "The command is in the clipboard." : "The browser refuses the clipboard: select the command.");
}

async function copyLink() {
  history.replaceState(null, "", await fragment());
  const also = await copied(location.href) ? " and in the clipboard" : "; the browser refuses the clipboard";
  const size = location.href.length;
  say(`The link is in the address bar${also}: ${size} characters${size > LONG_LINK ? ", more than many programs pass on" : ""}.`);
}

// ---- the controls
$("form").addEventListener("submit", (event) => { event.preventDefault(); check(); });
$("text").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); check(); }
});
$("text").addEventListener("paste", () => setTimeout(check));
$("text").addEventListener("input", () => { if (shown) say("Changed since it was checked."); });
for (const name of CHOICES) $(name).addEventListener("change", () => { if (shown) check(); });
$("hints").addEventListener("change", () => shown && show());
$("stop").addEventListener("click", stop);
$("link").addEventListener("click", copyLink);
$("example").addEventListener("click", () => {
  $("text").value = JSON.parse($("sample").textContent);
  for (const name of CHOICES) $(name).value = "";
  check();
});
$("clear").addEventListener("click", () => {
  $("text").value = "";
  $("result").hidden = true;
  shown = null;
  problem("");
  history.replaceState(null, "", "#");
  $("text").focus();
});
addEventListener("hashchange", async () => { if (await fromLink()) check(); });

(async () => {
  say("Loading the checker: some seconds, once for each opening of the page.");
  const linked = await fromLink();
  await begin();
  if (!ready) return;
  document.body.dataset.ready = ((performance.now() - began) / 1000).toFixed(2);
  if (linked || $("text").value) await check();
})();
