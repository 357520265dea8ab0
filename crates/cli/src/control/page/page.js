// Asks for a sample each second, and shows what happened since the one before. What the server says
// goes into the page as text, never as HTML.

import { Chart, SHOWN_SECONDS } from "./chart.js";
import { bytes, bytesPerSecond, count, nanos, perSecond, percent, since } from "./sample.js";

const PAUSE_MS = 1000;
const PATIENCE_MS = 5000;
// Slices that are drawn; tables have them all.
const SLICES_DRAWN = 16;
const CALLS_SHOWN = 12;
const MIB = 2 ** 20;

const ofSlices = (value) => (happened) => happened.slices.slice(0, SLICES_DRAWN).map(value);
const uncalibrated = "not known before nearside calibrate";
const PER_SLICE = [
  { name: "read", title: "Read", show: bytesPerSecond, base: 1024, least: MIB,
    of: ofSlices((slice) => slice.readPerSecond) },
  { name: "written", title: "Written: blocks and log", show: bytesPerSecond, base: 1024,
    least: MIB, of: ofSlices((slice) => slice.writtenPerSecond) },
  { name: "remote", title: "Copied by other nodes (remote share)", show: percent, top: 100,
    none: "nothing was copied yet", of: ofSlices((slice) => slice.remotePercent) },
  { name: "busy", title: "Memory busy", show: percent, top: 100, none: uncalibrated,
    of: ofSlices((slice) => slice.busyPercent) },
];
const OF_ALL = [
  { name: "calls", title: "Calls through the mount", show: perSecond, least: 10,
    series: ["all calls"], of: (happened) => [happened.callsPerSecond] },
  { name: "p99", title: "99 % of these calls took less than", show: nanos, least: 1000,
    none: "no calls yet", series: ["all calls"], of: (happened) => [happened.p99] },
  { name: "moves", title: "Moves", show: perSecond, least: 1, none: uncalibrated,
    series: ["parts of files", "threads"],
    of: ({ moves }) => [moves?.dataPerSecond, moves?.threadsPerSecond] },
  { name: "gain", title: "Expected gain of all moves (pay-back)", show: nanos, least: 1e6,
    none: uncalibrated, series: ["since the server began"],
    of: (_, sample) => [sample.moves?.gain_ns] },
];
const HELD = [
  { name: "log", title: "Log in use", show: percent, top: 100,
    of: ofSlices((slice) => slice.logPercent) },
  { name: "cache", title: "DRAM in caches", show: bytes, base: 1024, least: MIB,
    of: ofSlices((slice) => slice.cacheBytes) },
];
const charts = [...PER_SLICE, ...OF_ALL, ...HELD].map((about) => new Chart(about));

const at = (id) => document.getElementById(id);
// The last sample, what it was of, and what was seen of that: times, each with what every chart
// has there, or with nothing.
let before = null;
let subject = "";
let seen = [];

// A table with these heads; the first cell of each row is its head.
function fill(id, heads, rows) {
  const cell = (tag, text, scope) => {
    const made = document.createElement(tag);
    made.textContent = text;
    if (scope) made.scope = scope;
    return made;
  };
  const lines = rows.map(([first, ...rest]) => {
    const line = document.createElement("tr");
    line.append(cell("th", first, "row"), ...rest.map((text) => cell("td", text)));
    return line;
  });
  const head = document.createElement("thead");
  head.insertRow().append(...heads.map((text) => cell("th", text, "col")));
  const body = document.createElement("tbody");
  body.append(...lines);
  at(id).replaceChildren(...(heads.length > 0 ? [head] : []), body);
}

function fillSlices({ slices }) {
  const heads = ["Slice", "Calls", "Read", "Written", "Remote", "Busy", "Log", "Free", "Cache"];
  fill("slices", heads, slices.map((slice) => [
    slice.index,
    perSecond(slice.callsPerSecond),
    bytesPerSecond(slice.readPerSecond),
    bytesPerSecond(slice.writtenPerSecond),
    percent(slice.remotePercent),
    percent(slice.busyPercent),
    percent(slice.logPercent),
    percent(slice.freePercent),
    bytes(slice.cacheBytes),
  ]));
}

function fillCalls({ calls, seconds }) {
  const heads = ["Call", "Calls", "Failed", "Bytes", "Mean"];
  const rows = calls.slice(0, CALLS_SHOWN).map((call) => [
    call.call,
    perSecond(call.count / seconds),
    perSecond(call.errors / seconds),
    bytesPerSecond(call.bytes / seconds),
    nanos(call.nanos / call.count),
  ]);
  fill("calls", heads, rows.length > 0 ? rows : [["none", "", "", "", ""]]);
}

function fillWhole(sample, happened) {
  const { moves, checkpoints } = sample;
  const moved = (all, rate) => (moves ? `${count(all)} in all, ${perSecond(rate)}` : uncalibrated);
  const data = `${moved(moves?.data, happened.moves?.dataPerSecond)}; ` +
    `${count(moves?.data_waiting)} wait`;
  const threads = `${moved(moves?.threads, happened.moves?.threadsPerSecond)}; ` +
    `${count(moves?.threads_held)} held`;
  fill("whole", [], [
    ["Calls through the mount", perSecond(happened.callsPerSecond)],
    ["99 % of these took less than", nanos(happened.p99)],
    ["Parts of files moved", moves ? data : uncalibrated],
    ["Threads moved", moves ? threads : uncalibrated],
    ["Expected gain of moves", moves ? nanos(moves.gain_ns) : uncalibrated],
    ["Checkpoints", `${count(checkpoints.count)}, ${bytes(checkpoints.bytes)} written`],
    ["Changes that waited for the log", count(checkpoints.waits)],
    ["DRAM that caches may use", bytes(sample.cache.limit_bytes)],
  ]);
}

function draw() {
  if (document.hidden || before === null) return;
  const now = performance.now() / 1000;
  const drawn = before.slices.slice(0, SLICES_DRAWN).map((slice) => `slice ${slice.index}`);
  for (const chart of charts) {
    const points = seen.map(({ at, values }) => ({ at, values: values?.get(chart) }));
    chart.draw(chart.about.series ?? drawn, points, now);
  }
}

function say(words, isWell) {
  document.body.classList.toggle("away", !isWell);
  // it is read aloud when it changes, and only then
  if (at("status").textContent !== words) at("status").textContent = words;
}

function note(values) {
  const now = performance.now() / 1000;
  seen = seen.filter((it) => now - it.at <= SHOWN_SECONDS);
  seen.push({ at: now, values });
}

function take(sample) {
  const what = JSON.stringify([sample.pool, sample.dir, sample.slices.length]);
  if (what !== subject) [subject, before, seen] = [what, null, []];
  const happened = since(sample, before);
  note(happened && new Map(charts.map((chart) => [chart, chart.about.of(happened, sample)])));
  before = sample;
  const where = sample.dir ? `on ${sample.dir}, ` : "";
  at("pool").textContent = sample.pool;
  document.title = `nearside ${sample.pool}`;
  at("about").textContent =
    `${where}process ${sample.process}, serving for ${count(sample.serving_seconds)} s`;
  const more = sample.slices.length - SLICES_DRAWN;
  say(`A new sample each second${more > 0 ? `; ${more} slices are not drawn` : ""}.`, true);
  if (happened === null) return;
  fillSlices(happened);
  fillWhole(sample, happened);
  fillCalls(happened);
}

function miss(why) {
  note(null);
  say(`${why}. What was said last stays; the server is asked again each second.`, false);
}

async function ask() {
  const signal = AbortSignal.timeout(PATIENCE_MS);
  const answer = await fetch("sample.json", { cache: "no-store", signal });
  if (!answer.ok) throw new Error(`HTTP status ${answer.status}`);
  return answer.json();
}

async function look() {
  let sample = null;
  try {
    sample = await ask();
  } catch (error) {
    miss(`The server does not answer: ${error.message}`);
  }
  try {
    if (sample !== null) take(sample);
    draw();
  } catch (error) {
    // of another version, perhaps
    miss(`The server is not understood, load this page anew: ${error.message}`);
  }
  setTimeout(look, PAUSE_MS);
}

at("charts").append(...charts.map((chart) => chart.figure));
document.addEventListener("visibilitychange", draw);
look();
