// Colours of points by the values of a column.

import { cellText, short } from "./format";

/** Values that get a colour of their own; the others share one. */
const MOST_VALUES = 8;
export const NONE = "--map-none";

export interface Colouring {
  of: (value: unknown) => string;
  legend: { text: string; colour: string; count?: number }[];
  /** The ends of a gradient, for columns of numbers. */
  ends?: [string, string];
}

/** From dark blue over green to yellow (viridis), which reads the same in print and for the colour-blind. */
const GRADIENT: [number, number, number][] = [
  [72, 40, 120],
  [62, 74, 137],
  [49, 104, 142],
  [38, 130, 142],
  [31, 158, 137],
  [53, 183, 121],
  [109, 205, 89],
  [180, 222, 44],
];

function gradient(share: number): string {
  const at = Math.max(0, Math.min(1, share)) * (GRADIENT.length - 1);
  const [from, to] = [GRADIENT[Math.floor(at)], GRADIENT[Math.ceil(at)]];
  if (!from || !to) return NONE;
  const mixed = from.map((low, channel) => Math.round(low + (at - Math.floor(at)) * ((to[channel] ?? low) - low)));
  return `rgb(${mixed.join(" ")})`;
}

export function colouring(values: unknown[], numeric: boolean): Colouring {
  const numbers = values.filter((value): value is number => typeof value === "number");
  const distinct = new Map<string, number>();
  for (const value of values) {
    const text = cellText(value);
    distinct.set(text, (distinct.get(text) ?? 0) + 1);
  }
  if (numeric && numbers.length > 0 && distinct.size > MOST_VALUES) {
    const [low, high] = [Math.min(...numbers), Math.max(...numbers)];
    return {
      of: (value) => (typeof value === "number" ? gradient((value - low) / (high - low || 1)) : NONE),
      legend: [],
      ends: [short(low, 6), short(high, 6)],
    };
  }
  const order = [...distinct].sort((a, b) => b[1] - a[1]);
  const own = order.slice(0, MOST_VALUES).map(([text, count], at) => ({ text, count, colour: `--line-${at}` }));
  const known = new Map(own.map(({ text, colour }) => [text, colour]));
  const others = order.slice(MOST_VALUES);
  const rest = others.reduce((sum, [, count]) => sum + count, 0);
  return {
    of: (value) => known.get(cellText(value)) ?? NONE,
    legend: [
      ...own.map((one) => ({ ...one, text: one.text || "null" })),
      ...(others.length > 0 ? [{ text: `${others.length} other values`, count: rest, colour: NONE }] : []),
    ],
  };
}
