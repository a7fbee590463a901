// Figures over columns. Values are numbers or null; rows without both are left out.

export const numbers = (values) => values.filter((one) => one !== null && Number.isFinite(one));

// Classes of a column: whole numbers that are few have one each, others twenty of equal width. Scores on a scale to 5 show
// the whole scale, which begins at `lowest`.
export function classesOf(values, lowest) {
  const held = numbers(values);
  if (!held.length) return [];
  const distinct = new Set(held);
  let low = Infinity;
  let high = -Infinity;
  for (const one of held) {
    if (one < low) low = one;
    if (one > high) high = one;
  }
  const isWhole = distinct.size <= 12 && [...distinct].every(Number.isInteger);
  if (isWhole && low >= lowest && high > 1 && high <= 5) [low, high] = [lowest, 5];
  if (isWhole && high - low <= 24) {
    const classes = [];
    for (let at = low; at <= high; at++) classes.push({ low: at, high: at, label: String(at), count: 0 });
    for (const one of held) classes[one - low].count += 1;
    return classes;
  }
  if (low === high) return [{ low, high, label: shown(low), count: held.length }];
  const width = (high - low) / 20;
  const classes = Array.from({ length: 20 }, (_, at) => ({
    low: low + at * width,
    high: at === 19 ? high : low + (at + 1) * width,
    label: `${shown(low + at * width)} to ${shown(low + (at + 1) * width)}`,
    count: 0,
  }));
  for (const one of held) classes[Math.min(19, Math.floor((one - low) / width))].count += 1;
  return classes;
}

const shown = (one) => Number(one.toPrecision(3)).toLocaleString("en");

export const mean = (values) => {
  const held = numbers(values);
  return held.length ? held.reduce((sum, one) => sum + one, 0) / held.length : null;
};

// Pearson's correlation; null where one of both does not vary.
export function correlation(xs, ys) {
  let n = 0, sx = 0, sy = 0;
  const both = (at) => xs[at] !== null && ys[at] !== null;
  for (let at = 0; at < xs.length; at++) if (both(at)) (n++, (sx += xs[at]), (sy += ys[at]));
  let xx = 0, yy = 0, xy = 0;
  for (let at = 0; at < xs.length; at++) {
    if (!both(at)) continue;
    const [x, y] = [xs[at] - sx / n, ys[at] - sy / n];
    xx += x * x;
    yy += y * y;
    xy += x * y;
  }
  return xx > 0 && yy > 0 ? xy / Math.sqrt(xx * yy) : null;
}

// Spearman's rank correlation, ties by their mean rank.
export function rankCorrelation(xs, ys) {
  const rows = xs.map((_, at) => at).filter((at) => xs[at] !== null && ys[at] !== null);
  return correlation(ranks(rows.map((at) => xs[at])), ranks(rows.map((at) => ys[at])));
}

function ranks(values) {
  const order = values.map((_, at) => at).sort((a, b) => values[a] - values[b]);
  const found = new Array(values.length);
  for (let first = 0; first < order.length; ) {
    let last = first;
    while (last + 1 < order.length && values[order[last + 1]] === values[order[first]]) last++;
    for (let at = first; at <= last; at++) found[order[at]] = (first + last) / 2;
    first = last + 1;
  }
  return found;
}
