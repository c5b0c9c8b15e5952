"use strict";

// One streamed response brings all cameras: a browser opens only six connections to a server.
const SILENT = 3000; // milliseconds without a picture after which a camera is shown as silent
const cards = new Map();
const byId = (id) => document.getElementById(id);
const token = new URLSearchParams(location.hash.slice(1)).get("token");
let paused = false;

function say(state, text) {
  const line = byId("state");
  if (line.textContent !== text) line.textContent = text;
  line.dataset.state = state;
}

function element(name, parent, className) {
  const made = document.createElement(name);
  if (className) made.className = className;
  parent.append(made);
  return made;
}

function cardOf(camera) {
  let card = cards.get(camera);
  if (card) return card;
  const figure = document.createElement("figure");
  const canvas = element("canvas", figure);
  canvas.tabIndex = 0;
  canvas.setAttribute("role", "img");
  const caption = element("figcaption", figure);
  element("strong", caption).textContent = camera;
  const count = element("span", caption, "count");
  const rate = element("span", caption, "rate");
  const reason = element("p", caption, "reason");
  const values = element("dl", caption);
  const grow = () => figure.classList.toggle("large");
  canvas.addEventListener("click", grow);
  canvas.addEventListener("keydown", (event) => {
    if (event.key === "Enter" || event.key === " ") { event.preventDefault(); grow(); }
  });
  card = { camera, figure, canvas, count, rate, reason, values, told: null, times: [], drawn: 0, busy: false, next: null };
  const after = [...cards.keys()].filter((name) => name > camera).sort()[0];
  byId("cameras").insertBefore(figure, after === undefined ? null : cards.get(after).figure);
  cards.set(camera, card);
  byId("none").hidden = true;
  return card;
}

function colour(box) {
  if (box.id) return `hsl(${(box.id * 134) % 360} 90% 60%)`;
  let sum = 7;
  for (const letter of box.label) sum = (sum * 31 + letter.codePointAt(0)) % 360;
  return `hsl(${sum} 90% 60%)`;
}

function drawBoxes(pen, facts, width, height) {
  pen.lineWidth = Math.max(2, width / 320);
  pen.font = `600 ${Math.max(12, width / 45)}px system-ui, sans-serif`;
  pen.textBaseline = "top";
  const high = Math.max(12, width / 45) + 6;
  for (const box of facts.boxes) {
    const [x, y, w, h] = [box.box[0] * width, box.box[1] * height, box.box[2] * width, box.box[3] * height];
    pen.strokeStyle = pen.fillStyle = colour(box);
    pen.strokeRect(x, y, w, h);
    if (!box.text) continue;
    const top = y >= high ? y - high : y;
    pen.fillRect(x, top, pen.measureText(box.text).width + 8, high);
    pen.fillStyle = "#000";
    pen.fillText(box.text, x + 4, top + 3);
  }
}

// Milliseconds since 1970, from 2001 on, in a value that is called a time.
function valueText(name, value) {
  if (typeof value !== "number") return value;
  const isTime = /time|^ts$|_at$|stamp/i.test(name) && value > 1e12 && value < 1e13;
  return isTime ? new Date(value).toLocaleString() : Number(value.toFixed(3));
}

// The name of the camera is above its values already.
function tellValues(card, facts) {
  const values = Object.entries(facts.values).filter(([, value]) => value !== card.camera);
  const shown = byId("values").checked ? values : [];
  card.values.replaceChildren(...shown.map(([name, value]) => {
    const pair = document.createElement("div");
    element("dt", pair).textContent = name;
    element("dd", pair).textContent = valueText(name, value);
    return pair;
  }));
}

async function show(card, facts, jpeg) {
  if (card.busy) { card.next = [facts, jpeg]; return; }
  card.busy = true;
  try {
    const picture = await createImageBitmap(new Blob([jpeg], { type: "image/jpeg" }));
    const { canvas } = card;
    if (canvas.width !== picture.width || canvas.height !== picture.height) {
      canvas.width = picture.width;
      canvas.height = picture.height;
    }
    const pen = canvas.getContext("2d");
    pen.drawImage(picture, 0, 0);
    picture.close();
    if (byId("boxes").checked) drawBoxes(pen, facts, canvas.width, canvas.height);
    const count = facts.boxes.length;
    const boxes = `${count} ${count === 1 ? "box" : "boxes"}`;
    canvas.setAttribute("aria-label", `${card.camera}: ${boxes}`);
    card.count.textContent = boxes;
    tellValues(card, facts);
    card.drawn += 1;
    canvas.dataset.drawn = card.drawn;
    canvas.dataset.boxes = count;
    card.times.push(performance.now());
  } catch (error) {
    console.warn(`a picture of ${card.camera} cannot be shown`, error);
  } finally {
    card.busy = false;
  }
  const next = card.next;
  card.next = null;
  if (next) show(card, ...next);
}

function take(facts, jpeg) {
  if (facts.title !== undefined) {
    byId("title").textContent = facts.title;
    document.title = facts.title;
    for (const [camera, told] of Object.entries(facts.states)) cardOf(camera).told = told;
  } else if (!paused) {
    show(cardOf(facts.camera), facts, jpeg);
  }
}

// What a camera does that gives no pictures, and since when; empty where only the page lacks them.
function trouble(told) {
  if (!told || told.state === "live") return "";
  const age = told.last_picture_seconds;
  return `${told.state}, ${age === null ? "no picture yet" : `last picture ${lasting(age)} ago`}`;
}

function lasting(seconds) {
  if (seconds < 120) return `${Math.round(seconds)} s`;
  return seconds < 7200 ? `${Math.round(seconds / 60)} min` : `${Math.round(seconds / 3600)} h`;
}

async function read(body) {
  const reader = body.getReader();
  let held = new Uint8Array(0);
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const joined = new Uint8Array(held.length + value.length);
    joined.set(held);
    joined.set(value, held.length);
    held = joined;
    for (;;) {
      if (held.length < 8) break;
      const view = new DataView(held.buffer, held.byteOffset, held.byteLength);
      const first = view.getUint32(0);
      if (held.length < 8 + first) break;
      const second = view.getUint32(4 + first);
      if (held.length < 8 + first + second) break;
      const facts = JSON.parse(new TextDecoder().decode(held.subarray(4, 4 + first)));
      take(facts, held.slice(8 + first, 8 + first + second));
      held = held.slice(8 + first + second);
    }
  }
}

async function watch() {
  for (let wait = 500; ; wait = Math.min(wait * 2, 10000)) {
    try {
      const headers = token ? { Authorization: `Bearer ${token}` } : {};
      const response = await fetch("stream", { headers, cache: "no-store" });
      if (response.status === 401) {
        say("away", "a token is needed: open this page with #token=TOKEN behind its address");
        return;
      }
      if (!response.ok) throw new Error(`the server answers ${response.status}`);
      say("live", "live");
      wait = 500;
      await read(response.body);
      say("away", "the service has ended; trying again");
    } catch (error) {
      say("away", "the service is away; trying again");
    }
    await new Promise((resolve) => setTimeout(resolve, wait));
  }
}

setInterval(() => {
  const now = performance.now();
  for (const card of cards.values()) {
    card.times = card.times.filter((time) => time > now - 5000);
    const last = card.times.at(-1) ?? 0;
    const down = trouble(card.told);
    const silent = !paused && (now - last > SILENT || (down !== "" && !card.times.length));
    card.figure.classList.toggle("silent", silent);
    const span = card.times.length > 1 ? (last - card.times[0]) / 1000 : 0;
    card.reason.textContent = (down && card.told.reason) || "";
    if (!card.drawn) card.canvas.setAttribute("aria-label", `${card.camera}: no picture yet`);
    card.rate.textContent = silent ? down || "silent" : span ? `${((card.times.length - 1) / span).toFixed(1)} fps` : "";
  }
}, 500);

byId("pause").addEventListener("click", () => {
  paused = !paused;
  byId("pause").setAttribute("aria-pressed", String(paused));
  byId("pause").textContent = paused ? "Go on" : "Pause";
});
watch();
