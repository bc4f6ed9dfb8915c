// A server over data that the checks know.

import { spawn, spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";

export const ADMIN = "admin-0123456789abcdef";
export const READER = "reader-0123456789abcdef";

const KEYS = ["admin", "reader"]
  .map((name) => `[[key]]\nname = "${name}"\nsecret = "${name}-0123456789abcdef"\nright = "${name === "admin" ? "write" : "read"}"\n`)
  .join("\n");

export const ROWS = 10_000;
const DIM = 16;
const GROUPS = ["reef", "kelp", "trench", "vent", "plain"];
const PICTURE = "https://pictures.invalid";

/** Numbers that are the same in every run. */
export function generator(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

export function vectors(count, seed = 1) {
  const random = generator(seed);
  const centres = GROUPS.map(() => Array.from({ length: DIM }, () => 4 * random() - 2));
  const noise = () => (random() + random() + random() - 1.5) * 1.6;
  return Array.from({ length: count }, (_, at) => {
    const group = Math.floor(random() * GROUPS.length);
    return { at, group: GROUPS[group], vector: centres[group].map((value) => Number((value + noise()).toFixed(4))) };
  });
}

export class TestServer {
  constructor(binary) {
    this.binary = resolve(binary);
    this.folder = mkdtempSync(join(tmpdir(), "bathyal-console-"));
    writeFileSync(join(this.folder, "keys.toml"), KEYS, { mode: 0o600 });
  }

  async start() {
    const listen = this.port ? `127.0.0.1:${this.port}` : "127.0.0.1:0";
    const options = ["serve", "data", "--listen", listen, "--keys", "keys.toml", "--audit", "0.5"];
    this.process = spawn(this.binary, options, { cwd: this.folder, stdio: ["ignore", "ignore", "pipe"] });
    this.port = await new Promise((done, fail) => {
      let text = "";
      this.process.stderr.on("data", (data) => {
        text += data;
        const found = /http:\/\/127\.0\.0\.1:(\d+),/.exec(text);
        if (found) done(Number(found[1]));
      });
      this.process.on("exit", () => fail(new Error(`the server has ended: ${text}`)));
    });
    this.origin = `http://127.0.0.1:${this.port}`;
  }

  async stop() {
    const ended = new Promise((done) => this.process.on("exit", done));
    this.process.removeAllListeners("exit");
    this.process.on("exit", () => {});
    const gone = new Promise((done) => this.process.on("close", done));
    this.process.kill("SIGTERM");
    await Promise.race([ended, gone]);
  }

  remove() {
    rmSync(this.folder, { recursive: true, force: true });
  }

  writeKeys(text) {
    writeFileSync(join(this.folder, "keys.toml"), text, { mode: 0o600 });
  }

  async post(path, content) {
    const response = await fetch(`${this.origin}/v1/${path}`, {
      method: "POST",
      headers: { Authorization: `Bearer ${ADMIN}`, "Content-Type": "application/json" },
      body: typeof content === "string" ? content : JSON.stringify(content),
    });
    if (!response.ok) throw new Error(`${path}: ${response.status}: ${await response.text()}`);
    return response.json();
  }

  /** Makes a collection of 10,000 rows, two small ones and an index. */
  async fill() {
    const columns = [
      { name: "zone", type: "string" },
      { name: "year", type: "int64" },
      { name: "depth", type: "float64" },
      { name: "living", type: "bool" },
      { name: "tags", type: "list<string>" },
      { name: "picture", type: "string" },
    ];
    const field = { name: "vector", dim: DIM, element: "f32", metric: "l2" };
    await this.post("collections", { name: "animals", schema: { id: "u64", vectors: [field], columns } });
    const all = vectors(ROWS);
    const row = ({ at, group, vector }) => ({
      id: at,
      vector,
      zone: group,
      year: 1990 + (at % 35),
      depth: at % 7 === 3 ? null : Number(((at * 37) % 11000).toFixed(1)),
      living: at % 3 !== 0,
      tags: at % 2 ? ["deep", group] : [group],
      picture: at % 5 === 0 ? `${PICTURE}/${at}.jpg` : null,
    });
    for (let from = 0; from < ROWS; from += 2500) {
      await this.post("collections/animals/add", { rows: all.slice(from, from + 2500).map(row) });
    }
    await this.post("collections/animals/flush", {});
    const notes = {
      id: "string",
      vectors: [{ ...field, dim: 3, metric: "cosine" }],
      columns: [{ name: "text", type: "string" }],
    };
    await this.post("collections", { name: "notes", schema: notes });
    await this.post("collections/notes/add", {
      rows: ["a", "b", "c"].map((id, at) => ({ id, vector: [1, at, 0.5], text: `note <b>${id}</b>` })),
    });
    await this.post("collections", { name: "empty", schema: notes });
    await this.post("collections", { name: "large", schema: { ...notes, id: "u64" } });
    // JavaScript has no such numbers, so the body is text.
    const large = ["18446744073709551615", "9007199254740993", "7"].map(
      (id, at) => `{ "id": ${id}, "vector": [1, ${at}, 0], "text": "row ${at}" }`,
    );
    await this.post("collections/large/add", `{ "rows": [${large}] }`);
    this.build();
  }

  /** Builds an index beside the collections. */
  build() {
    const all = vectors(3000, 7);
    const file = new Uint8Array(8 + all.length * DIM * 4);
    const view = new DataView(file.buffer);
    view.setUint32(0, all.length, true);
    view.setUint32(4, DIM, true);
    all.forEach(({ vector }, at) =>
      vector.forEach((value, component) => view.setFloat32(8 + (at * DIM + component) * 4, value, true)),
    );
    writeFileSync(join(this.folder, "base.fbin"), file);
    const options = ["build", "base.fbin", "data/shells", "--metric", "l2", "--quiet"];
    const built = spawnSync(this.binary, options, { cwd: this.folder, encoding: "utf8" });
    if (built.status !== 0) throw new Error(`the index was not built: ${built.stderr}`);
  }
}
