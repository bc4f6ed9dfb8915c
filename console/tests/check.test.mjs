// The console in a real browser, on a real server: node --test tests/, with BATHYAL naming the program.

import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import axe from "axe-core";
import { chromium } from "playwright-core";
import { FLAGS, chromiumPath, withFiles } from "./browser.mjs";
import { ADMIN, READER, ROWS, TestServer, vectors } from "./server.mjs";

const binary = process.env.BATHYAL;
if (!binary) throw new Error("set BATHYAL to the program that serves the console");

const VIEWS = [
  ["overview", "#/", "Overview"],
  ["server", "#/server", "By operation"],
  ["rows", "#/collections/animals/rows", "10,000 rows"],
  ["rows of text", "#/collections/notes/rows", "3 rows"],
  ["no rows", "#/collections/empty/rows", "has no rows yet"],
  ["search", "#/collections/animals/search?like=17", "10 neighbours"],
  ["recall", "#/collections/animals/recall", "As a table"],
  ["map", "#/collections/animals/map", "drawn at random"],
  ["live", "#/collections/animals/live", "Codes scored"],
  ["about", "#/collections/animals/about", "Verify every byte"],
  ["search of an index", "#/indexes/shells/search?like=5", "10 neighbours"],
  ["recall of an index", "#/indexes/shells/recall", "As a table"],
  ["map of an index", "#/indexes/shells/map", "drawn at random"],
  ["live of an index", "#/indexes/shells/live", "Rounds of reads"],
];

let server;
let browser;

before(async () => {
  server = new TestServer(binary);
  await server.start();
  await server.fill();
  browser = await chromium.launch({ executablePath: chromiumPath(), args: FLAGS });
});

after(async () => {
  await browser?.close();
  await server?.stop();
  server?.remove();
});

/** Opens a tab, runs `check` in it, and fails for complaints of the browser and for requests to other hosts. */
async function inTab(check, { secret = ADMIN, hash = "", expected = [], foreign = [], ...options } = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 860 }, ...options });
  await withFiles(context);
  const page = await context.newPage();
  page.setDefaultTimeout(20_000);
  const complaints = [];
  const strangers = [];
  page.on("console", (message) => {
    if (["error", "warning"].includes(message.type())) complaints.push(message.text());
  });
  page.on("pageerror", (error) => complaints.push(String(error)));
  page.on("request", (request) => {
    const url = new URL(request.url());
    if (url.origin !== server.origin && url.protocol !== "data:") strangers.push(url.origin);
  });
  await context.route(
    (url) => url.origin !== server.origin && url.protocol !== "data:",
    (request) => request.abort(),
  );
  try {
    if (secret) {
      await page.goto(`${server.origin}/console/#key=${secret}`);
      await page.getByText("Overview").first().waitFor();
      if (hash) await page.goto(`${server.origin}/console/${hash}`);
    } else {
      await page.goto(`${server.origin}/console/`);
    }
    await check(page);
    const unexpected = complaints.filter((text) => !expected.some((pattern) => pattern.test(text)));
    assert.deepEqual(unexpected, [], "the browser complains");
    assert.deepEqual([...new Set(strangers)], foreign, "requests to other hosts");
  } finally {
    await context.close();
  }
}

async function accessible(page, where) {
  await page.evaluate(axe.source);
  const { violations } = await page.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));
  const found = violations.map(
    ({ id, help, nodes }) => `${where}: ${id}: ${help}: ${nodes.map(({ html }) => html.slice(0, 160)).join(" | ")}`,
  );
  assert.deepEqual(found, []);
}

const open = (page, hash, text) =>
  page.goto(`${server.origin}/console/${hash}`).then(() => page.getByText(text).first().waitFor());
const filterOf = (page) => page.getByRole("combobox", { name: "Filter" });

test("a key opens the console, and leaves the address at once", async () => {
  await inTab(
    async (page) => {
      await accessible(page, "key");
      await page.getByLabel("Key", { exact: true }).fill("wrong-0123456789abcdef");
      await page.keyboard.press("Enter");
      await page.getByRole("alert").getByText("the key is unknown").waitFor();
      await accessible(page, "refused key");
      await page.getByLabel("Key", { exact: true }).fill(READER);
      await page.getByRole("button", { name: "Open" }).click();
      await page.getByText("read only").waitFor();
      assert.equal(new URL(page.url()).hash, "");
    },
    { secret: null, expected: [/401/] },
  );
  await inTab(async (page) => {
    assert.equal(page.url(), `${server.origin}/console/`);
    const stored = await page.evaluate(() => [{ ...localStorage }, { ...sessionStorage }]);
    assert.deepEqual(stored, [{}, { "bathyal.key": ADMIN }]);
    await page.goBack().catch(() => undefined);
    assert.ok(!page.url().includes(ADMIN), "the key is in the history");
  });
});

test("every view is there, is accessible in light and dark, and fits a phone", async () => {
  for (const scheme of ["light", "dark"]) {
    await inTab(
      async (page) => {
        for (const [name, hash, text] of VIEWS) {
          await open(page, hash, text);
          await accessible(page, `${name}, ${scheme}`);
        }
      },
      { colorScheme: scheme },
    );
  }
  await inTab(
    async (page) => {
      for (const [name, hash, text] of VIEWS) {
        await open(page, hash, text);
        const wide = await page.evaluate(() => document.documentElement.scrollWidth);
        assert.ok(wide <= 360, `${name} is ${wide} pixels wide`);
        await accessible(page, `${name}, phone`);
      }
    },
    { viewport: { width: 360, height: 740 }, hasTouch: true, isMobile: true },
  );
});

test("the overview has sizes, segments and health, and shows growth", async () => {
  await inTab(async (page) => {
    const animals = page.getByRole("row", { name: /animals/ });
    await animals.getByText("10,000").waitFor();
    await animals.getByText("good").waitFor();
    await page.getByText("server ready").waitFor();
    assert.match(await animals.innerText(), /MiB/);
    await page.getByRole("row", { name: /shells/ }).getByText("3,000").waitFor();
    const notes = page.getByRole("row", { name: /notes/ });
    await notes.getByText("±0").waitFor();
    await server.post("collections/notes/add", { rows: [{ id: "grown", vector: [1, 1, 1], text: null }] });
    await notes.getByText("+1").waitFor();
    await server.post("collections/notes/delete", { ids: ["grown"] });
  });
});

test("10,000 rows scroll to the last, with few of them in the page", async () => {
  await inTab(
    async (page) => {
      await page.getByText("10,000 rows").waitFor();
      const grid = page.getByRole("grid");
      assert.equal(await grid.getAttribute("aria-rowcount"), String(ROWS + 1));
      await grid.focus();
      for (let times = 0; times < 40; times += 1) {
        await page.keyboard.press("End");
        if (await page.getByRole("gridcell", { name: String(ROWS - 1), exact: true }).count()) break;
        await page.waitForTimeout(100);
      }
      await page.getByRole("gridcell", { name: String(ROWS - 1), exact: true }).waitFor();
      const drawn = await grid.getByRole("row").count();
      assert.ok(drawn < 100, `${drawn} rows are drawn`);
      await page.keyboard.press("Enter");
      await page.getByRole("dialog", { name: `Row ${ROWS - 1}` }).getByText("vector").first().waitFor();
      await accessible(page, "row");
      await page.keyboard.press("Escape");
      await page.getByRole("dialog").waitFor({ state: "detached" });
      assert.equal(await page.evaluate(() => document.activeElement.getAttribute("role")), "grid");
    },
    { hash: "#/collections/animals/rows" },
  );
});

test("a filter is completed as it is typed", async () => {
  await inTab(
    async (page) => {
      await page.getByText("10,000 rows").waitFor();
      const filter = filterOf(page);
      await filter.pressSequentially("zo");
      await page.getByRole("option", { name: /^zone/ }).waitFor();
      await accessible(page, "completions");
      await page.keyboard.press("ArrowDown");
      await page.keyboard.press("Tab");
      assert.equal(await filter.inputValue(), "zone ");
      await page.getByRole("option", { name: /^like '/ }).waitFor();
      await filter.pressSequentially("= 'reef' and ye");
      await page.getByRole("option", { name: /year/ }).click();
      await filter.pressSequentially(">= 2020");
      await page.keyboard.press("Enter");
      await page.getByText(/^[\d,]+ rows of 10,000 match$/).waitFor();
      const zones = await page.locator(".grid-row:not(.head) > div:nth-child(2)").allInnerTexts();
      assert.deepEqual([...new Set(zones)], ["reef"]);
      await filter.fill("living and tags = 'deep' and id in (1, 2, 5)");
      await page.keyboard.press("Enter");
      await page.getByText("2 rows of 10,000 match").waitFor();
      await filter.fill("false");
      await page.keyboard.press("Enter");
      await page.getByText("No row matches the filter.").waitFor();
    },
    { hash: "#/collections/animals/rows" },
  );
});

test("a wrong filter has its error under the caret", async () => {
  await inTab(
    async (page) => {
      await page.getByText("10,000 rows").waitFor();
      const filter = filterOf(page);
      for (const [text, place, message] of [
        ["year >= and zone = 'reef'", 8, "expected a number"],
        ["zone = 'reef' and yaer > 2000", 18, "no column"],
        ["year = 'x'", 0, "column"],
      ]) {
        await filter.fill(text);
        await page.keyboard.press("Enter");
        await page.getByRole("alert").getByText(message).waitFor();
        const { caret, letter } = await page.evaluate((at) => {
          const input = document.querySelector("[data-filter]");
          const style = getComputedStyle(input);
          const pen = document.createElement("canvas").getContext("2d");
          pen.font = `${style.fontSize} ${style.fontFamily}`;
          const begin = input.getBoundingClientRect().left + parseFloat(style.paddingLeft) + 1;
          const range = document.createRange();
          range.selectNode(document.querySelector(".caret span"));
          return {
            caret: range.getBoundingClientRect().left,
            letter: begin + pen.measureText(input.value.slice(0, at)).width,
          };
        }, place);
        assert.ok(Math.abs(caret - letter) < 2, `${text}: the caret is at ${caret}, not at ${letter}`);
        assert.equal(await filter.evaluate((input) => input.selectionStart), place);
      }
      await accessible(page, "wrong filter");
      await filter.pressSequentially(" ");
      await page.getByRole("alert").waitFor({ state: "detached" });
    },
    { hash: "#/collections/animals/rows", expected: [/400/] },
  );
});

test("a search goes by a row, a vector or a file", async () => {
  const { vector } = vectors(ROWS)[42];
  const float = (count) => new Float32Array(vector).buffer.slice(0, 4 * count);
  const numpy = (() => {
    const header = "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 16), }".padEnd(117) + "\n";
    const head = Buffer.from([0x93, ...Buffer.from("NUMPY"), 1, 0, header.length, 0, ...Buffer.from(header)]);
    return Buffer.concat([head, Buffer.from(float(16))]);
  })();
  const fvecs = Buffer.concat([Buffer.from(new Uint32Array([16]).buffer), Buffer.from(float(16))]);
  const fbin = Buffer.concat([Buffer.from(new Uint32Array([1, 16]).buffer), Buffer.from(float(16))]);
  const files = { "q.npy": numpy, "q.fvecs": fvecs, "q.fbin": fbin, "q.json": Buffer.from(JSON.stringify(vector)) };
  for (const [name, content] of Object.entries(files)) writeFileSync(join(server.folder, name), content);
  await inTab(
    async (page) => {
      const nearest = (id) => page.locator(".grid-row:not(.head) > div:first-child").first().getByText(id).waitFor();
      const search = page.getByRole("button", { name: "Search", exact: true });
      await page.getByLabel(/Id of a row/).fill("77");
      await search.click();
      await nearest("77");
      await page.getByText("Vector", { exact: true }).click();
      await page.getByLabel(/16 numbers/).fill(vector.join(" "));
      await search.click();
      await nearest("42");
      await page.getByText("File", { exact: true }).click();
      for (const name of Object.keys(files)) {
        await page.getByLabel(/it stays in the browser/).setInputFiles(join(server.folder, name));
        await page.getByLabel("Neighbours (k)").fill("3");
        await search.click();
        await page.getByText("3 neighbours").waitFor();
        await nearest("42");
        await page.getByLabel("Neighbours (k)").fill("4");
        await search.click();
        await page.getByText("4 neighbours").waitFor();
      }
      await page.getByText("Vector", { exact: true }).click();
      await page.getByLabel(/16 numbers/).fill("[1, 2]");
      await search.click();
      await page.getByRole("alert").getByText("has 2 components; the vectors have 16").waitFor();
      await page.getByLabel(/16 numbers/).fill("1 two 3");
      await search.click();
      await page.getByRole("alert").getByText("number 2 of the vector is no number").waitFor();
      await page.getByText("Like a row").click();
      await page.getByLabel(/Id of a row/).fill("123456789");
      await search.click();
      await page.getByRole("alert").getByText("there is no row with the id 123456789").waitFor();
      await page.getByLabel(/Id of a row/).fill("5");
      await filterOf(page).fill("zone = 'kelp' or");
      await search.click();
      await page.getByRole("alert").getByText(/expected/).waitFor();
      await filterOf(page).fill("zone = 'kelp'");
      await page.keyboard.press("Enter");
      await page.getByText(/among [\d,]+ matching rows/).waitFor();
      await page.getByRole("button", { name: /^Explain/ }).click();
      const part = page.locator("details.part").first();
      await part.getByRole("img", { name: /^actual: / }).waitFor();
      await part.getByText(/rows match/).click();
      await part.getByRole("row", { name: /vectors compared/ }).waitFor();
      await accessible(page, "timeline of a filter");
    },
    { hash: "#/collections/animals/search", expected: [/400/, /404/] },
  );
});

test("a search is explained as a timeline", async () => {
  for (const hash of ["#/collections/animals/search?like=17", "#/indexes/shells/search?like=5"]) {
    await inTab(
      async (page) => {
        await page.getByText("10 neighbours").waitFor();
        await page.getByRole("button", { name: /^Explain/ }).click();
        const part = page.locator("details.part").first();
        await part.getByRole("img", { name: /^predicted: .*read/ }).waitFor();
        await part.getByRole("img", { name: /^actual: .*read/ }).waitFor();
        await part.getByText("read from file").click();
        await part.getByRole("row", { name: /rounds of reads/ }).waitFor();
        await accessible(page, "timeline");
      },
      { hash },
    );
  }
});

test("recall is drawn against effort, and audited", async () => {
  await inTab(
    async (page) => {
      await page.getByRole("img", { name: /^Recall against effort/ }).waitFor();
      await page.getByRole("combobox", { name: "Effort" }).selectOption("search_list");
      await page.getByText("As a table").click();
      assert.ok((await page.getByRole("region", { name: "Points of the curves" }).getByRole("row").count()) > 5);
      await page.getByLabel("Queries").fill("50");
      await page.getByRole("button", { name: "Audit now" }).click();
      await page.getByRole("region", { name: "Audited recall" }).getByText("reached").first().waitFor();
      await page.getByText("50 queries of 10 neighbours").waitFor();
      await page.getByRole("button", { name: "Audit now" }).click();
      await page.getByRole("img", { name: "Audited recall over time" }).waitFor();
      await accessible(page, "audit");
      for (let times = 0; times < 20; times += 1) await server.post("collections/animals/search", { like: times });
      await page.getByText(/^The server audits 50.00 % of the searches: [1-9]/).waitFor();
      await page.goto(`${server.origin}/console/#/collections/notes/recall`);
      await page.getByText("every answer is exact").waitFor();
    },
    { hash: "#/collections/animals/recall" },
  );
});

test("an index is audited", async () => {
  await inTab(
    async (page) => {
      await page.getByLabel("Queries").fill("30");
      await page.getByRole("button", { name: "Audit now" }).click();
      await page.getByRole("region", { name: "Audited recall" }).getByText("reached").first().waitFor();
      await page.getByText("30 queries of 10 neighbours").waitFor();
    },
    { hash: "#/indexes/shells/recall" },
  );
});

test("a map shows rows by pointer and by keys, in colours of a column", async () => {
  await inTab(
    async (page) => {
      await page.getByText("2,000 rows of 10,000").waitFor();
      const map = page.getByRole("application", { name: /^Map of 2,000 rows/ });
      await page.getByRole("list", { name: "Colours by zone" }).getByText("trench").waitFor();
      await map.focus();
      await page.keyboard.press("ArrowRight");
      const label = page.locator(".map [role=status]");
      const first = await label.innerText();
      assert.match(first, /^\d+, zone \w+$/);
      await page.keyboard.press("ArrowRight");
      await page.keyboard.press("ArrowUp");
      assert.notEqual(await label.innerText(), first);
      const id = (await label.innerText()).split(",")[0];
      await page.keyboard.press("Enter");
      await page.getByRole("dialog", { name: `Row ${id}` }).waitFor();
      await page.keyboard.press("Escape");
      const drawn = await map.evaluate((canvas) => {
        const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
        return data.filter((value, at) => at % 4 === 3 && value > 0).length;
      });
      assert.ok(drawn > 5000, `${drawn} pixels are drawn`);
      await page.getByRole("combobox", { name: "Colours by" }).selectOption("year");
      await page.getByRole("img", { name: "year from low to high" }).waitFor();
      await filterOf(page).fill("zone = 'vent' and year > 2000");
      await page.keyboard.press("Enter");
      await page.getByText(/^[\d,]+ rows of 1,\d\d\d/).waitFor();
      await filterOf(page).fill("zone = 7");
      await page.keyboard.press("Enter");
      await page.getByRole("alert").getByText("zone").waitFor();
      await page.goto(`${server.origin}/console/#/indexes/shells/map`);
      await page.getByRole("application", { name: /^Map of 2,000 vectors/ }).waitFor();
    },
    { hash: "#/collections/animals/map", expected: [/400/] },
  );
});

test("counters are live", async () => {
  await inTab(
    async (page) => {
      const figure = page.locator(".figure", { hasText: "Queries" }).locator("dd");
      const queries = async () => Number(/^[\d,]+/.exec(await figure.innerText())?.[0].replaceAll(",", ""));
      await figure.waitFor();
      const before = await queries();
      await server.post("collections/animals/search", { like: 1 });
      for (let times = 0; times < 200 && (await queries()) <= before; times += 1) await page.waitForTimeout(50);
      assert.ok((await queries()) > before);
      await page.getByRole("img", { name: "Queries each second" }).waitFor();
      await page.goto(`${server.origin}/console/#/server`);
      await page.getByRole("row", { name: /POST \/v1\/collections\/\{name\}\/search 200/ }).waitFor();
    },
    { hash: "#/collections/animals/live" },
  );
});

test("only a key that may write is offered changes, and each is confirmed", async () => {
  const changes = /Delete|Compact|Write rows/;
  await inTab(
    async (page) => {
      await page.getByRole("button", { name: "Verify every byte" }).click();
      await page.getByText("Every byte is as it was written.").waitFor();
      assert.equal(await page.getByRole("button", { name: changes }).count(), 0);
      await open(page, "#/collections/animals/rows", "10,000 rows");
      await page.getByRole("gridcell", { name: "3", exact: true }).click();
      await page.getByRole("dialog").getByText("Search like this one").waitFor();
      assert.equal(await page.getByRole("button", { name: changes }).count(), 0);
    },
    { secret: READER, hash: "#/collections/animals/about" },
  );
  await inTab(
    async (page) => {
      await page.getByRole("gridcell", { name: "a", exact: true }).click();
      const dialog = page.getByRole("dialog");
      await dialog.getByRole("button", { name: "Delete …" }).click();
      await accessible(page, "deletion");
      await dialog.getByRole("button", { name: "Keep it" }).click();
      await dialog.getByRole("button", { name: "Delete …" }).click();
      await dialog.getByRole("button", { name: "Delete the row" }).click();
      await page.getByText("2 rows").waitFor();
      await open(page, "#/collections/notes/about", "Upkeep");
      await page.getByRole("button", { name: "Write rows in memory as a segment" }).click();
      await page.getByText("Written.").waitFor();
      await page.getByRole("button", { name: "Compact …" }).click();
      await page.getByRole("button", { name: "Compact", exact: true }).click();
      await page.getByText("Compacted.").waitFor();
      await server.post("collections/notes/add", { rows: [{ id: "a", vector: [1, 0, 0.5], text: "note <b>a</b>" }] });
    },
    { hash: "#/collections/notes/rows" },
  );
});

test("pictures of other hosts are loaded only when they are asked for", async () => {
  await inTab(
    async (page) => {
      await page.getByText("10,000 rows").waitFor();
      await page.getByRole("link", { name: "0.jpg", exact: true }).waitFor();
      assert.equal(await page.locator(".grid-row img").count(), 0);
      await page.getByLabel("Show pictures of other hosts").check();
      await page.getByRole("img", { name: "0.jpg", exact: true }).waitFor();
      await page.waitForTimeout(100);
    },
    {
      hash: "#/collections/animals/rows",
      foreign: ["https://pictures.invalid"],
      expected: [/ERR_FAILED/],
    },
  );
});

test("values of rows are text, whatever they hold", async () => {
  await inTab(
    async (page) => {
      await page.getByText("note <b>b</b>").waitFor();
      assert.equal(await page.locator(".grid-row b").count(), 0);
    },
    { hash: "#/collections/notes/rows" },
  );
});

test("ids beyond 2^53 keep all their digits", async () => {
  await inTab(
    async (page) => {
      for (const id of ["18446744073709551615", "9007199254740993", "7"]) {
        await open(page, "#/collections/large/rows", "3 rows");
        await page.getByRole("gridcell", { name: id, exact: true }).click();
        const dialog = page.getByRole("dialog", { name: `Row ${id}` });
        await dialog.getByText(/^row \d$/).waitFor();
        await dialog.getByText("Search like this one").click();
        await page.getByText("3 neighbours").waitFor();
        await page.locator(".grid-row:not(.head) > div:first-child").first().getByText(id, { exact: true }).waitFor();
      }
    },
    { hash: "#/collections/large/rows" },
  );
});

test("keys lead everywhere", async () => {
  await inTab(async (page) => {
    await page.getByRole("link", { name: "animals" }).waitFor();
    await page.keyboard.press("Tab");
    assert.equal(await page.evaluate(() => document.activeElement.textContent), "Skip to the content");
    await page.keyboard.press("Enter");
    assert.equal(await page.evaluate(() => document.activeElement.id), "content");
    await page.keyboard.press("?");
    await page.getByRole("dialog", { name: "Keyboard" }).waitFor();
    await accessible(page, "help");
    await page.keyboard.press("Escape");
    await page.getByRole("link", { name: "animals" }).focus();
    await page.keyboard.press("Enter");
    await page.getByText("10,000 rows").waitFor();
    await page.keyboard.press("/");
    assert.ok(await filterOf(page).evaluate((input) => input === document.activeElement));
    await page.keyboard.type("2");
    assert.equal(await filterOf(page).inputValue(), "2");
    await page.keyboard.press("Escape");
    await page.getByRole("grid").focus();
    for (const [key, text] of [["2", "Search by a row"], ["3", "Audit now"], ["4", "drawn at random"], ["o", "server ready"], ["v", "By operation"]]) {
      await page.keyboard.press(key);
      await page.getByText(text).first().waitFor();
    }
    const theme = () => page.evaluate(() => document.documentElement.dataset.theme ?? "auto");
    assert.equal(await theme(), "auto");
    await page.keyboard.press("t");
    await page.keyboard.press("t");
    assert.equal(await theme(), "dark");
    await page.reload();
    await page.getByText("By operation").waitFor();
    assert.equal(await theme(), "dark");
    assert.equal(await page.evaluate(() => getComputedStyle(document.body).backgroundColor), "rgb(14, 21, 26)");
    await page.keyboard.press("?");
    await page.getByLabel("Single letters and digits are shortcuts").uncheck();
    await page.keyboard.press("Escape");
    await page.keyboard.press("o");
    assert.equal(new URL(page.url()).hash, "#/server");
  });
});

test("what is not there is said", async () => {
  await inTab(
    async (page) => {
      await page.getByRole("alert").getByText("there is no collection nowhere").waitFor();
      await accessible(page, "missing collection");
      await open(page, "#/indexes/nowhere/search", "there is no index nowhere");
    },
    { hash: "#/collections/nowhere/rows", expected: [/404/] },
  );
});

test("a server that is gone, and a key that ends, are said, and the page goes on later", async () => {
  await inTab(
    async (page) => {
      await page.getByText("10,000 rows").waitFor();
      await server.stop();
      await filterOf(page).fill("living");
      await page.keyboard.press("Enter");
      const alert = page.getByRole("alert");
      await alert.getByText("the server does not answer").waitFor();
      await accessible(page, "server gone");
      await server.start();
      await filterOf(page).press("Enter");
      await page.getByText(/rows of 10,000 match/).waitFor();
      server.writeKeys(`[[key]]\nname = "admin"\nsecret = "${ADMIN}"\nright = "write"\nexpires = 1000\n`);
      for (let times = 0; times < 100; times += 1) {
        await filterOf(page).press("Enter", { timeout: 500 }).catch(() => undefined);
        if (await page.getByLabel("Key", { exact: true }).count()) break;
        await page.waitForTimeout(100);
      }
      await page.getByRole("alert").getByText("the key has expired").waitFor();
      assert.deepEqual(await page.evaluate(() => ({ ...sessionStorage })), {});
    },
    { hash: "#/collections/animals/rows", expected: [/ERR_CONNECTION|401/] },
  );
});
