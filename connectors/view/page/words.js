// Numbers, times and states in words.

// What a camera does that gives no pictures.
const STATES = {
  connecting: "Connecting",
  stalled: "Sends no pictures",
  backoff: "Away, trying again",
  ended: "The recording has ended",
  failed: "Cannot be read",
};

export function stateInWords(state) {
  return STATES[state] ?? state;
}

export function lasting(seconds) {
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  return seconds < 172800 ? `${Math.round(seconds / 3600)} h` : `${Math.round(seconds / 86400)} days`;
}

// The time of day, with the day if it is not today.
export function clock(milliseconds, digits = { hour: "2-digit", minute: "2-digit", second: "2-digit" }) {
  const moment = new Date(milliseconds);
  const time = moment.toLocaleTimeString([], digits);
  const isToday = moment.toDateString() === new Date().toDateString();
  return isToday ? time : `${moment.toLocaleDateString([], { day: "numeric", month: "short" })}, ${time}`;
}

// Milliseconds since 1970, from 2001 on, in a value that is called a time.
export function valueText(name, value) {
  if (typeof value !== "number") return String(value);
  const isTime = /time|^ts$|_at$|stamp/i.test(name) && value > 1e12 && value < 1e13;
  return isTime ? clock(value) : String(Number(value.toFixed(3)));
}

// How many boxes of each label: "person 2, car 1"; without labels "2 boxes".
export function boxCounts(boxes) {
  if (!boxes.some(({ label }) => label)) return `${boxes.length} ${boxes.length === 1 ? "box" : "boxes"}`;
  const counts = new Map();
  for (const { label } of boxes) counts.set(label || "box", (counts.get(label || "box") ?? 0) + 1);
  const sorted = [...counts].sort((a, b) => b[1] - a[1]);
  const rest = sorted.slice(3).reduce((sum, [, count]) => sum + count, 0);
  return [...sorted.slice(0, 3), ...(rest ? [["others", rest]] : [])].map((pair) => pair.join(" ")).join(", ");
}

// What a zone or line counts: "hall 2"; with `all` its numbers "hall: 2 inside, 5 entered, 3 left".
export function placeCounts(name, counts, all) {
  const { inside, in: into, out } = counts;
  if (!all && inside !== undefined) return `${name} ${inside}`;
  if (!all && into !== undefined) return `${name} in ${into} out ${out}`;
  return `${name}: ${Object.entries(counts).map(([what, count]) => `${count} ${what}`).join(", ")}`;
}
