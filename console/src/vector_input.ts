// Vectors that a user has pasted, or has in a file.

const MOST_BYTES = 32 << 20;

/** Returns the numbers in a text: JSON, or numbers between commas and spaces. */
export function vectorOfText(text: string): number[] {
  const trimmed = text.trim();
  if (!trimmed) throw new Error("the vector is missing: paste its numbers");
  let found: unknown;
  try {
    found = JSON.parse(trimmed);
  } catch {
    found = trimmed
      .replace(/^[[(]|[\])]$/g, "")
      .split(/[\s,;]+/)
      .filter(Boolean)
      .map(Number);
  }
  if (typeof found === "number") found = [found];
  // Of several vectors the first counts, as in a file.
  if (Array.isArray(found) && Array.isArray(found[0])) found = found[0];
  if (!Array.isArray(found) || found.length === 0) throw new Error("this is no list of numbers");
  const wrong = found.findIndex((value) => typeof value !== "number" || !Number.isFinite(value));
  if (wrong >= 0) throw new Error(`number ${wrong + 1} of the vector is no number`);
  return found as number[];
}

function half(bits: number): number {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 31;
  const fraction = bits & 1023;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return exponent === 0 ? sign * fraction * 2 ** -24 : sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}

type Reader = [bytes: number, read: (view: DataView, at: number) => number];

const READERS: Record<string, Reader> = {
  f4: [4, (view, at) => view.getFloat32(at, true)],
  f8: [8, (view, at) => view.getFloat64(at, true)],
  f2: [2, (view, at) => half(view.getUint16(at, true))],
  u1: [1, (view, at) => view.getUint8(at)],
  i1: [1, (view, at) => view.getInt8(at)],
};

function values(view: DataView, at: number, count: number, kind: string): number[] {
  const [bytes, read] = READERS[kind] ?? [0, () => NaN];
  if (bytes === 0) throw new Error(`vectors of type ${kind} cannot be read here`);
  if (count < 1 || at + count * bytes > view.byteLength) throw new Error("the file ends within the vector");
  return Array.from({ length: count }, (_, number) => read(view, at + number * bytes));
}

/** Reads the vector of an array of NumPy: one row, or the row that is chosen of several. */
function ofNumpy(buffer: ArrayBuffer, row: number): number[] {
  const view = new DataView(buffer);
  const long = view.getUint8(6) >= 2;
  const length = long ? view.getUint32(8, true) : view.getUint16(8, true);
  const begin = (long ? 12 : 10) + length;
  const header = new TextDecoder().decode(buffer.slice(long ? 12 : 10, begin));
  const kind = /'descr':\s*'[<|]?([fiu]\d)'/.exec(header)?.[1];
  const shape = /'shape':\s*\(([\d,\s]*)\)/.exec(header)?.[1]?.split(",").map((part) => part.trim());
  const sizes = (shape ?? []).filter(Boolean).map(Number);
  if (!kind || sizes.length === 0 || sizes.length > 2) throw new Error("this array has no vectors");
  if (sizes.length === 2 && /'fortran_order':\s*True/.test(header)) {
    throw new Error("the array is in the order of Fortran; save numpy.ascontiguousarray(it)");
  }
  const dim = sizes[sizes.length - 1] ?? 0;
  const rows = sizes.length === 2 ? (sizes[0] ?? 0) : 1;
  checkRow(row, rows);
  return values(view, begin + row * dim * (READERS[kind]?.[0] ?? 0), dim, kind);
}

function checkRow(row: number, rows: number): void {
  if (row < 0 || row >= rows) throw new Error(`there is no vector ${row}: the file has ${rows}, from 0`);
}

/** Reads vector number `row` of a file: .json, .npy, .fvecs, .bvecs, .fbin, .u8bin or .i8bin. */
export async function vectorOfFile(file: File, row: number): Promise<number[]> {
  if (file.size > MOST_BYTES) throw new Error(`the file is too large to read here: at most ${MOST_BYTES >> 20} MiB`);
  const kind = file.name.toLowerCase().split(".").pop() ?? "";
  const buffer = await file.arrayBuffer();
  const view = new DataView(buffer);
  const bins: Record<string, string> = { fbin: "f4", f16bin: "f2", u8bin: "u1", i8bin: "i1" };
  const vecs: Record<string, string> = { fvecs: "f4", bvecs: "u1" };
  if (view.byteLength >= 10 && view.getUint8(0) === 0x93) return ofNumpy(buffer, row);
  if (bins[kind]) {
    const [rows, dim] = [view.getUint32(0, true), view.getUint32(4, true)];
    checkRow(row, rows);
    return values(view, 8 + row * dim * (READERS[bins[kind]]?.[0] ?? 0), dim, bins[kind]);
  }
  if (vecs[kind]) {
    const dim = view.getUint32(0, true);
    const size = 4 + dim * (READERS[vecs[kind]]?.[0] ?? 0);
    checkRow(row, Math.floor(view.byteLength / size));
    return values(view, row * size + 4, dim, vecs[kind]);
  }
  const text = new TextDecoder().decode(buffer);
  const lines: unknown = kind === "json" ? JSON.parse(text) : undefined;
  if (Array.isArray(lines) && Array.isArray(lines[0])) {
    checkRow(row, lines.length);
    return vectorOfText(JSON.stringify(lines[row]));
  }
  return vectorOfText(text);
}
