// What labels in the order of a random draw prove of the whole set, whenever one stops: the test of `curate certify --anytime`
// (trust/guarantee.py has it with its reasons; a test holds the two against each other).

// bad: labels in the order of the draw; tooMany: the least number of bad members that is too many; size: members of the set.
function bet(bad, tooMany, error, size) {
  let [logE, best, seen] = [0, 0, 0];
  if (tooMany > size) return { evidence: Infinity, labels: 0, bad: 0 };
  for (const [number, isBad] of bad.entries()) {
    const chance = (tooMany - seen) / (size - number);
    if (chance <= 0) break; // as many bad ones were seen as are too many
    if (isBad) {
      seen += 1;
      logE -= Math.log(3);
    } else if (chance >= 1) return { evidence: Infinity, labels: number + 1, bad: seen };
    else logE += Math.log1p(-chance / 3) - Math.log1p(-chance);
    best = Math.max(best, logE);
    if (logE >= -Math.log(error)) return { evidence: Math.exp(logE), labels: number + 1, bad: seen };
  }
  return { evidence: Math.exp(best), labels: bad.length, bad: bad.filter(Boolean).length };
}

// How sure the labels make it that at most a share `risk` is bad: certified where the evidence is 1 / error or more.
export const anytime = (bad, risk, error, size) => bet(bad, Math.floor(risk * size + 1e-9) + 1, error, size);

// The least share of bad ones that the labels rule out to exceed, at every look at once.
export function anytimeBound(bad, error, size) {
  let [low, high] = [bad.filter(Boolean).length - 1, size];
  while (high - low > 1) {
    const middle = Math.floor((low + high) / 2);
    if (bet(bad, middle + 1, error, size).evidence >= 1 / error) high = middle;
    else low = middle;
  }
  return size ? high / size : 0;
}

// How many good labels in a row would certify now; null where all that are left would not.
export function goodToCome(bad, risk, error, size) {
  const isEnough = (more) => anytime([...bad, ...new Array(more).fill(false)], risk, error, size).evidence >= 1 / error;
  let [low, high] = [-1, size - bad.length];
  if (high < 0 || !isEnough(high)) return null;
  while (high - low > 1) {
    const middle = Math.floor((low + high) / 2);
    if (isEnough(middle)) high = middle;
    else low = middle;
  }
  return high;
}
