// oracle.mjs: what Turndown, which other agents use, makes of the pages here; its answers are beside them.
// Run it after a change of a page: npm install --no-save turndown@7.2.5 && node oracle.mjs
import fs from "node:fs";
import TurndownService from "turndown";

for (const name of fs.readdirSync(".").filter((one) => one.endsWith(".html"))) {
	const html = fs.readFileSync(name, "utf8");
	const content = /<main[^>]*>([^]*)<\/main>/.exec(html) ?? /<body[^>]*>([^]*?)(<\/body>|$)/.exec(html);
	const options = { headingStyle: "atx", hr: "---", bulletListMarker: "-", codeBlockStyle: "fenced", emDelimiter: "*" };
	const turndown = new TurndownService(options).remove(["script", "style", "meta", "link"]);
	fs.writeFileSync(name.replace(".html", ".md"), `${turndown.turndown(content[1]).replace(/[ \t]+$/gm, "")}\n`);
}
