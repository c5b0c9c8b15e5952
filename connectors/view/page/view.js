// The page of the sink `view`: all cameras, or one of them large, and the last events.

import { arranged } from "./arrange.js";
import { Camera } from "./camera.js";
import { Events } from "./events.js";
import { Stream } from "./stream.js";

const byId = (id) => document.getElementById(id);
const main = byId("cameras");
const cameras = new Map();
let places = [];
let large = null; // the camera that is shown alone
let paused = false;
let pictureWidth = 640; // pixels in which pictures are shown
let isArranging = false;

const options = {
  get boxes() { return byId("boxes").checked; },
  get zones() { return byId("zones").checked; },
  get values() { return byId("values").checked; },
  get alone() { return document.body.classList.contains("large"); },
  places: (camera) => places.filter((place) => place.cameras === null || place.cameras.includes(camera)),
  changed: arrangeSoon,
};

// Of the window, and of the text below a picture that is shown alone.
const sizes = new ResizeObserver(arrangeSoon);
const events = new Events(showEvents);
const stream = new Stream(take, say, () => ({
  width: pictureWidth,
  ...(large && { camera: large.name }),
  ...(events.after && { after: events.after }),
}));

function say(state, text = "live") {
  const line = byId("state");
  const down = [...cameras.values()].filter((camera) => camera.figure.classList.contains("silent")).length;
  const all = cameras.size > 1 ? ` · ${cameras.size} cameras` : "";
  const words = state === "live" ? `${text}${all}${down ? `, ${down} without pictures` : ""}` : text;
  if (line.textContent !== words) line.textContent = words;
  line.dataset.state = state === "live" && down ? "partly" : state;
}

function cameraOf(name) {
  let camera = cameras.get(name);
  if (camera) return camera;
  camera = new Camera(name, (chosen) => enlarge(large ? null : chosen));
  const after = [...cameras.keys()].filter((other) => other > name).sort()[0];
  main.insertBefore(camera.figure, after === undefined ? null : cameras.get(after).figure);
  cameras.set(name, camera);
  sizes.observe(camera.caption);
  byId("none").hidden = true;
  arrangeSoon();
  return camera;
}

function enlarge(camera) {
  if (camera === large || (camera && cameras.size < 2)) return;
  large = camera;
  for (const one of cameras.values()) one.returns();
  byId("back").hidden = !large;
  byId("back").textContent = `All ${cameras.size} cameras`;
  arrange();
}

function arrangeSoon() {
  if (isArranging) return;
  isArranging = true;
  requestAnimationFrame(() => { isArranging = false; arrange(); });
}

function arrange() {
  const shown = large ? [large] : [...cameras.values()];
  for (const camera of cameras.values()) camera.figure.hidden = large !== null && camera !== large;
  if (!shown.length) return;
  document.body.classList.toggle("large", shown.length === 1);
  const edge = parseFloat(getComputedStyle(main).paddingTop);
  const width = main.clientWidth - 2 * edge;
  const room = Math.max(window.innerHeight - document.querySelector("header").offsetHeight, 240);
  const height = room - 2 * edge;
  const ratios = shown.map((camera) => camera.ratio).sort((a, b) => a - b);
  const caption = shown.length === 1 ? Math.min(shown[0].caption.scrollHeight, Math.floor(window.innerHeight / 3))
    : shown.some((camera) => camera.hasMore) ? 62 : 40;
  const plan = arranged(shown.length, width, height, ratios[Math.floor(ratios.length / 2)], caption);
  main.style.setProperty("--wide", `${plan.width}px`);
  main.style.setProperty("--high", `${plan.height}px`);
  main.style.setProperty("--caption", `${caption}px`);
  main.dataset.columns = plan.columns;
  // No more of them stand in a row than planned, and those of the last row stand in the middle.
  main.style.paddingInline = `${Math.max(edge, Math.floor((main.clientWidth - plan.across) / 2))}px`;
  const wanted = Math.ceil(plan.width * Math.min(window.devicePixelRatio || 1, 3));
  // Small changes are not worth a new request.
  if (wanted > pictureWidth || wanted < pictureWidth * 0.7) pictureWidth = wanted;
  stream.wanted();
}

function showEvents() {
  const hasEvents = events.count > 0;
  byId("events-tool").hidden = !hasEvents;
  const isShown = hasEvents && byId("events-shown").checked;
  if (byId("events").hidden === isShown) {
    byId("events").hidden = !isShown;
    arrangeSoon();
  }
}

function take(facts, jpeg) {
  if (facts.events !== undefined) {
    events.take(facts);
  } else if (facts.title !== undefined) {
    byId("title").textContent = facts.title;
    document.title = facts.title;
    if (facts.places !== undefined) {
      places = facts.places;
      byId("zones-tool").hidden = !places.length;
    }
    for (const [name, told] of Object.entries(facts.states)) cameraOf(name).told = told;
  } else if (!paused) {
    cameraOf(facts.camera).show(facts, jpeg, options);
  }
}

setInterval(() => {
  for (const camera of cameras.values()) if (!camera.figure.hidden) camera.tick(paused);
  if (["live", "partly"].includes(byId("state").dataset.state)) say("live");
}, 500);

byId("pause").addEventListener("click", () => {
  paused = !paused;
  byId("pause").setAttribute("aria-pressed", String(paused));
  byId("pause").textContent = paused ? "Go on" : "Pause";
});
byId("back").addEventListener("click", () => { const before = large; enlarge(null); before?.button.focus(); });
byId("events-shown").addEventListener("change", showEvents);
document.addEventListener("keydown", (event) => {
  if (!large || byId("event").open) return;
  if (event.key === "Escape") byId("back").click();
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!step) return;
  const all = [...main.querySelectorAll("figure")];
  const next = all.at((all.indexOf(large.figure) + step) % all.length);
  enlarge([...cameras.values()].find((camera) => camera.figure === next));
  large.button.focus();
});
sizes.observe(main);
window.addEventListener("resize", arrangeSoon);
stream.run();
