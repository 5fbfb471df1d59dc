"use strict";
// The page: server-sent events in, tables and SVG out. Text is only ever set as text, never as markup.

const SVG = "http://www.w3.org/2000/svg";
const COLOURS = 8;
const HEIGHT = 200;
const MARGIN = { top: 8, right: 8, bottom: 22, left: 76 };
const DAY = 864e8;
const GRID_EVERY = 5000;
const LINES = 21;
const AGAIN_AFTER = 5000;
const TOKEN = "token";
const byId = (id) => document.getElementById(id);
let chosen = null;
let listening = null;
let points = [];
let shown = null;
let asking = false;
let askedAt = 0;

function element(name, attributes = {}, ...children) {
  const made = attributes.xmlns === undefined ? document.createElement(name) : document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key !== "xmlns") made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}
const drawn = (name, attributes, ...children) => element(name, { xmlns: SVG, ...attributes }, ...children);
const colour = (index) => `var(--c${index % COLOURS})`;

function duration(microseconds) {
  const sign = microseconds < 0 ? "-" : "";
  let seconds = Math.abs(microseconds) / 1e6;
  if (seconds < 10) return `${sign}${seconds.toFixed(1)} s`;
  const parts = [];
  for (const [unit, size] of [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]]) {
    const amount = Math.floor(seconds / size);
    seconds -= amount * size;
    if (amount) parts.push(`${amount} ${unit}`);
    else if (parts.length) break;
  }
  return sign + parts.slice(0, 2).join(" ");
}
const count = (number) => (number ?? 0).toLocaleString("en");
function time(microseconds) {
  if (microseconds === null || microseconds === undefined) return "–";
  const date = new Date(microseconds / 1000);
  return Number.isNaN(date.getTime()) ? String(microseconds) : date.toISOString().replace("T", " ").slice(0, 19);
}
const clockTime = (microseconds) => new Date(microseconds / 1000).toLocaleTimeString("en-GB");

// A chart of lines over the clock; each line is {name, colour, dashed, points: [[x, y, idle], …]}. Numbers begin at 0,
// and stacked ones are areas on top of each other; times do not.
function chart(figure, lines, { label, format, fromZero = true, stacked = false }) {
  const all = lines.flatMap((line) => line.points);
  if (!all.length) return figure.replaceChildren(element("p", { class: "quiet" }, "Nothing yet."));
  if (stacked) stack(lines);
  const width = Math.max(figure.clientWidth, 240);
  let [x0, x1] = bounds(all.map((point) => point[0]));
  let [y0, y1] = bounds(all.map((point) => point[1]));
  if (fromZero) y0 = 0;
  if (x0 === x1) x1 += 1;
  if (y0 === y1) y1 += 1;
  const x = (value) => MARGIN.left + ((value - x0) / (x1 - x0)) * (width - MARGIN.left - MARGIN.right);
  const y = (value) => HEIGHT - MARGIN.bottom - ((value - y0) / (y1 - y0)) * (HEIGHT - MARGIN.top - MARGIN.bottom);
  const svg = drawn("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, role: "img", "aria-label": label });
  for (let i = 0; i <= 4; i += 1) {
    const value = y0 + ((y1 - y0) * i) / 4;
    svg.append(drawn("line", { class: "rule", x1: MARGIN.left, x2: width - MARGIN.right, y1: y(value), y2: y(value) }));
    svg.append(drawn("text", { x: MARGIN.left - 6, y: y(value) + 4, "text-anchor": "end" }, format(value, y1 - y0)));
  }
  for (const [value, anchor] of [[x0, "start"], [(x0 + x1) / 2, "middle"], [x1, "end"]]) {
    svg.append(drawn("text", { x: x(value), y: HEIGHT - 6, "text-anchor": anchor }, clockTime(value)));
  }
  // The highest area first: the lower ones cover it.
  for (const line of stacked ? [...lines].reverse() : []) {
    const edge = line.points.map((point) => `${x(point[0]).toFixed(1)},${y(point[1]).toFixed(1)}`);
    const points = [`${x(x0)},${y(0)}`, ...edge, `${x(x1)},${y(0)}`].join(" ");
    svg.append(drawn("polygon", { points, fill: line.colour }, drawn("title", {}, line.name)));
  }
  for (const line of stacked ? [] : lines) {
    for (const part of runsOf(line.points)) {
      const points = part.points.map((point) => `${x(point[0]).toFixed(1)},${y(point[1]).toFixed(1)}`).join(" ");
      const kind = line.dashed ? "clock" : `line${part.idle ? " idle" : ""}`;
      const title = part.idle ? `${line.name} (idle)` : line.name;
      if (part.idle) svg.append(drawn("polyline", { class: "shade", points, stroke: line.colour }, drawn("title", {}, title)));
      svg.append(drawn("polyline", { class: kind, points, ...(line.dashed ? {} : { stroke: line.colour }) }, drawn("title", {}, title)));
    }
  }
  figure.replaceChildren(svg, legend(lines));
}
function stack(lines) {
  for (let i = 1; i < lines.length; i += 1) {
    lines[i].points.forEach((point, at) => { point[1] += lines[i - 1].points[at][1]; });
  }
}
// Stretches in which a substream was waited for, and in which it was idle.
function runsOf(points) {
  const found = [];
  for (const point of points) {
    const last = found[found.length - 1];
    if (last && last.idle === Boolean(point[2])) last.points.push(point);
    else found.push({ idle: Boolean(point[2]), points: last ? [last.points[last.points.length - 1], point] : [point] });
  }
  return found;
}
function bounds(values) {
  let [least, most] = [Infinity, -Infinity];
  for (const value of values) {
    least = Math.min(least, value);
    most = Math.max(most, value);
  }
  return [least, most];
}
function legend(lines) {
  const items = lines.filter((line) => !line.dashed).map((line) => {
    const key = element("i");
    key.style.background = line.colour;
    return element("li", {}, key, line.name);
  });
  return element("ul", { class: "legend" }, ...items);
}
function table(target, heads, rows) {
  const head = element("tr", {}, ...heads.map((each) => element("th", { scope: "col" }, each)));
  const body = rows.map(([kind, cells]) => element("tr", kind ? { class: kind } : {}, ...cells.map((each) => element("td", {}, each))));
  target.replaceChildren(element("thead", {}, head), element("tbody", {}, ...body));
}

function show({ runs, run, points: all, more }) {
  points = all ?? points.concat(more ?? []);
  // As the server does: a page that is open for a week has no more than a day.
  if (points.length) points = points.filter((point) => points[points.length - 1].at - point.at <= DAY);
  if (run !== null) run.points = points;
  if ((run?.run ?? null) !== shown) {
    shown = run?.run ?? null;
    askedAt = 0;
    byId("look-told").textContent = "";
    byId("look-rows").replaceChildren();
    byId("members").replaceChildren();
  }
  buttons(runs, run);
  if (run === null) return;
  document.title = `${run.name} – sparkjet`;
  byId("told").dataset.state = run.state;
  byId("sentence").textContent = run.sentence;
  byId("advice").textContent = run.advice ?? "";
  watermarks(run);
  const phases = [...new Set(run.points.flatMap((point) => Object.keys(point.durationMs)))];
  const series = (name, i, value) => ({ name, colour: colour(i), points: run.points.map((point) => [point.at, value(point)]) });
  chart(byId("durations"), phases.map((phase, i) => series(phase, i, (point) => (point.durationMs[phase] ?? 0) / point.epochs)),
    { label: "Milliseconds of each phase of an epoch", format: (value) => `${Math.round(value)} ms`, stacked: true });
  const whole = (value) => count(Math.round(value));
  chart(byId("rows"), [
    series("in", 0, (point) => point.rowsIn / point.epochs),
    series("out", 1, (point) => point.rowsOut / point.epochs),
  ], { label: "Rows an epoch", format: whole });
  chart(byId("late"), [
    series("late", 1, (point) => point.late),
    series("without event time", 2, (point) => point.nullTimestamps),
    series("failed", 3, (point) => point.failed),
  ], { label: "Late rows, rows without event time and failed ones", format: whole });
  numbers(run);
  byId("look").hidden = !run.lateRowsShown;
  grid(run);
}

async function told(path, run) {
  try {
    const answer = await asked(`${path}/${encodeURIComponent(run)}`);
    return answer.ok ? await answer.json() : { why: await answer.text() };
  } catch (error) {
    return { why: String(error) };
  }
}

// Asked for, not sent each second: they are in files.
async function look() {
  const run = shown;
  if (run === null) return;
  const found = await told("late", run);
  if (run !== shown) return;
  byId("look-told").textContent = found.why ?? `Of epoch ${count(found.epoch)}, in ${found.directory}:`;
  const names = Object.keys(found.rows?.[0] ?? {});
  table(byId("look-rows"), names, (found.rows ?? []).map((row) => ["", names.map((name) => row[name] ?? "")]));
}

async function grid(run) {
  byId("grid").hidden = !run.grid;
  if (!run.grid || asking || Date.now() - askedAt < GRID_EVERY) return;
  asking = true;
  askedAt = Date.now();
  const found = await told("grid", run.run);
  asking = false;
  // Otherwise one query would be shown with the members of another one.
  if (run.run !== shown) return;
  const members = found.members ?? [];
  byId("grid-told").textContent = found.why ?? found.error?.message
    ?? `${found.frozen ? "FROZEN: the majority is gone. " : ""}${count(members.length)} members, ${count(found.partitions)} partitions with ${count(found.backupCount)} backups wanted${found.lost.length ? `, ${count(found.lost.length)} have lost everything once` : ""}.`;
  table(byId("members"), ["member", "host", "primary of", "backup of", "copying", "entries", "memory"], members.map((each) => [
    each.error || each.frozen ? "bad" : "",
    [each.address, each.host, count(each.primaryOf), count(each.backupOf),
      ...(each.error ? ["?", "?", "does not answer"] : [count(each.copying), count(each.entries), `${megabytes(each.used)} of ${megabytes(each.limit)}`])],
  ]));
}
const megabytes = (bytes) => `${(bytes / 1048576).toFixed(1)} MB`;

// Rebuilt only where they change: a button that is replaced each second loses the focus, and the click that is under way.
function buttons(runs, run) {
  const nav = byId("runs");
  const key = JSON.stringify([run?.run, runs.map((each) => [each.run, each.name, each.state])]);
  if (nav.dataset.key !== key) {
    const focused = document.activeElement?.dataset.run;
    nav.dataset.key = key;
    nav.replaceChildren(...runs.map((each) => {
      const button = element("button", { type: "button", "aria-pressed": each.run === run?.run, "data-state": each.state, "data-run": each.run }, each.name);
      if (each.state !== "running") button.append(` (${each.state})`);
      button.addEventListener("click", () => listen(each.run));
      return button;
    }));
    [...nav.children].find((button) => button.dataset.run === focused)?.focus();
  }
  runs.forEach((each, i) => { nav.children[i].title = each.sentence; });
}

// The names in the newest points, as many as one point has at most: of a thousand substreams, each may be the last once.
function linesOf(points) {
  const found = new Set();
  for (let i = points.length - 1; i >= 0; i -= 1) {
    for (const name of Object.keys(points[i].lines)) {
      if (found.size < LINES) found.add(name);
    }
  }
  return [...found];
}

function watermarks(run) {
  const names = linesOf(run.points).sort();
  const lines = names.map((name, i) => ({
    name,
    colour: colour(i),
    points: run.points
      .filter((point) => point.lines[name] && point.lines[name].watermark !== null)
      .map((point) => [point.at, point.lines[name].watermark, point.lines[name].idle]),
  }));
  const times = lines.flatMap((line) => line.points.map((point) => point[1]));
  const [least, most] = bounds(times);
  // The clock belongs into the picture only where event time is near it: not with a replay of last year.
  if (run.points.length > 1 && run.now - most < 20 * Math.max(most - least, 6e7)) {
    lines.push({ name: "clock", dashed: true, points: run.points.map((point) => [point.at, point.at]) });
  }
  // The day where the picture is longer than one.
  const format = (value, range) => (range > DAY ? time(value).slice(0, 10) : time(value).slice(11, 19));
  chart(byId("watermarks"), lines, { label: "Watermark of each substream over time, UTC", format, fromZero: false });
  table(byId("substreams"), ["substream", "behind the clock", "", "complete up to (UTC)", "late rows", "no event time"],
    (run.substreams ?? []).map((each) => [each.holdsWatermark ? "holds" : "", [
      each.name,
      each.watermark === null ? "–" : duration(run.now - each.watermark),
      each.holdsWatermark ? "is waited for" : each.heldBack ? `waits, ${duration(each.heldBack)} ahead of ${each.heldBy}` : each.idle ? "idle" : each.caughtUp ? "caught up" : "",
      time(each.watermark),
      count(each.lateRows),
      count(each.nullTimestamps),
    ]]));
  byId("others").textContent = run.otherSubstreams ? `${count(run.otherSubstreams)} more substreams, idle or less far behind, are not listed.` : "";
}

const sum = (rows, name) => rows.reduce((total, each) => total + (each[name] ?? 0), 0);

function numbers(run) {
  const operators = Object.values(run.operators ?? {});
  const near = operators.map((each) => each.ofLimit).filter((each) => each !== null && each !== undefined);
  const told = [
    ["epoch", run.epoch === null ? "–" : count(run.epoch)],
    ["watermark (UTC)", time(run.watermark)],
    ["since the last epoch", run.epochEndedAt ? duration(run.now - run.epochEndedAt) : "–"],
    ["rows in, this run", count(run.rowsIn)],
    ["late rows", count(run.lateRows)],
    ["rows without event time", count(run.nullTimestamps)],
    ["failed rows, this run", count(Object.values(run.failedRows ?? {}).reduce((sum, rows) => sum + rows, 0))],
    ["rows of state", count(run.snapshot?.entries)],
    ["bytes of state in memory", count(sum(operators, "memoryBytes"))],
    ["bytes of state on executors' disks", count(sum(operators, "spilledBytes"))],
    ["nearest to its limit", near.length ? `${Math.round(100 * Math.max(...near))} %` : "–"],
    ["windows closed early", count(sum(operators, "shedWindows"))],
    ["deltas a restart reads", count(run.snapshot?.deltas)],
    ["windows open", run.openWindows === null || run.openWindows === undefined ? "–" : count(run.openWindows)],
    ["withheld windows", count(run.withheldWindows)],
    ["transactions not settled", count(run.unsettled)],
  ];
  byId("numbers").replaceChildren(...told.map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, value))));
  const outputs = Object.entries(run.rowsOut ?? {}).map(([name, rows]) => ["", [name, count(rows), "–"]]);
  const open = (run.transactions ?? []).map((each) => ["", [each.output, each.rows === null ? "–" : count(each.rows), count(each.epoch)]]);
  table(byId("transactions"), ["output", "rows", "decided in epoch"], [...open, ...outputs.map(([kind, [name, rows]]) => [kind, [name, rows, "all of this run"]])]);
}

// The token comes behind the # of the address, which browsers do not send, and goes in a header: no server but this one
// sees it. It stays with this tab.
function keepToken() {
  const given = new URLSearchParams(location.hash.slice(1)).get(TOKEN);
  if (given === null) return;
  sessionStorage.setItem(TOKEN, given);
  history.replaceState(null, "", location.pathname + location.search);
}
const asked = (path, signal) => fetch(path, { signal, headers: { Authorization: `Bearer ${sessionStorage.getItem(TOKEN) ?? ""}` } });

// Server-sent events, which EventSource reads as well, but without a header.
async function* eventsOf(answer) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const events = (rest + value).split("\n\n");
    rest = events.pop();
    for (const event of events) yield JSON.parse(event.slice("data: ".length));
  }
}
async function listen(run) {
  chosen = run;
  listening?.abort();
  const own = new AbortController();
  listening = own;
  const path = run === null ? "events" : `events?run=${encodeURIComponent(run)}`;
  try {
    const answer = await asked(path, own.signal);
    const refused = answer.status === 401;
    byId("login").hidden = !refused;
    byId("told").hidden = refused;
    byId("connection").textContent = refused ? "locked" : "live";
    if (refused) return;
    if (!answer.ok) throw new Error(answer.statusText);
    for await (const event of eventsOf(answer)) if (listening === own) show(event);
  } catch (error) {
    if (error.name !== "AbortError") console.warn(String(error));
  }
  if (listening !== own) return;
  byId("connection").textContent = "no answer; trying again";
  await new Promise((wake) => { setTimeout(wake, AGAIN_AFTER); });
  // Again, which also ends the connection of what could not be shown: a browser has six of a host.
  if (listening === own) listen(run);
}
byId("look").addEventListener("click", look);
byId("login").addEventListener("submit", (event) => {
  event.preventDefault();
  // The whole address will do: it is what was printed.
  sessionStorage.setItem(TOKEN, byId("token").value.trim().split(`${TOKEN}=`).pop());
  byId("token").value = "";
  listen(chosen);
});
// An address with a token that is opened in a tab which shows the page already does not load it again.
addEventListener("hashchange", () => { keepToken(); listen(chosen); });
keepToken();
listen(null);
