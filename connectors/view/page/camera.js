// The picture of one camera with what is known about it.

import { drawBoxes, drawPlaces, colour, penOf } from "./drawing.js";
import { boxCounts, clock, lasting, placeCounts, stateInWords, valueText } from "./words.js";

const MINUTES = { hour: "2-digit", minute: "2-digit" };
const SILENT = 3000; // milliseconds without a picture after which a camera is shown as silent

export function element(name, parent, className) {
  const made = document.createElement(name);
  if (className) made.className = className;
  parent.append(made);
  return made;
}

function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export class Camera {
  drawn = 0;
  told = null; // the state that the service tells
  facts = null;
  #times = [];
  #busy = false;
  #next = null;
  #shownSince = performance.now();

  constructor(name, enlarge) {
    this.name = name;
    this.figure = document.createElement("figure");
    this.button = element("button", this.figure, "stage");
    this.button.type = "button";
    this.button.addEventListener("click", () => enlarge(this));
    this.canvas = element("canvas", this.button);
    this.canvas.width = 640;
    this.canvas.height = 360;
    this.canvas.setAttribute("role", "img");
    this.trouble = element("span", this.button, "trouble");
    this.trouble.hidden = true;
    this.troubleTitle = element("b", this.trouble);
    this.troubleSince = element("span", this.trouble);
    this.reason = element("span", this.trouble, "reason");
    const caption = this.caption = element("figcaption", this.figure);
    const first = element("div", caption, "first");
    element("strong", first).textContent = name;
    this.count = element("span", first, "count");
    this.rate = element("span", first, "rate");
    this.objects = element("ul", caption, "objects");
    const more = element("div", caption, "more");
    this.places = element("ul", more, "places");
    this.values = element("dl", more);
  }

  get ratio() {
    return this.canvas.width / this.canvas.height;
  }

  get hasMore() {
    return this.values.childElementCount + this.places.childElementCount > 0;
  }

  // It is shown again: a picture that did not come while it was hidden is not missing.
  returns() {
    this.#shownSince = performance.now();
  }

  async show(facts, jpeg, options) {
    if (this.#busy) { this.#next = [facts, jpeg]; return; }
    this.#busy = true;
    try {
      const picture = await createImageBitmap(new Blob([jpeg], { type: "image/jpeg" }));
      const { canvas } = this;
      if (canvas.width !== picture.width || canvas.height !== picture.height) {
        const before = this.ratio;
        canvas.width = picture.width;
        canvas.height = picture.height;
        if (Math.abs(before - this.ratio) > 0.01 || !this.drawn) options.changed();
      }
      const pen = penOf(canvas, Math.min(this.button.clientWidth, this.button.clientHeight * this.ratio));
      pen.drawImage(picture, 0, 0);
      picture.close();
      const places = options.places(this.name).map((place) => ({ ...place, counts: facts.counts[place.name] }));
      if (options.zones) drawPlaces(pen, places, facts, canvas.width, canvas.height);
      if (options.boxes) drawBoxes(pen, facts.boxes, canvas.width, canvas.height);
      this.facts = facts;
      this.#tell(facts, options);
      this.drawn += 1;
      canvas.dataset.drawn = this.drawn;
      canvas.dataset.boxes = facts.boxes.length;
      this.#times.push(performance.now());
    } catch (error) {
      console.warn(`a picture of ${this.name} cannot be shown`, error);
    } finally {
      this.#busy = false;
    }
    const next = this.#next;
    this.#next = null;
    if (next) this.show(...next, options);
  }

  // Whether it gives pictures at present, its rate, and what is wrong if it does not.
  tick(paused) {
    const now = performance.now();
    this.#times = this.#times.filter((time) => time > now - 5000);
    const last = Math.max(this.#times.at(-1) ?? 0, this.#shownSince);
    const isDown = this.told && this.told.state !== "live";
    const isSilent = !paused && (now - last > SILENT || (isDown && !this.#times.length));
    this.figure.classList.toggle("silent", isSilent);
    this.trouble.hidden = !isSilent;
    if (isSilent) this.#tellTrouble(isDown, (now - last) / 1000);
    const span = this.#times.length > 1 ? (this.#times.at(-1) - this.#times[0]) / 1000 : 0;
    const rate = span ? `${((this.#times.length - 1) / span).toFixed(1)} fps` : "";
    setText(this.rate, isSilent ? (isDown ? this.told.state : "silent") : rate);
    if (!this.drawn) this.#name("no picture yet");
    return isSilent;
  }

  #tellTrouble(isDown, silentSeconds) {
    setText(this.troubleTitle, isDown ? stateInWords(this.told.state) : "No pictures");
    const seconds = isDown ? this.told.silent_seconds : silentSeconds;
    const isNew = isDown && this.told.last_picture_seconds === null;
    const since = isNew ? "no picture yet, for" : `no picture since ${clock(Date.now() - seconds * 1000, MINUTES)}, for`;
    setText(this.troubleSince, `${since} ${lasting(seconds)}`);
    setText(this.reason, (isDown && this.told.reason) || "");
  }

  #tell(facts, options) {
    const counts = boxCounts(facts.boxes);
    setText(this.count, counts);
    this.#name(counts);
    const items = (list, texts) => {
      while (list.childElementCount > texts.length) list.lastChild.remove();
      texts.forEach(([text, dot], at) => {
        const item = list.children[at] ?? element("li", list);
        setText(item, text);
        item.style.setProperty("--dot", dot ?? "transparent");
      });
    };
    items(this.objects, facts.boxes.slice(0, 40).map((box) => [box.text || "box", colour(box)]));
    items(this.places, Object.entries(facts.counts).map(([name, numbers]) => [placeCounts(name, numbers, options.alone)]));
    // The name of the camera is above its values already.
    const values = options.values ? Object.entries(facts.values).filter(([, value]) => value !== this.name) : [];
    if (values.map(([name]) => name).join() !== [...this.values.querySelectorAll("dt")].map((one) => one.textContent).join()) {
      this.values.replaceChildren(...values.map(([name]) => {
        const pair = document.createElement("div");
        element("dt", pair).textContent = name;
        element("dd", pair);
        return pair;
      }));
      options.changed();
    }
    values.forEach(([name, value], at) => setText(this.values.children[at].lastChild, valueText(name, value)));
  }

  // What the picture shows, for those who do not see it.
  #name(text) {
    const label = `${this.name}: ${text}`;
    if (this.canvas.getAttribute("aria-label") === label) return;
    this.canvas.setAttribute("aria-label", label);
    this.button.setAttribute("aria-label", label);
  }
}
