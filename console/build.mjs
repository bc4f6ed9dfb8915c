// Records beside the built files which sources they were made of, and their own hashes. A test of the server
// compares both (crates/server/src/routes/console.rs).
import { createHash } from "node:crypto";
import { readFileSync, readdirSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const built = "../crates/server/console";
const left_out = new Set(["node_modules", "tests", "README.md"]);

function sources(folder) {
  const found = [];
  for (const name of readdirSync(folder || ".")) {
    const path = folder ? `${folder}/${name}` : name;
    if (left_out.has(name)) continue;
    if (statSync(path).isDirectory()) found.push(...sources(path));
    else found.push(path);
  }
  return found;
}

// FNV-1a, as the kernels for graphics cards are compared.
let hash = 0xcbf29ce484222325n;
const add = (bytes) => {
  for (const byte of bytes) hash = ((hash ^ BigInt(byte)) * 0x100000001b3n) & 0xffffffffffffffffn;
};
for (const path of sources("").sort((a, b) => (a < b ? -1 : 1))) {
  add(Buffer.from(path));
  add([0]);
  add(readFileSync(path));
  add([0]);
}
writeFileSync(join(built, "sources.hash"), hash.toString(16).padStart(16, "0") + "\n");

const names = readdirSync(built).filter((name) => !/\.(hash|sha256)$/.test(name));
const sums = names.sort().map((name) => {
  const sum = createHash("sha256").update(readFileSync(join(built, name))).digest("hex");
  return `${sum}  ${name}\n`;
});
writeFileSync(join(built, "built.sha256"), sums.join(""));
