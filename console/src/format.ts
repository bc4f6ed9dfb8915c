// Numbers as people read them.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

export const count = (value: number) => whole.format(value);

/** Returns a number with at most `digits` significant digits. */
export function short(value: number, digits = 3): string {
  if (!Number.isFinite(value)) return "–";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e6 || size < 1e-4) return value.toExponential(digits - 1);
  return String(Number(value.toPrecision(digits)));
}

export function bytes(value: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let at = 0;
  while (value >= 1024 && at + 1 < units.length) {
    value /= 1024;
    at += 1;
  }
  return `${at === 0 ? value : value.toFixed(value < 10 ? 2 : 1)} ${units[at]}`;
}

export function nanoseconds(value: number): string {
  if (value < 1e3) return `${Math.round(value)} ns`;
  if (value < 1e6) return `${short(value / 1e3)} µs`;
  if (value < 1e9) return `${short(value / 1e6)} ms`;
  return `${short(value / 1e9)} s`;
}

export const seconds = (value: number) => nanoseconds(value * 1e9);
export const percent = (share: number, digits = 1) => `${(100 * share).toFixed(digits)} %`;
export const clock = (time: number) => new Date(time).toLocaleTimeString("en-GB");
export const plural = (many: number, one: string, more = `${one}s`) => `${count(many)} ${many === 1 ? one : more}`;

/** Returns a value of a row as text. */
export function cellText(value: unknown): string {
  if (value === null || value === undefined) return "";
  // Long numbers are kept as text after a NUL (api.ts).
  if (typeof value === "string") return value.startsWith("\0") ? value.slice(1) : value;
  if (typeof value === "number") return Number.isInteger(value) ? String(value) : short(value, 6);
  if (Array.isArray(value) && value.every((one) => one !== null && typeof one !== "object")) {
    return value.map(cellText).join(", ");
  }
  return JSON.stringify(value).replace(/"\\u0000([0-9]+)"/g, "$1");
}

/** Returns true if a value is the address of a picture. */
export function isImage(value: unknown): value is string {
  if (typeof value !== "string") return false;
  return (
    /^https?:\/\/[^\s]+\.(png|jpe?g|gif|webp|avif|svg)([?#][^\s]*)?$/i.test(value) ||
    /^data:image\/(png|jpeg|gif|webp);base64,/i.test(value)
  );
}

export const isLink = (value: unknown): value is string =>
  typeof value === "string" && /^https?:\/\/[^\s]+$/i.test(value);
