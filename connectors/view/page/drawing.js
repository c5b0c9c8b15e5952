// Boxes, zones and lines over a picture.

export function colour({ id, label }) {
  if (id) return `hsl(${(id * 134) % 360} 85% 62%)`;
  let sum = 7;
  for (const letter of label) sum = (sum * 31 + letter.codePointAt(0)) % 360;
  return `hsl(${sum} 85% 62%)`;
}

// A pen whose lines and letters have the same size on the screen, whatever the size of the picture and of the canvas.
export function penOf(canvas, shownWidth) {
  const pen = canvas.getContext("2d");
  const unit = canvas.width / Math.max(shownWidth, 1);
  pen.unit = Math.min(Math.max(unit, 0.25), 4);
  pen.lineJoin = "round";
  pen.font = `600 ${12.5 * pen.unit}px system-ui, sans-serif`;
  pen.textBaseline = "middle";
  return pen;
}

export function drawBoxes(pen, boxes, width, height) {
  for (const one of boxes) {
    const [x, y, w, h] = [one.box[0] * width, one.box[1] * height, one.box[2] * width, one.box[3] * height];
    // A dark edge keeps the box apart from bright pictures.
    for (const [style, size] of [["rgb(0 0 0 / .45)", 4], [colour(one), 2]]) {
      pen.strokeStyle = style;
      pen.lineWidth = size * pen.unit;
      pen.strokeRect(x, y, w, h);
    }
    if (one.text) label(pen, one.text, x - pen.unit, y, colour(one), "#000", width, height);
  }
}

// Each place is {name, kind, points, counts}; a line's points go from its start to its end.
export function drawPlaces(pen, places, facts, width, height) {
  for (const place of places) {
    const spots = place.points.map(([x, y]) => spot(x, y, place.points, facts, width, height));
    pen.beginPath();
    spots.forEach(([x, y], at) => (at ? pen.lineTo(x, y) : pen.moveTo(x, y)));
    if (place.kind === "zone") {
      pen.closePath();
      pen.fillStyle = place.counts?.inside ? "rgb(255 196 61 / .22)" : "rgb(255 255 255 / .1)";
      pen.fill();
    }
    for (const [style, size] of [["rgb(0 0 0 / .5)", 3.5], [place.counts?.inside ? "#ffc43d" : "#fff", 1.5]]) {
      pen.strokeStyle = style;
      pen.lineWidth = size * pen.unit;
      pen.stroke();
    }
    if (place.kind === "line") arrow(pen, spots);
    const [x, y] = spots.reduce((best, one) => (one[0] + one[1] < best[0] + best[1] ? one : best));
    label(pen, placeText(place), x, y, "rgb(15 17 22 / .8)", "#fff", width, height);
  }
}

function placeText({ name, kind, counts }) {
  if (!counts) return name;
  if (kind === "zone") return `${name} ${counts.inside ?? ""}`.trim();
  return `${name} in ${counts.in ?? 0} out ${counts.out ?? 0}`;
}

// As for boxes: small numbers are fractions of the picture's size, others are pixels.
function spot(x, y, points, facts, width, height) {
  const inPixels = points.some((point) => point.some((number) => Math.abs(number) > 2));
  return inPixels ? [(x / facts.width) * width, (y / facts.height) * height] : [x * width, y * height];
}

// From the middle of a line to its right, seen from its start: the way that counts as in.
function arrow(pen, [[x1, y1], [x2, y2]]) {
  const length = Math.hypot(x2 - x1, y2 - y1);
  if (!length) return;
  const [along, across] = [(x2 - x1) / length, (y2 - y1) / length];
  const [x, y, size] = [(x1 + x2) / 2, (y1 + y2) / 2, 9 * pen.unit];
  pen.beginPath();
  pen.moveTo(x + along * size * 0.6, y + across * size * 0.6);
  pen.lineTo(x - across * size, y + along * size);
  pen.lineTo(x - along * size * 0.6, y - across * size * 0.6);
  pen.fillStyle = "#fff";
  pen.fill();
}

// A text above this place, or below it at the upper edge, and never beyond the right one.
function label(pen, text, x, y, back, front, width, height) {
  const high = 19 * pen.unit;
  const wide = pen.measureText(text).width + 10 * pen.unit;
  const left = Math.min(Math.max(x, 0), Math.max(width - wide, 0));
  const top = Math.min(Math.max(y >= high ? y - high : y, 0), height - high);
  pen.fillStyle = back;
  pen.beginPath();
  pen.roundRect(left, top, wide, high, 3 * pen.unit);
  pen.fill();
  pen.fillStyle = front;
  pen.fillText(text, left + 5 * pen.unit, top + high / 2 + pen.unit * 0.5);
}
