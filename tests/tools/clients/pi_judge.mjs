// pi_judge.mjs MODULE MOUNT ISTHMUS: pi's own tools with the operations of the module, and the
// module as pi loads it.
import assert from "node:assert/strict";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { pathToFileURL } from "node:url";
import { createJiti } from "jiti";
import { createBashTool, createEditTool, createReadTool, createWriteTool, discoverAndLoadExtensions } from "@mariozechner/pi-coding-agent";

const [module, mount, isthmus] = process.argv.slice(2);
const { bashOperations, editOperations, readOperations, writeOperations } = await createJiti(import.meta.url).import(module);
const bash = bashOperations(isthmus), read = readOperations(), write = writeOperations(), edit = editOperations();

async function run(command, options = {}) {
	const parts = [];
	const given = { onData: (data) => parts.push(data), ...options };
	const before = { ...given };
	const { exitCode } = await bash.exec(command, mount, given);
	assert.deepEqual(given, before, "parameters are not changed");
	return { exitCode, output: Buffer.concat(parts).toString() };
}

// The operations, one by one.
assert.deepEqual(await run("echo hello"), { exitCode: 0, output: "hello\n" });
assert.deepEqual(await run("echo out; echo err >&2; exit 42").then(({ exitCode, output }) => [exitCode, output.split("\n").sort().join()]), [42, ",err,out"]);
assert.equal((await run("pwd")).output.endsWith("/ws\n"), true, "where the files are");
assert.equal((await run('[[ a == a ]] && echo "$0"')).exitCode, 0, "bash where there is one");

const arrivals = [];
await bash.exec("echo first; sleep 1; echo second", mount, { onData: (data) => arrivals.push([Date.now(), String(data)]) });
assert.deepEqual(arrivals.map(([, text]) => text), ["first\n", "second\n"]);
assert.ok(arrivals[1][0] - arrivals[0][0] > 500, "output comes while it runs");

for (let i = 0; i < 20; i++)
	assert.equal((await run("for i in 1 2 3; do echo o$i; echo e$i >&2; done")).output, "o1\ne1\no2\ne2\no3\ne3\n", "output in its order");

await assert.rejects(run("sleep 4716", { timeout: 0.1 }), /timeout/);
await assert.rejects(run("trap '' TERM; sleep 4716; sleep 4716", { timeout: 0.1 }), /timeout/);
const controller = new AbortController();
setTimeout(() => controller.abort(), 300);
await assert.rejects(run("sleep 4716", { signal: controller.signal }), /aborted/);
await assert.rejects(run("echo never", { signal: AbortSignal.abort() }), /aborted/);
assert.equal((await run('for p in /proc/[0-9]*; do tr "\\0" " " <$p/cmdline; echo; done 2>/dev/null | grep -c "^sleep 4716"')).output, "0\n", "the tree is gone");

process.env.ISTHMUS_TEST_HERE = "leak";
const env = { ...process.env, MINE: "a b'c", "no name": "x", PATH: `/pi/bin:${process.env.PATH}` };
assert.match((await run('echo "$MINE,$ISTHMUS_TEST_HERE,$PATH"', { env })).output, /^a b'c,,\/(?!pi\/bin)/, "only what was set goes along");
assert.equal((await run("echo $PATH", { env: { PATH: "/mine:/bin" } })).output, "/mine:/bin\n");
await assert.rejects(bashOperations("/no/such/isthmus").exec("true", mount, { onData() {} }), /ENOENT/);

const bytes = Buffer.from(Array.from({ length: 70000 }, (_, i) => (i * 7) & 255));
writeFileSync(`${mount}/binary`, bytes);
assert.deepEqual(await read.readFile(`${mount}/binary`), bytes);
assert.deepEqual(await edit.readFile(`${mount}/binary`), bytes);
await write.mkdir(`${mount}/a/b/c`);
await write.mkdir(`${mount}/a/b/c`);
await write.writeFile(`${mount}/a/b/c/text`, "Grüße 'quoted' $HOME\n");
assert.equal((await run("cat a/b/c/text")).output, "Grüße 'quoted' $HOME\n");
await assert.rejects(read.access(`${mount}/missing`));
await assert.rejects(edit.access(`${mount}/missing`));
for (const [name, head, type] of [
	["png", "\x89PNG\r\n\x1a\n", "image/png"], ["jpg", "\xff\xd8\xff\xe0", "image/jpeg"], ["gif", "GIF89a", "image/gif"],
	["webp", "RIFF\x01\x02\x0a\x04WEBPVP8", "image/webp"], ["text", "RIFF raff", null], ["empty", "", null]]) {
	writeFileSync(`${mount}/${name}`, head, "latin1");
	assert.equal(await read.detectImageMimeType(`${mount}/${name}`), type, name);
}
assert.equal(await read.detectImageMimeType(`${mount}/missing`), null);

// pi's own tools over them.
const text = (result) => result.content.map((part) => part.text ?? "").join("");
const options = (operations) => ({ operations });
mkdirSync(`${mount}/src`);
await createWriteTool(mount, options(write)).execute("1", { path: "src/new/file.txt", content: "one\ntwo\n" });
assert.equal(readFileSync(`${mount}/src/new/file.txt`, "utf8"), "one\ntwo\n");
await createEditTool(mount, options(edit)).execute("2", { path: "src/new/file.txt", edits: [{ oldText: "two", newText: "2" }] });
assert.match(text(await createReadTool(mount, options(read)).execute("3", { path: "src/new/file.txt" })), /^one\n2/);
const bashTool = createBashTool(mount, options(bash));
assert.match(text(await bashTool.execute("4", { command: "cat src/new/file.txt; echo $ISTHMUS_TEST_HERE" })), /^one\n2\n/);
await assert.rejects(bashTool.execute("5", { command: "echo seen; exit 3" }), /seen[^]*3/);
await assert.rejects(bashTool.execute("6", { command: "sleep 4716", timeout: 0.2 }), /timed out/);

// As pi loads it, with "isthmus" from PATH and the mount as the current directory.
process.chdir(mount);
const loaded = await discoverAndLoadExtensions([module], mount, `${process.env.HOME}/agent`);
assert.deepEqual(loaded.errors, []);
const extension = loaded.extensions.find(({ path }) => path === module || pathToFileURL(path).href === module);
assert.deepEqual([...extension.tools.keys()].sort(), ["bash", "edit", "read", "write"]);
const execute = (name, parameters) => extension.tools.get(name).definition.execute("7", parameters, undefined, undefined, {});
await execute("write", { path: "by-extension", content: "here" });
assert.match(text(await execute("bash", { command: "cat by-extension; pwd" })), /^here.*\/ws\n$/);
// grep, find and ls, which pi has switched on for --tools, from any directory; what is active stays so.
let active = ["read", "ls"];
Object.assign(loaded.runtime, { getActiveTools: () => [...active], setActiveTools: (names) => (active = names), refreshTools() {} });
loaded.runtime.flagValues.set("workspace", mount);
for (const handler of extension.handlers.get("session_start")) await handler({ type: "session_start" }, {});
assert.deepEqual(active, ["read", "ls"]);
assert.deepEqual([...extension.tools.keys()].sort(), ["bash", "edit", "find", "grep", "ls", "read", "write"]);
process.chdir("/");
assert.match(text(await execute("ls", { path: "src" })), /^new/);
assert.match(text(await execute("ls", {})), /by-extension/);
if (process.env.PATH.split(":").some((directory) => existsSync(`${directory}/rg`)))
	assert.match(text(await execute("grep", { pattern: "^here$" })), /^by-extension:1: here/);
console.log("good");
