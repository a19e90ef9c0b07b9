"use strict";
// The page. Text of the cluster is set as text, never as markup. Amounts come in base units: thousandths of CPUs, bytes.

const state = {
  nodes: new Map(), // by name
  zones: 1, // most zones of a node so far
  order: null, // shown nodes, sorted; null: to be made anew
  waiting: { number: 0, pods: [] },
  capacity: null, // the last answer: { shape, fits: Map(node, number), ... }
  source: "live",
  selected: 0,
};
const main = document.getElementById("main");
const answer = document.getElementById("answer");
const connection = document.getElementById("connection");
const shapeInput = document.getElementById("shape");
const embedded = document.getElementById("data");
const NO_REPORT = "no report";
const ROWS = 200; // rows of a table before "show more"

// === small things ===

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

function amount(resource, value) {
  if (resource === "cpu") return (value / 1000).toLocaleString("en", { maximumFractionDigits: 3 });
  if (resource === "memory" || resource.startsWith("hugepages-")) {
    const units = ["", "Ki", "Mi", "Gi", "Ti"];
    let unit = 0;
    while (Math.abs(value) >= 1024 && unit < units.length - 1) { value /= 1024; unit += 1; }
    return `${value.toLocaleString("en", { maximumFractionDigits: 1 })}${units[unit]}`;
  }
  return value.toLocaleString("en");
}

function plural(number, word) {
  return `${number.toLocaleString("en")} ${word}${number === 1 ? "" : "s"}`;
}

function color(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function hue(index) {
  // The golden angle keeps neighbours apart.
  return `hsl(${Math.round((index * 137.5) % 360)} 62% 52%)`;
}

// === what is known of a node ===

function freeOf(node, resource) {
  const at = node.resources.indexOf(resource);
  return at < 0 ? [] : node.zones.map((zone) => Math.max(0, zone.free[at]));
}

function allocatableOf(node, resource) {
  const at = node.resources.indexOf(resource);
  return at < 0 ? [] : node.zones.map((zone) => zone.allocatable[at]);
}

function fitsOn(node) {
  return state.capacity ? state.capacity.fits.get(node.name) ?? 0 : null;
}

// Sums over the zones of a node, without lists: thousands of nodes are counted twice a second. Stranded is what no pod of
// the asked shape can use; without a shape, what is free beside the best zone.
function totals(node, resource) {
  const at = node.resources.indexOf(resource);
  const found = { free: 0, all: 0, largest: 0, stranded: 0 };
  if (at < 0) return found;
  for (const zone of node.zones) {
    const free = Math.max(0, zone.free[at]);
    found.free += free;
    found.largest = Math.max(found.largest, free);
    found.all += zone.allocatable[at];
  }
  const each = state.capacity?.amounts[resource] ?? 0;
  found.stranded = found.free - (state.capacity ? Math.min(found.free, fitsOn(node) * each) : found.largest);
  return found;
}

const STATES = {
  confirmed: "confirmed", inDoubt: "in doubt", unconfirmed: "not confirmed", unreported: NO_REPORT,
};

function describe(node, resource) {
  const free = freeOf(node, resource);
  const zones = node.zones.map((zone, at) => `zone ${zone.id}: ${amount(resource, free[at] ?? 0)}`);
  const parts = [node.name, `${resource} free ${zones.join(", ") || "unknown"}`, plural(node.pods, "pod")];
  if (state.capacity) parts.push(`${fitsOn(node)} more fit`);
  if (node.state !== "confirmed") parts.push(STATES[node.state]);
  if (node.rejected) parts.push(`${plural(node.rejected, "rejected pod")}`);
  if (node.cordoned) parts.push("cordoned");
  return parts.join("; ");
}

// === where the reader is ===

function route() {
  const [path, query] = location.hash.replace(/^#/, "").split("?");
  const parts = path.split("/").filter(Boolean).map(decodeURIComponent);
  return { parts, query: new URLSearchParams(query ?? "") };
}

function link(parts, query = route().query) {
  const text = query.toString();
  return `#/${parts.map(encodeURIComponent).join("/")}${text ? `?${text}` : ""}`;
}

function setQuery(name, value) {
  const { parts, query } = route();
  if (value) query.set(name, value); else query.delete(name);
  history.replaceState(null, "", link(parts, query));
  state.order = null;
}

// === data ===

function token() {
  const found = location.hash.match(/^#token=([0-9a-zA-Z._-]+)/);
  if (found) {
    sessionStorage.setItem("token", found[1]);
    history.replaceState(null, "", "#/");
  }
  return sessionStorage.getItem("token") ?? "";
}

async function ask(path) {
  const response = await fetch(path, { headers: { Authorization: `Bearer ${token()}` }, cache: "no-store" });
  if (isRefused(response)) throw new Error("a token is needed");
  const body = await response.json();
  if (!response.ok) throw new Error(body.error ?? body.message ?? response.statusText);
  return body;
}

// Whether the server wants another token: it knows none, or the token's user may not read the cluster.
function isRefused(response) {
  if (response.status !== 401 && response.status !== 403) return false;
  const refusal = response.status === 403
    ? "The user of this token may not read the cluster." : "The server does not know this token.";
  askForToken(token() ? refusal : "A token is needed.");
  return true;
}

function askForToken(problem) {
  if (state.asking === problem) return;
  const field = element("input", { id: "token", type: "password", autocomplete: "off" });
  const submit = (event) => {
    event.preventDefault();
    sessionStorage.setItem("token", field.value.trim());
    state.asking = null;
    render();
    follow();
  };
  main.replaceChildren(
    element("h1", {}, "Sign in"),
    element("p", {}, "This page shows a cluster to readers with a token, such as kubectl create token prints."),
    element("p", { role: "alert" }, problem),
    element("form", { onsubmit: submit }, element("label", { for: "token" }, "Token"), field,
      element("button", { type: "submit" }, "Show the cluster")),
  );
  state.asking = problem;
}

function take(event, data) {
  if (event === "restart") { state.nodes.clear(); state.order = null; state.isDump = data.isDump; }
  else if (event === "nodes") {
    for (const node of data) {
      const known = state.nodes.get(node.name);
      state.nodes.set(node.name, node);
      state.zones = Math.max(state.zones, node.zones.length);
      if (!known) state.order = null;
    }
  } else if (event === "waiting") state.waiting = data;
  else if (event === "problem") { say(data); return; }
  else if (event === "version") {
    state.asking = null;
    say(`${state.isDump ? "dump" : "live"}, ${plural(state.nodes.size, "node")}`);
    if (state.sorted !== "name") state.order = null;
    changed();
  }
}

function say(text) {
  if (connection.textContent !== text) connection.textContent = text;
}

// Follows the cluster. The server ends each connection after a while, and a new one goes on.
let following = 0;
async function follow() {
  const mine = ++following;
  let failures = 0;
  while (mine === following) {
    try {
      const response = await fetch("view/v1/changes", { headers: { Authorization: `Bearer ${token()}` } });
      if (isRefused(response)) { say("not signed in"); return; }
      if (!response.ok) throw new Error(response.statusText);
      failures = 0;
      await events(response.body.getReader());
    } catch (error) {
      failures += 1;
      say(`no connection since ${new Date().toLocaleTimeString()}; what is shown may be old`);
    }
    await new Promise((resolve) => setTimeout(resolve, Math.min(10000, 250 * 2 ** Math.min(failures, 6) - 250)));
  }
}

async function events(reader) {
  const decoder = new TextDecoder();
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    text += decoder.decode(value, { stream: true });
    const blocks = text.split("\n\n");
    text = blocks.pop();
    for (const block of blocks) {
      const event = block.match(/^event: (\w+)\ndata: ([^]*)$/);
      if (event) take(event[1], JSON.parse(event[2]));
    }
  }
}

// === capacity ===

async function askCapacity(shape) {
  setQuery("shape", shape);
  if (!shape) { state.capacity = null; answer.textContent = ""; changed(); return; }
  if (state.source !== "live") { answer.textContent = "not known in a report"; return; }
  answer.textContent = "...";
  try {
    const found = await ask(`view/v1/capacity?shape=${encodeURIComponent(shape)}`);
    const fits = new Map(found.nodes.map((node) => [node.node, node.fits]));
    state.capacity = { shape, fits, amounts: amounts(shape) };
    const nodes = found.nodes.filter((node) => node.fits > 0).length;
    answer.textContent = `${found.limited ? "at least " : ""}${found.fits.toLocaleString("en")}, on ${plural(nodes, "node")}`;
  } catch (error) {
    state.capacity = null;
    answer.textContent = error.message;
  }
  state.order = null;
  changed();
}

// The amounts of a shape in base units.
function amounts(shape) {
  const factors = { "": 1, m: 1e-3, k: 1e3, M: 1e6, G: 1e9, T: 1e12, Ki: 2 ** 10, Mi: 2 ** 20, Gi: 2 ** 30, Ti: 2 ** 40 };
  const pairs = shape.split(",").map((part) => part.trim().split("="));
  return Object.fromEntries(pairs.map(([name, text]) => {
    const [, number, suffix] = text.match(/^([0-9.]+)(.*)$/) ?? [null, 0, ""];
    return [name, Number(number) * (factors[suffix] ?? 1) * (name === "cpu" ? 1000 : 1)];
  }));
}

// === the cluster ===

const SORTS = {
  name: ["name", null],
  free: ["most free", (node, resource) => totals(node, resource).free],
  largest: ["largest free zone", (node, resource) => totals(node, resource).largest],
  stranded: ["most stranded", (node, resource) => totals(node, resource).stranded],
  fits: ["most fit", (node) => fitsOn(node) ?? 0],
  rejected: ["rejected pods", (node) => node.rejected ?? 0],
  state: ["least confirmed", (node) => Object.keys(STATES).indexOf(node.state)],
};

function shown() {
  if (state.order) return state.order;
  const { query } = route();
  const resource = query.get("resource") ?? "cpu";
  const filter = (query.get("filter") ?? "").toLowerCase();
  const sort = SORTS[query.get("sort")] ? query.get("sort") : "name";
  const [, key] = SORTS[sort];
  let nodes = [...state.nodes.values()].filter((node) => node.name.toLowerCase().includes(filter));
  nodes.sort((one, other) => one.name.localeCompare(other.name, "en", { numeric: true }));
  if (key) {
    const keyed = nodes.map((node) => [key(node, resource), node]);
    keyed.sort((one, other) => other[0] - one[0]);
    nodes = keyed.map(([, node]) => node);
  }
  state.sorted = sort;
  state.order = nodes.map((node) => node.name);
  return state.order;
}

function resources() {
  const names = new Set();
  for (const node of state.nodes.values()) node.resources.forEach((name) => names.add(name));
  return ["cpu", "memory", ...[...names].filter((name) => name !== "cpu" && name !== "memory").sort()];
}

function choice(id, label, options, value, name) {
  const made = options.map(([key, text]) => element("option", { value: key, selected: key === value }, text));
  const change = (event) => { setQuery(name, event.target.value); render(); document.getElementById(id).focus(); };
  return [element("label", { for: id }, label), element("select", { id, onchange: change }, ...made)];
}

function facts(pairs) {
  return element("dl", { class: "facts" }, ...pairs.map(([name, value]) =>
    element("div", {}, element("dt", {}, name), element("dd", {}, value))));
}

function clusterFacts(resource) {
  let [free, all, largest, stranded, rejected, unsure] = [0, 0, 0, 0, 0, 0];
  for (const node of state.nodes.values()) {
    const here = totals(node, resource);
    free += here.free;
    all += here.all;
    largest = Math.max(largest, here.largest);
    stranded += here.stranded;
    rejected += node.rejected ?? 0;
    unsure += node.state === "confirmed" ? 0 : 1;
  }
  return facts([
    ["nodes", state.nodes.size.toLocaleString("en")],
    [`${resource} free`, `${amount(resource, free)} of ${amount(resource, all)}`],
    ["largest free zone", amount(resource, largest)],
    [state.capacity ? "stranded for this shape" : "free beside the best zones", amount(resource, stranded)],
    ["waiting pods", state.waiting.number.toLocaleString("en")],
    ["rejected pods", rejected.toLocaleString("en")],
    ["nodes not confirmed", unsure.toLocaleString("en")],
  ]);
}

function renderCluster() {
  const { query } = route();
  const resource = query.get("resource") ?? "cpu";
  const mode = query.get("view") === "table" ? "table" : "map";
  const filter = element("input", { id: "filter", value: query.get("filter") ?? "", autocomplete: "off",
    oninput: (event) => { setQuery("filter", event.target.value.trim()); changed(); } });
  const sorts = Object.entries(SORTS).map(([key, [text]]) => [key, text]);
  main.replaceChildren(
    element("h1", {}, "Cluster"),
    element("div", { id: "facts" }, clusterFacts(resource)),
    element("div", { class: "controls" },
      element("label", { for: "filter" }, "Nodes named"), filter,
      ...choice("resource", "Resource", resources().map((name) => [name, name]), resource, "resource"),
      ...choice("sort", "Sort by", sorts, query.get("sort") ?? "name", "sort"),
      ...choice("view", "Show", [["map", "map"], ["table", "table"]], mode, "view")),
    mode === "map" ? mapElement(resource) : element("div", { id: "table" }, nodeTable(resource, ROWS)),
    waitingSection(),
  );
  if (mode === "map") map.attach();
}

function nodeTable(resource, limit) {
  const names = shown();
  const head = ["Node", "Policy", "Scope", "Known", "Pods", "Rejected", `${resource} free by zone`, "Stranded"];
  if (state.capacity) head.push("Fit");
  const rows = names.slice(0, limit).map((name) => {
    const node = state.nodes.get(name);
    const zones = node.zones.map((zone, at) => `${zone.id}: ${amount(resource, freeOf(node, resource)[at] ?? 0)}`);
    return element("tr", {},
      element("th", { scope: "row" }, element("a", { href: link(["node", name]) }, name)),
      element("td", {}, node.policy ?? NO_REPORT), element("td", {}, node.scope ?? ""),
      element("td", { class: node.state === "confirmed" ? null : "bad" }, STATES[node.state]),
      element("td", { class: "number" }, String(node.pods)),
      element("td", { class: node.rejected ? "number bad" : "number" }, String(node.rejected ?? 0)),
      element("td", {}, zones.join(", ")),
      element("td", { class: "number" }, amount(resource, totals(node, resource).stranded)),
      state.capacity ? element("td", { class: "number" }, String(fitsOn(node))) : null);
  });
  const more = names.length > limit
    ? element("button", { type: "button", onclick: () => {
      document.getElementById("table").replaceChildren(nodeTable(resource, limit * 5));
    } }, `Show more of ${plural(names.length, "node")}`)
    : null;
  return element("div", { class: "scroll" },
    element("table", {}, element("caption", {}, `${plural(names.length, "node")}`),
      element("thead", {}, element("tr", {}, ...head.map((text) => element("th", { scope: "col" }, text)))),
      element("tbody", {}, ...rows)), more);
}

function waitingSection() {
  const { number, pods } = state.waiting;
  const section = element("section", { id: "waiting" }, element("h2", {}, "Pods that wait"));
  if (number === 0) { section.append(element("p", {}, "None.")); return section; }
  const rows = pods.slice(0, ROWS).map((pod) => element("tr", {},
    element("th", { scope: "row" },
      element("a", { href: link(["pod", pod.namespace, pod.name]) }, `${pod.namespace}/${pod.name}`)),
    element("td", {}, age(pod.createdS)), element("td", {}, pod.scheduler), element("td", {}, pod.message ?? "")));
  section.append(element("div", { class: "scroll" }, element("table", {},
    element("caption", {}, `${plural(number, "pod")}, the oldest first`),
    element("thead", {}, element("tr", {}, ...["Pod", "Age", "Scheduler", "Why"].map((text) =>
      element("th", { scope: "col" }, text)))),
    element("tbody", {}, ...rows))));
  return section;
}

function age(createdS) {
  const seconds = Math.max(0, Math.round((state.takenMs ?? Date.now()) / 1000 - createdS));
  if (seconds < 120) return `${seconds} s`;
  if (seconds < 7200) return `${Math.floor(seconds / 60)} min`;
  return seconds < 172800 ? `${Math.floor(seconds / 3600)} h` : `${Math.floor(seconds / 86400)} d`;
}

// === the map: a canvas of what is visible, whatever the number of nodes ===

const SIZES = [
  { nodes: 60, zone: 22, bars: 84, label: 18 },
  { nodes: 400, zone: 14, bars: 40, label: 18 },
  { nodes: Infinity, zone: 9, bars: 34, label: 0 },
];

const map = {
  resource: "cpu", box: null, canvas: null, spacer: null, dirty: false,
  gap: 6, draws: 0,

  // The fewer nodes, the larger; names are there where they have room.
  layout() {
    const zones = state.zones;
    const number = shown().length;
    const size = SIZES.find((it) => number <= it.nodes);
    const width = Math.max(size.label ? 120 : 0, zones * size.zone + 4);
    const cell = width + this.gap;
    const columns = Math.max(1, Math.floor((this.box.clientWidth - this.gap) / cell));
    const pitch = size.bars + size.label + this.gap;
    return { ...size, zones, width, cell, columns, pitch, rows: Math.ceil(number / columns) };
  },

  attach() {
    this.box = document.getElementById("map");
    this.canvas = document.getElementById("canvas");
    this.spacer = document.getElementById("spacer");
    this.box.addEventListener("scroll", () => this.invalidate());
    this.box.addEventListener("mousemove", (event) => this.hover(event));
    this.box.addEventListener("click", (event) => {
      const name = this.at(event);
      if (name) location.hash = link(["node", name]);
    });
    this.box.addEventListener("keydown", (event) => this.key(event));
    this.invalidate();
  },

  at(event) {
    const bounds = this.box.getBoundingClientRect();
    const { cell, columns, pitch } = this.layout();
    const column = Math.floor((event.clientX - bounds.left - this.gap) / cell);
    const row = Math.floor((event.clientY - bounds.top + this.box.scrollTop - this.gap) / pitch);
    if (column < 0 || column >= columns || row < 0) return null;
    return shown()[row * columns + column] ?? null;
  },

  hover(event) {
    const name = this.at(event);
    if (name) this.tell(name);
  },

  tell(name) {
    const hint = document.getElementById("hint");
    const node = state.nodes.get(name);
    if (hint && node) hint.textContent = describe(node, this.resource);
  },

  key(event) {
    const { columns, pitch } = this.layout();
    const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns, Home: -1e9, End: 1e9 };
    const names = shown();
    if (event.key === "Enter" && names[state.selected]) { location.hash = link(["node", names[state.selected]]); return; }
    if (!(event.key in steps) || names.length === 0) return;
    event.preventDefault();
    state.selected = Math.min(names.length - 1, Math.max(0, state.selected + steps[event.key]));
    const top = Math.floor(state.selected / columns) * pitch;
    if (top < this.box.scrollTop) this.box.scrollTop = top;
    const bottom = top + pitch + this.gap;
    if (bottom > this.box.scrollTop + this.box.clientHeight) this.box.scrollTop = bottom - this.box.clientHeight;
    this.tell(names[state.selected]);
    this.invalidate();
  },

  invalidate() {
    if (this.dirty || !this.box) return;
    this.dirty = true;
    requestAnimationFrame(() => { this.dirty = false; if (this.box?.isConnected) this.draw(); });
  },

  draw() {
    const layout = this.layout();
    const { cell, columns, pitch, rows } = layout;
    const whole = rows * pitch + this.gap;
    this.box.style.height = `min(${Math.max(whole + 2, 60)}px, 62vh)`;
    const [width, height] = [this.box.clientWidth, this.box.clientHeight];
    const scale = window.devicePixelRatio || 1;
    if (this.canvas.width !== Math.round(width * scale) || this.canvas.height !== Math.round(height * scale)) {
      this.canvas.width = Math.round(width * scale);
      this.canvas.height = Math.round(height * scale);
      this.canvas.style.width = `${width}px`;
      this.canvas.style.height = `${height}px`;
    }
    this.spacer.style.height = `${Math.max(0, whole - height)}px`;
    const context = this.canvas.getContext("2d");
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.clearRect(0, 0, width, height);
    const paint = { used: color("--used"), free: color("--free"), some: color("--some"), none: color("--none"),
      line: color("--line"), focus: color("--focus"), text: color("--text"), back: color("--raised") };
    const names = shown();
    const first = Math.max(0, Math.floor(this.box.scrollTop / pitch));
    const last = Math.min(rows, first + Math.ceil(height / pitch) + 1);
    for (let at = first * columns; at < Math.min(names.length, last * columns); at += 1) {
      const node = state.nodes.get(names[at]);
      const x = this.gap + (at % columns) * cell;
      const y = this.gap + Math.floor(at / columns) * pitch - this.box.scrollTop;
      this.drawNode(context, paint, node, { ...layout, x, y, isSelected: at === state.selected });
    }
    this.draws += 1;
  },

  drawNode(context, paint, node, { x, y, width, zone, bars, label, isSelected }) {
    const height = bars + label;
    context.fillStyle = paint.back;
    context.fillRect(x, y, width, height);
    const free = freeOf(node, this.resource);
    const all = allocatableOf(node, this.resource);
    free.forEach((amountFree, at) => {
      const share = all[at] > 0 ? Math.min(1, amountFree / all[at]) : 0;
      const left = x + 2 + at * zone;
      const inner = bars - 4;
      context.fillStyle = paint.used;
      context.fillRect(left, y + 2, zone - 1, inner);
      context.fillStyle = share > 0.5 ? paint.free : paint.some;
      context.fillRect(left, y + 2, zone - 1, Math.round(inner * share));
    });
    if (label) {
      context.fillStyle = paint.text;
      context.font = "12px system-ui, sans-serif";
      context.fillText(shortened(context, node.name, width - 8), x + 4, y + height - 6);
    }
    const isOdd = node.rejected || node.state === "unconfirmed" || node.state === "unreported";
    context.lineWidth = isSelected ? 3 : isOdd ? 2 : 1;
    context.strokeStyle = isSelected ? paint.focus : isOdd ? paint.none : paint.line;
    context.strokeRect(x + 0.5, y + 0.5, width - 1, height - 1);
  },
};

// The end of a name tells nodes apart.
function shortened(context, name, width) {
  if (context.measureText(name).width <= width) return name;
  let text = name;
  while (text.length > 1 && context.measureText(`...${text}`).width > width) text = text.slice(1);
  return `...${text}`;
}

function mapElement(resource) {
  map.resource = resource;
  const legend = [["--free", "more than half free"], ["--some", "less than half free"], ["--used", "in use"],
    ["--none", "rejected pods, or not confirmed (frame)"]];
  return element("div", {},
    element("div", { id: "map", class: "map", tabindex: "0", role: "application",
      "aria-label": "Map of nodes and their zones. Arrow keys move, Enter opens a node. The table shows the same.",
      "aria-describedby": "hint" },
    element("canvas", { id: "canvas" }), element("div", { id: "spacer" })),
    element("p", { id: "hint", class: "hint", role: "status" }, "Each box is a node, each bar a zone."),
    element("ul", { class: "legend" }, ...legend.map(([name, text]) => {
      const swatch = element("span", { class: "swatch", "aria-hidden": "true" });
      swatch.style.background = `var(${name})`;
      return element("li", {}, swatch, text);
    })));
}

// === a node ===

async function renderNode(name) {
  let page;
  try {
    page = state.source === "live" ? await ask(`view/v1/nodes/${encodeURIComponent(name)}`) : state.pages[name];
    if (!page) page = { ...state.nodes.get(name), sockets: [], pods: [], distances: [], deviceGroups: [], settings: {} };
  } catch (error) {
    if (state.asking) return;
    main.replaceChildren(element("h1", {}, `Node ${name}`), element("p", { class: "error" }, error.message));
    return;
  }
  if (route().parts.join("/") !== `node/${name}`) return;
  const settings = Object.entries(page.settings).map(([key, value]) => [key, value || "none"]);
  main.replaceChildren(
    element("p", {}, element("a", { href: link([]) }, "Cluster")),
    element("h1", {}, `Node ${name}`),
    facts([["policy", page.policy ?? NO_REPORT], ["scope", page.scope ?? "-"], ["known", STATES[page.state]],
      ["pods", String(page.pods.length)], ["rejected", String(page.rejected ?? 0)],
      ["corrections", String(page.corrections ?? 0)], ...settings]),
    page.sockets.length ? machine(page) : element("p", {}, "The report has no cores: zones alone are known."),
    zoneTable(page), podTable(page), distanceTable(page), deviceTable(page),
  );
}

function podColor(page, at) {
  return hue(at % Math.max(1, page.pods.length));
}

// The picture; the tables below say the same.
function machine(page) {
  const cpu = (thread) => {
    const box = element("span", { class: `cpu ${thread.usage}`, title: title(page, thread) });
    if (thread.pod !== undefined) box.style.background = podColor(page, thread.pod);
    return box;
  };
  const zone = (it) => element("div", { class: "zone" }, element("p", { class: "box-title" }, `zone ${it.id}`),
    ...memoryBars(page, it.id),
    ...it.caches.map((cache) => element("div", { class: "cache", title: `last-level cache ${cache.id}` },
      ...cache.cores.map((core) => element("span", { class: "core" }, ...core.threads.map(cpu))))));
  const swatch = (name) => element("span", { class: `swatch ${name}` });
  return element("div", { "aria-hidden": "true" },
    element("div", { class: "sockets" }, ...page.sockets.map((socket) => element("div", { class: "socket" },
      element("p", { class: "box-title" }, `socket ${socket.id}`),
      element("div", { class: "zones" }, ...socket.zones.map(zone))))),
    element("ul", { class: "legend" }, element("li", {}, swatch("free"), "free"),
      element("li", {}, swatch("reserved"), "reserved"), element("li", {}, swatch("unknown"), "held by an unknown pod"),
      element("li", {}, "a colour for each pod")));
}

function title(page, thread) {
  const pod = thread.pod === undefined ? null : page.pods[thread.pod];
  return `CPU ${thread.cpu}: ${pod ? `${pod.namespace}/${pod.name}` : thread.usage}`;
}

function memoryBars(page, id) {
  const zone = page.zones.find((it) => it.id === id);
  if (!zone) return [];
  const sized = page.resources.map((name, at) => [name, zone.free[at], zone.allocatable[at]]);
  return sized.filter(([name, , all]) => name !== "cpu" && all > 0).flatMap(([name, free, all]) => {
    const bar = element("span", {});
    bar.style.width = `${Math.round(100 * (1 - Math.max(0, free) / all))}%`;
    return [element("p", { class: "box-title" }, `${name}: ${amount(name, free)} of ${amount(name, all)} free`),
      element("div", { class: "bar" }, bar)];
  });
}

function table(caption, head, rows) {
  return element("div", { class: "scroll" }, element("table", {}, element("caption", {}, caption),
    element("thead", {}, element("tr", {}, ...head.map((text) => element("th", { scope: "col" }, text)))),
    element("tbody", {}, ...rows.map(([first, ...rest]) => element("tr", {}, element("th", { scope: "row" }, first),
      ...rest.map((cell) => element("td", {}, cell)))))));
}

function zoneTable(page) {
  const cpus = new Map();
  for (const socket of page.sockets) for (const zone of socket.zones) {
    const free = zone.caches.flatMap((cache) => cache.cores).flatMap((core) => core.threads)
      .filter((thread) => thread.usage === "free").map((thread) => thread.cpu);
    cpus.set(zone.id, ranges(free));
  }
  const cell = (zone, at, name) => `${amount(name, zone.free[at])} of ${amount(name, zone.allocatable[at])}`;
  const rows = page.zones.map((zone) => [`${zone.id}`, ...page.resources.map((name, at) => cell(zone, at, name)),
    cpus.get(zone.id) ?? ""]);
  return element("section", {}, element("h2", {}, "Zones"),
    table("Free of allocatable", ["Zone", ...page.resources, "Free CPUs"], rows));
}

function ranges(ids) {
  const sorted = [...ids].sort((one, other) => one - other);
  const parts = [];
  for (let at = 0; at < sorted.length;) {
    let end = at;
    while (sorted[end + 1] === sorted[end] + 1) end += 1;
    parts.push(end > at ? `${sorted[at]}-${sorted[end]}` : `${sorted[at]}`);
    at = end + 1;
  }
  return parts.join(",");
}

function places(list) {
  return list.map((it) => {
    const devices = Object.entries(it.devices).map(([name, number]) => `${name} x ${number}`);
    const parts = [it.cpus ? `CPUs ${it.cpus}` : "", it.memory.length ? `memory in ${it.memory.join(",")}` : "", ...devices];
    return `${it.container || "whole pod"}: ${parts.filter(Boolean).join(", ") || "nothing"}`;
  }).join("; ");
}

function podTable(page) {
  const section = element("section", {}, element("h2", {}, "Pods in zones"));
  if (page.pods.length === 0) { section.append(element("p", {}, "None is known.")); return section; }
  const rows = page.pods.map((pod, at) => {
    const swatch = element("span", { class: "swatch", "aria-hidden": "true" });
    swatch.style.background = podColor(page, at);
    const requests = Object.entries(pod.requests).map(([name, text]) => `${name} ${text}`).join(", ");
    const agrees = pod.isAsPredicted === undefined ? "" : pod.isAsPredicted ? "as predicted" : "differs";
    const observed = element("span", { class: pod.isAsPredicted === false ? "bad" : null },
      [agrees, places(pod.observed)].filter(Boolean).join(": "));
    const name = element("a", { href: link(["pod", pod.namespace, pod.name]) }, `${pod.namespace}/${pod.name}`);
    return [element("span", {}, swatch, name), pod.stage, String(pod.priority), requests, pod.zones.join(","),
      `${places(pod.predicted)}${pod.isCertain ? "" : " (in doubt)"}`, observed];
  });
  section.append(table(plural(page.pods.length, "pod"),
    ["Pod", "Stage", "Priority", "Asks for", "Zones", "Predicted", "Observed"], rows));
  return section;
}

function distanceTable(page) {
  if (page.distances.length === 0) return null;
  const ids = page.distances.map((row) => row.zone);
  const rows = page.distances.map((row) => {
    const to = new Map(row.to);
    return [`${row.zone}`, ...ids.map((id) => String(to.get(id) ?? ""))];
  });
  return element("section", {}, element("h2", {}, "Distances"),
    table("From zone to zone", ["Zone", ...ids.map(String)], rows));
}

function deviceTable(page) {
  if (page.deviceGroups.length === 0) return null;
  const rows = page.deviceGroups.map((it) => [it.resource, it.zones.join(","), `${it.free} of ${it.allocatable}`]);
  return element("section", {}, element("h2", {}, "Devices close to several zones"),
    table("By the node's report", ["Resource", "Zones", "Free"], rows));
}

// === a pod ===

async function renderPod(namespace, name) {
  const head = [element("p", {}, element("a", { href: link([]) }, "Cluster")),
    element("h1", {}, `Pod ${namespace}/${name}`)];
  if (state.source !== "live") {
    const waits = state.waiting.pods.find((pod) => pod.namespace === namespace && pod.name === name);
    main.replaceChildren(...head, element("p", {}, waits?.message ?? "The report says no more of it."));
    return;
  }
  let found;
  try {
    found = await ask(`view/v1/pods/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`);
  } catch (error) {
    if (state.asking) return;
    main.replaceChildren(...head, element("p", { class: "error" }, error.message));
    return;
  }
  if (route().parts.join("/") !== `pod/${namespace}/${name}`) return;
  if (found.node) {
    const on = element("p", {}, "It is on node ", element("a", { href: link(["node", found.node]) }, found.node), ".");
    const rows = found.pod ? [["stage", found.pod.stage], ["zones", found.pod.zones.join(",") || "none known"],
      ["predicted", places(found.pod.predicted) || "-"], ["observed", places(found.pod.observed) || "-"],
      ["as predicted", found.pod.isAsPredicted === undefined ? "not known" : found.pod.isAsPredicted ? "yes" : "no"]] : [];
    main.replaceChildren(...head, on, facts(rows));
    return;
  }
  const { explanation } = found;
  const verdict = explanation.chosen ? `It fits: ${explanation.chosen} would be chosen now.` : explanation.message;
  const fits = (node) => (node.fits ? 0 : 1);
  const nodes = [...explanation.nodes].sort((one, other) => fits(one) - fits(other));
  const rows = nodes.slice(0, ROWS).map((node) => [
    element("a", { href: link(["node", node.node]) }, node.node), node.fits ? "yes" : "no",
    node.reasons.join("; "), node.changes[0]?.text ?? ""]);
  main.replaceChildren(...head, element("p", {}, verdict),
    element("h2", {}, "By node"), table(`By ${explanation.scheduler}, for ${plural(nodes.length, "node")}`,
      ["Node", "Fits", "Why not", "Smallest change that would make it fit"], rows));
}

// === drawing anew ===

function render() {
  if (state.asking) return;
  const { parts, query } = route();
  const shape = query.get("shape") ?? "";
  if (shape && shapeInput.value !== shape) shapeInput.value = shape;
  if (parts[0] === "node" && parts[1]) renderNode(parts[1]);
  else if (parts[0] === "pod" && parts[2]) renderPod(parts[1], parts[2]);
  else renderCluster();
}

// New data: only what it changes is drawn anew, at most once a frame.
let pending = false;
function changed() {
  if (pending || state.asking) return;
  pending = true;
  requestAnimationFrame(() => {
    pending = false;
    const { parts, query } = route();
    if (parts.length > 0) { throttled(render); return; }
    const resource = query.get("resource") ?? "cpu";
    if (!document.getElementById("facts")) { render(); return; }
    map.invalidate();
    throttled(() => {
      document.getElementById("facts")?.replaceChildren(clusterFacts(resource));
      if (!document.getElementById("waiting")?.contains(document.activeElement)) {
        document.getElementById("waiting")?.replaceWith(waitingSection());
      }
      const listed = document.getElementById("table");
      if (listed && !listed.contains(document.activeElement)) listed.replaceChildren(nodeTable(resource, ROWS));
    });
  });
}

// Tables are rebuilt at most twice a second.
let last = 0;
let timer = null;
function throttled(work) {
  const due = Math.max(0, last + 500 - performance.now());
  clearTimeout(timer);
  timer = setTimeout(() => { last = performance.now(); work(); }, due);
}

document.getElementById("shape-form").addEventListener("submit", (event) => {
  event.preventDefault();
  askCapacity(shapeInput.value.trim());
});
document.getElementById("skip").addEventListener("click", (event) => { event.preventDefault(); main.focus(); });
window.addEventListener("hashchange", () => { state.order = null; render(); main.focus(); });
window.addEventListener("resize", () => map.invalidate());
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => map.invalidate());

if (embedded) {
  const data = JSON.parse(embedded.textContent);
  state.source = "report";
  state.takenMs = data.cluster.takenMs;
  state.pages = data.pages;
  take("nodes", data.cluster.nodes);
  take("waiting", data.cluster.waiting);
  say(`as of ${new Date(data.cluster.takenMs).toLocaleString()}`);
  document.getElementById("shape-form").remove();
  render();
} else {
  token();
  render();
  follow().catch((error) => say(error.message));
  const shape = route().query.get("shape");
  if (shape) askCapacity(shape);
}
