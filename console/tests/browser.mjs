// The browser that the checks drive: Chromium, as Debian installs it, or the one that CHROMIUM names.

import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

/** No account, no update and no other background request; the sandbox needs rights that CI does not have. */
export const FLAGS = [
  "--headless",
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];

export function chromiumPath() {
  const known = [process.env.CHROMIUM, "/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];
  const found = known.find((path) => path && existsSync(path));
  if (!found) throw new Error("there is no Chromium: install it, or set CHROMIUM to its path");
  return found;
}

/** Answers with the built files of this folder, instead of those in the program, if BATHYAL_CONSOLE is set. */
export async function withFiles(context) {
  const folder = process.env.BATHYAL_CONSOLE;
  if (!folder) return;
  await context.route(/\/console\/[a-z.]*$/, async (route) => {
    const name = new URL(route.request().url()).pathname.split("/").pop() || "index.html";
    const response = await route.fetch();
    if (response.status() !== 200) return route.fulfill({ response });
    return route.fulfill({ response, body: readFileSync(join(folder, name)) });
  });
}

// `node browser.mjs` succeeds if there is a browser.
if (process.argv[1] === fileURLToPath(import.meta.url)) console.log(chromiumPath());
