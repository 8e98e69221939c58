// What pi does with the extension in argv[2]: calls, also side by side, in sessions and on branches.  A line for each answer.
const tools = {}, handlers = {};
const pi = { registerTool: (tool) => (tools[tool.name] = tool), on: (name, handler) => (handlers[name] = handler) };
await (await import(process.argv[2])).default(pi);
const ui = { select: async (_title, options) => options[1], confirm: async () => true, input: async () => undefined, editor: async () => "edited" };
let branch = [];
let session = "s";
const ctx = { ui, hasUI: true, hasPendingMessages: () => false, sessionManager: { getSessionId: () => session, getBranch: () => branch } };

async function turn(...calls) {
	handlers.turn_start();
	const results = await Promise.allSettled(calls.map(([name, params]) => tools[`isthmus_${name}`].execute("id", params, undefined, undefined, ctx)));
	for (const { value } of results) branch = [...branch, { type: "message", message: { role: "toolResult", details: value?.details } }];
	console.log(results.map(({ value, reason }) => value?.content[0].text.split(" ")[0] ?? `failed: ${reason.message}`).join(" "));
}

const one = ["one", {}];
await turn(one);
await turn(one);
await turn(["read", { path: "file" }]);
const here = branch;
await turn(one, one);
branch = here.slice(0, 1);
await turn(one);
branch = here;
await turn(one);
branch = [];
await turn(one);
session = "t";
branch = [];
await turn(one);
session = "s";
branch = here;
await turn(["read", { path: "nofile" }], one);
const { content } = await tools.isthmus_asks.execute("id", {}, undefined, undefined, ctx);
console.log(content[0].text);
