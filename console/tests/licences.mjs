// Checks the licences of the packages that the pages contain against deny.toml.

import { readFileSync } from "node:fs";

const root = new URL("../../", import.meta.url);
const allowed = [...readFileSync(new URL("deny.toml", root), "utf8").matchAll(/^ {4}"([^"]+)",$/gm)].map(([, name]) => name);
const { packages } = JSON.parse(readFileSync(new URL("console/package-lock.json", root), "utf8"));
const bundled = Object.entries(packages).filter(([path, one]) => path && !one.dev && !one.devOptional && !one.optional);
const wrong = bundled.filter(([, { license }]) => !allowed.includes(license));
for (const [path, { license }] of wrong) console.error(`${path}: the licence ${license} is not in deny.toml`);
if (bundled.length === 0 || wrong.length > 0) process.exit(1);
console.log(`${bundled.length} bundled: ${bundled.map(([path, { license }]) => `${path.split("/").pop()} (${license})`).join(", ")}`);
