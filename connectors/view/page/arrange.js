// How many cameras stand beside one another, and how large: as large as they can be.

const GAP = 12;
const NARROWEST = 280; // pixels; narrower cameras are not put side by side to avoid scrolling

// The columns and the size of each of `count` cameras, in a room of this size; `ratio` is width by height of a picture,
// `caption` the height of what is below it. If they are too small that way, they are higher than the room.
export function arranged(count, width, height, ratio, caption) {
  let best = null;
  for (let columns = 1; columns <= count; columns += 1) {
    const rows = Math.ceil(count / columns);
    const wide = (width - GAP * (columns - 1)) / columns;
    const high = (height - GAP * (rows - 1)) / rows - caption;
    const across = Math.floor(Math.min(wide, high * ratio));
    if (!best || across > best.width) best = { columns, width: across };
  }
  if (best.width < Math.min(NARROWEST, width)) {
    const columns = Math.max(1, Math.floor((width + GAP) / (NARROWEST + 60 + GAP)));
    best = { columns, width: Math.floor((width - GAP * (columns - 1)) / columns) };
  }
  const across = best.columns * best.width + (best.columns - 1) * GAP;
  return { ...best, across, height: Math.round(best.width / ratio) + caption };
}
