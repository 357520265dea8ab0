// A chart: a line for each series over the last minutes, a legend with what they are now. Drawn
// anew for each sample, as wide as there is room.

export const SHOWN_SECONDS = 300;
const HEIGHT = 150;
const MARGIN = { left: 74, right: 12, top: 10, bottom: 22 };
// As many as style.css has; who comes later gets one of them with dashes.
const COLOURS = 8;
const DASHES = 3;

function element(tag, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

const isKnown = (value) => value !== null && value !== undefined;
const classOf = (at) => `line colour${at % COLOURS} dash${Math.floor(at / COLOURS) % DASHES}`;

// The next of 1, 2, 5, 10, 20, 50... of a unit that is not below `value`.
export function topOf(value, base) {
  const unit = base ** Math.max(0, Math.floor(Math.log2(value) / Math.log2(base)));
  const step = 10 ** Math.floor(Math.log10(value / unit));
  return [1, 2, 5, 10].map((times) => times * step * unit).find((top) => top >= value) ?? value;
}

export class Chart {
  // `about` has a name, a title, what shows a number (show), what it says where nothing is known
  // (none), and the least value at the top (least); base is 1024 for bytes; a fixed top is top.
  constructor(about) {
    this.about = about;
    this.svg = element("svg", { role: "img", height: HEIGHT });
    this.legend = document.createElement("ul");
    this.figure = document.createElement("figure");
    this.figure.dataset.chart = about.name;
    const caption = document.createElement("figcaption");
    caption.textContent = about.title;
    this.figure.append(caption, this.svg, this.legend);
  }

  // Draws `points`, each the values of all `series` at a time in seconds; none where there is a
  // gap, and none of a series of which it is not known.
  draw(series, points, now) {
    const width = Math.max(200, this.svg.clientWidth);
    const values = points.flatMap((point) => point.values ?? []).filter(isKnown);
    const highest = values.reduce((most, value) => Math.max(most, value), this.about.least ?? 1);
    const top = this.about.top ?? topOf(highest, this.about.base ?? 1000);
    const right = width - MARGIN.right;
    const bottom = HEIGHT - MARGIN.bottom;
    const x = (at) => right - ((now - at) / SHOWN_SECONDS) * (right - MARGIN.left);
    const y = (value) => bottom - (Math.min(value, top) / top) * (bottom - MARGIN.top);
    this.svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    const axes = [...this.values(top, y, right), ...this.times(now, x, bottom)];
    const lines = series.map((name, at) => {
      const path = pathOf(points, at, x, y);
      return element("path", { class: classOf(at), d: path, "data-series": name });
    });
    this.svg.replaceChildren(...axes, ...lines);
    if (values.length === 0) {
      const place = { class: "none", x: (MARGIN.left + right) / 2, y: bottom / 2 + MARGIN.top };
      this.svg.append(element("text", place, this.about.none ?? "nothing yet"));
    }
    this.tell(series, points.at(-1)?.values ?? []);
  }

  values(top, y, right) {
    const { show } = this.about;
    return [0, top / 2, top].flatMap((value) => [
      element("line", { class: "grid", x1: MARGIN.left, x2: right, y1: y(value), y2: y(value) }),
      element("text", { class: "value", x: MARGIN.left - 6, y: y(value) + 4 }, show(value)),
    ]);
  }

  times(now, x, bottom) {
    const minutes = Array.from({ length: SHOWN_SECONDS / 60 }, (_, minute) => minute);
    return minutes.map((minute) => {
      const [words, kind] = minute === 0 ? ["now", "now"] : [`−${minute} min`, "time"];
      const place = { class: kind, x: x(now - minute * 60), y: bottom + 16 };
      return element("text", place, words);
    });
  }

  tell(series, values) {
    const entries = series.map((name, at) => {
      const entry = document.createElement("li");
      const line = element("line", { class: classOf(at), x1: 0, x2: 18, y1: 4, y2: 4 });
      const value = document.createElement("b");
      value.textContent = this.about.show(values[at]);
      entry.append(element("svg", { width: 18, height: 8 }, line), ` ${name} `, value);
      return entry;
    });
    this.legend.replaceChildren(...entries);
    const told = series.map((name, at) => `${name} ${this.about.show(values[at])}`).join(", ");
    this.svg.setAttribute("aria-label", `${this.about.title}, now: ${told}`);
  }
}

// The line of the series `at`: broken where its value is not known. What is known for a moment only
// is a dot.
function pathOf(points, at, x, y) {
  let path = "";
  let drawn = false;
  for (const point of points) {
    const value = point.values?.[at];
    if (isKnown(value)) {
      const place = `${x(point.at).toFixed(1)} ${y(value).toFixed(1)}`;
      path += drawn ? `L${place}` : `M${place}h0`;
    }
    drawn = isKnown(value);
  }
  return path;
}
