// Pictures of every view, for people: node tests/shots.mjs BINARY FOLDER
import { mkdirSync } from "node:fs";
import { chromium } from "playwright-core";
import { FLAGS, chromiumPath, withFiles } from "./browser.mjs";
import { ADMIN, TestServer } from "./server.mjs";

const [binary, folder] = process.argv.slice(2);
mkdirSync(folder, { recursive: true });
const server = new TestServer(binary);
await server.start();
await server.fill();
const browser = await chromium.launch({ executablePath: chromiumPath(), args: FLAGS });
const VIEWS = [
  ["overview", "#/"],
  ["server", "#/server"],
  ["rows", "#/collections/animals/rows"],
  ["search", "#/collections/animals/search?like=17"],
  ["recall", "#/collections/animals/recall"],
  ["map", "#/collections/animals/map"],
  ["live", "#/collections/animals/live"],
  ["about", "#/collections/animals/about"],
  ["index", "#/indexes/shells/search?like=5"],
];
for (const [name, width, height, scheme] of [
  ["light", 1280, 860, "light"],
  ["dark", 1280, 860, "dark"],
  ["phone", 360, 740, "light"],
]) {
  const context = await browser.newContext({ viewport: { width, height }, colorScheme: scheme });
  await withFiles(context);
  const page = await context.newPage();
  page.on("console", (message) => console.log(message.type(), message.text()));
  await page.goto(`${server.origin}/console/#key=${ADMIN}`);
  for (const [view, hash] of VIEWS) {
    await page.goto(`${server.origin}/console/${hash}`);
    await page.waitForTimeout(view === "live" || view === "server" ? 4500 : 900);
    const explain = page.getByRole("button", { name: /^Explain/ });
    if (await explain.count()) {
      await explain.click();
      await page.locator(".part summary").first().waitFor();
      await page.locator(".part summary").first().click();
    }
    const audit = page.getByRole("button", { name: "Audit now" });
    if (await audit.count()) {
      await audit.click();
      await page.getByText("reached").first().waitFor();
    }
    await page.screenshot({ path: `${folder}/${name}-${view}.png`, fullPage: view !== "rows" });
  }
  await page.goto(`${server.origin}/console/#/collections/animals/rows`);
  const filter = page.getByRole("combobox", { name: "Filter" });
  await filter.pressSequentially("zone = 'reef' and ye");
  await page.screenshot({ path: `${folder}/${name}-completion.png` });
  await filter.fill("zone = 'reef' and yaer > 2000");
  await page.keyboard.press("Enter");
  await page.getByRole("alert").waitFor();
  await page.screenshot({ path: `${folder}/${name}-wrong.png` });
  await filter.fill("");
  await page.getByRole("gridcell", { name: "5", exact: true }).click();
  await page.getByRole("dialog").getByText("Copy as JSON").waitFor();
  await page.getByRole("button", { name: "Delete …" }).click();
  await page.screenshot({ path: `${folder}/${name}-row.png` });
  await page.keyboard.press("Escape");
  await page.getByRole("button", { name: "Keyboard help" }).click();
  await page.screenshot({ path: `${folder}/${name}-help.png` });
  await page.keyboard.press("Escape");
  await page.getByRole("button", { name: "Leave" }).click();
  await page.screenshot({ path: `${folder}/${name}-key.png` });
  await context.close();
}
await browser.close();
await server.stop();
server.remove();
