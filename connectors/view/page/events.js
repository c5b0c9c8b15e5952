// The list of the last events, and the window that shows the picture or clip of one.

import { element } from "./camera.js";
import { addressOf, fetched } from "./stream.js";
import { clock } from "./words.js";

const byId = (id) => document.getElementById(id);

export class Events {
  #run = "";
  #revision = 0;
  #items = new Map();
  #pictures = new Map(); // number of a picture -> the promise of its address here
  #open = null;

  // `changed` is called when the list appears.
  constructor(changed) {
    this.changed = changed;
    this.list = byId("event-list");
    // Pictures are loaded when somebody comes near them.
    this.watching = new IntersectionObserver((entries) => {
      for (const entry of entries) if (entry.isIntersecting) this.#load(entry.target);
    }, { rootMargin: "200px" });
    const dialog = byId("event");
    dialog.addEventListener("close", () => { this.#open = null; dialog.querySelector(".shown").replaceChildren(); });
    dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
  }

  // What the page has, for the next request.
  get after() {
    return this.#run ? `${this.#run}-${this.#revision}` : "";
  }

  get count() {
    return this.#items.size;
  }

  take({ run, revision, oldest, events }) {
    if (run !== this.#run) this.#forget(Infinity);
    this.#run = run;
    this.#revision = revision;
    for (const event of events) this.#put(event);
    this.#forget(oldest);
    this.changed();
  }

  #put(event) {
    const before = this.#items.get(event.number);
    const item = document.createElement("li");
    item.time = event.time;
    const button = element("button", item);
    button.type = "button";
    button.disabled = event.picture === null && event.clip === null;
    const picture = element("span", button, "picture");
    if (event.picture !== null) picture.dataset.picture = event.picture;
    if (event.clip !== null) picture.classList.add("clip");
    const words = element("span", button, "words");
    element("strong", words).textContent = event.text;
    const place = element("span", words);
    element("time", place).textContent = clock(event.time);
    place.firstChild.dateTime = new Date(event.time).toISOString();
    place.append(` · ${event.camera}${event.clip === null ? "" : " · clip"}`);
    button.addEventListener("click", () => this.#show(event));
    if (before) {
      // What has the focus keeps it.
      const focused = before.contains(document.activeElement);
      before.replaceWith(item);
      if (focused) button.focus();
    } else {
      // The newest is first; a clip is told of when it has ended.
      this.list.insertBefore(item, [...this.list.children].find((other) => other.time <= event.time) ?? null);
    }
    this.#items.set(event.number, item);
    if (event.picture !== null) this.watching.observe(picture);
  }

  #forget(oldest) {
    const used = new Set();
    for (const [number, item] of this.#items) {
      if (number < oldest) {
        item.remove();
        this.#items.delete(number);
      } else {
        used.add(Number(item.querySelector(".picture").dataset.picture));
      }
    }
    for (const [number, address] of this.#pictures) {
      if (used.has(number)) continue;
      this.#pictures.delete(number);
      address.then((url) => url && URL.revokeObjectURL(url));
    }
  }

  #address(number) {
    if (!this.#pictures.has(number)) {
      this.#pictures.set(number, fetched(`events/${number}.jpg`)
        .then(async (answer) => (answer.ok ? URL.createObjectURL(await answer.blob()) : null))
        .catch(() => null));
    }
    return this.#pictures.get(number);
  }

  async #load(place) {
    this.watching.unobserve(place);
    const url = await this.#address(Number(place.dataset.picture));
    if (!url || place.querySelector("img")) return;
    const image = element("img", place);
    image.alt = "";
    image.src = url;
  }

  async #show(event) {
    const dialog = byId("event");
    const shown = dialog.querySelector(".shown");
    this.#open = event.number;
    byId("event-text").textContent = event.text;
    byId("event-place").textContent = `${event.camera}, ${new Date(event.time).toLocaleString()}`;
    const file = byId("event-file");
    file.hidden = event.clip === null;
    if (event.clip !== null) {
      file.href = addressOf(`clips/${event.clip}`);
      file.download = "";
      const video = element("video", shown);
      video.controls = video.autoplay = video.muted = true;
      video.setAttribute("aria-label", `${event.camera}: ${event.text}`);
      video.addEventListener("error", () => {
        shown.replaceChildren();
        element("p", shown).textContent = "This browser cannot play the clip, or it was deleted. Download it for a player.";
      });
      video.src = file.href;
      dialog.showModal();
      return;
    }
    dialog.showModal();
    const url = await this.#address(event.picture);
    if (this.#open !== event.number || !url) return;
    const image = element("img", shown);
    image.alt = `${event.camera}: ${event.text}`;
    image.src = url;
  }
}
