// Reads a site with sitemapper and fails unless it finds the expected pages.
// Runs in the folder where the package is installed: sitemapper_pages.mjs BASE_URL PAGES
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [baseUrl, expected] = process.argv.slice(2);
const require = createRequire(`${process.cwd()}/`);
const { default: Sitemapper } = await import(pathToFileURL(require.resolve("sitemapper")).href);
const robots = await (await fetch(`${baseUrl}/robots.txt`)).text();
const address = /^Sitemap:\s*(\S+)/m.exec(robots)[1];
const { sites } = await new Sitemapper({ url: address, timeout: 600000, concurrency: 1 }).fetch();
if (sites.length !== Number(expected)) {
  console.error(`found ${sites.length} pages, not ${expected}`);
  process.exit(1);
}
