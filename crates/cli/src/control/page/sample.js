// What happened between two samples, as sample.rs tells it for `nearside top`, and numbers for
// people. A module is strict by itself.

// What is counted only grows; a count that did not has begun anew.
const less = (now, old) => Math.max(0, now - (old ?? 0));

// The time in ns below which the calls of a bucket are: see meter.rs.
export function bucketEnd(index) {
  const next = index + 1;
  return index < 4 ? next : (4 + (next % 4)) * 2 ** (Math.floor(next / 4) - 1);
}

// The time that this part of the calls in `buckets` stayed below, ns; null when there were none.
export function quantile(buckets, part) {
  const sorted = [...buckets].sort(([one], [next]) => one - next);
  const all = sorted.reduce((sum, [, count]) => sum + count, 0);
  let seen = 0;
  for (const [index, count] of sorted) {
    seen += count;
    if (count > 0 && seen >= Math.ceil(all * part)) return bucketEnd(index);
  }
  return null;
}

// All that a slice counts, by what it is shown as.
function countsOf(slice) {
  const { workers, copied } = slice;
  const remote = copied.remote_read_bytes + copied.remote_written_bytes;
  const read = copied.local_read_bytes + copied.remote_read_bytes + workers.read_bytes;
  const blocks = copied.local_written_bytes + copied.remote_written_bytes + workers.written_bytes;
  return {
    calls: slice.calls.reduce((sum, call) => sum + call.count, 0),
    read,
    written: blocks + slice.arrived_bytes + slice.log_written_bytes,
    remote,
    copied: read + blocks,
  };
}

function sliceSince(now, before, seconds) {
  const old = before ? countsOf(before) : {};
  const more = {};
  for (const [name, count] of Object.entries(countsOf(now))) more[name] = less(count, old[name]);
  return {
    index: now.index,
    callsPerSecond: more.calls / seconds,
    readPerSecond: more.read / seconds,
    writtenPerSecond: more.written / seconds,
    remotePercent: more.copied > 0 ? Math.min(100, (more.remote / more.copied) * 100) : null,
    busyPercent: now.busy_percent,
    logPercent: percentOf(now.log_used_bytes, now.log_bytes),
    freePercent: percentOf(now.blocks_free, now.blocks),
    cacheBytes: now.cache.map_bytes + now.cache.entry_bytes + now.cache.page_bytes,
  };
}

const percentOf = (part, all) => (part / Math.max(1, all)) * 100;

function callSince(now, before) {
  const old = new Map(before?.buckets);
  return {
    call: now.call,
    count: less(now.count, before?.count),
    errors: less(now.errors, before?.errors),
    bytes: less(now.bytes, before?.bytes),
    nanos: less(now.nanos, before?.nanos),
    buckets: now.buckets.map(([index, count]) => [index, less(count, old.get(index))]),
  };
}

function movesSince(now, before, seconds) {
  if (now === null) return null;
  return {
    dataPerSecond: less(now.data, before?.data) / seconds,
    threadsPerSecond: less(now.threads, before?.threads) / seconds,
  };
}

// What happened between `before` and `now`. Null where they are not of one server, or there is no
// time between them: then nothing is known of what happened.
export function since(now, before) {
  const seconds = now.serving_seconds - (before?.serving_seconds ?? Infinity);
  if (!(seconds > 0) || now.process !== before.process) return null;
  const old = new Map(before.calls.map((call) => [call.call, call]));
  const calls = now.calls.map((call) => callSince(call, old.get(call.call)));
  const all = new Map();
  for (const [index, count] of calls.flatMap((call) => call.buckets)) {
    all.set(index, (all.get(index) ?? 0) + count);
  }
  return {
    seconds,
    calls: calls.filter((call) => call.count > 0).sort((one, next) => next.nanos - one.nanos),
    callsPerSecond: calls.reduce((sum, call) => sum + call.count, 0) / seconds,
    p99: quantile(all, 0.99),
    moves: movesSince(now.moves, before.moves, seconds),
    slices: now.slices.map((slice, at) => sliceSince(slice, before.slices[at], seconds)),
  };
}

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const tenths = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const plain = (value) => (value < 10 ? tenths : whole).format(value);

// In the largest of `units` of which there is one; each is `base` of the one before.
function inUnits(value, base, units) {
  const fits = units.findIndex((_, at) => value < base ** (at + 1));
  const at = fits < 0 ? units.length - 1 : fits;
  return `${plain(value / base ** at)} ${units[at]}`;
}

const known = (show) => (value) => (value ?? null) === null ? "–" : show(value);
const binary = ["B", "KiB", "MiB", "GiB", "TiB"];

export const count = known(plain);
export const perSecond = known((value) => `${plain(value)}/s`);
export const percent = known((value) => `${whole.format(value)} %`);
export const bytes = known((value) => inUnits(value, 1024, binary));
export const bytesPerSecond = known((value) => `${bytes(value)}/s`);
export const nanos = known((value) => inUnits(value, 1000, ["ns", "µs", "ms", "s"]));
