// node-host.mjs FILE - speaks isthmus-tool/1 for the tools of pi in FILE, of both generations:
// custom tools (a factory that returns tools) and extensions (a function that registers them).
import console from "node:console";
import module from "node:module";
import path from "node:path";
import process from "node:process";
import readline from "node:readline";
import url from "node:url";

const [major, minor] = process.versions.node.split(".").map(Number);
if (major < 22 || (major === 22 && minor < 18)) {
	process.stderr.write(`pi's tools need Node.js 22.18 or later, and this is ${process.version}\n`);
	process.exit(1);
}
// Standard output belongs to the protocol.
globalThis.console = new console.Console(process.stderr);

const { installShims } = await import("./node-shims.mjs");
installShims(module);

const file = path.resolve(process.argv[2]);
const waiting = new Map(); // questions and commands that have no answer yet, by their ask
const ignored = new Set();
const handlers = new Map(); // of the session's events, by name
const tools = [];
let asks = 0;
let call; // the message that asked for the call
let abort = new AbortController();

function send(message) {
	process.stdout.write(`${JSON.stringify(message)}\n`);
}

// What has no meaning here is accepted, and named once.
function ignore(name) {
	if (!ignored.has(name)) process.stderr.write(`${name} of pi has no effect here\n`);
	ignored.add(name);
}

function lenient(object, prefix) {
	return new Proxy(object, {
		get(target, key) {
			if (key in target || typeof key === "symbol" || key === "then") return target[key];
			return () => ignore(`${prefix}.${key}`);
		},
	});
}

function ask(type, fields) {
	const id = `a${++asks}`;
	return new Promise((resolve) => {
		waiting.set(id, resolve);
		send({ type, id: call?.id, ask: id, ...fields });
	});
}

// ---- What a tool is given -----------------------------------------------------------------

async function question(method, fields, options) {
	if (!call?.has_ui) return undefined;
	const answer = await ask("ui_request", { method, timeout: options?.timeout, ...fields });
	return answer.cancelled ? undefined : answer.value;
}

const ui = lenient(
	{
		select: (title, options, more) => question("select", { title, options }, more),
		confirm: async (title, message, more) => (await question("confirm", { title, message }, more)) === true,
		input: (title, placeholder, more) => question("input", { title, placeholder }, more),
		editor: (title, prefill) => question("editor", { title, prefill }),
		notify: (message) => send({ type: "ui_request", id: call?.id, method: "notify", message: String(message) }),
		// No agent can show a component: its result is that of a user who closed it.
		custom() {
			ignore("ui.custom");
			return Object.assign(Promise.resolve(undefined), { close() {}, requestRender() {} });
		},
	},
	"ui",
);

async function exec(command, args, options) {
	if (options?.signal?.aborted) return { stdout: "", stderr: "", code: 1, killed: true };
	const { stdout, stderr, code, killed } = await ask("exec", {
		argv: [command, ...(args ?? [])],
		timeout: options?.timeout,
	});
	return { stdout, stderr, code, killed };
}

const listeners = new Map();
const events = {
	emit(channel, data) {
		for (const handler of [...(listeners.get(channel) ?? [])]) {
			try {
				handler(data);
			} catch (error) {
				process.stderr.write(`a handler of "${channel}" failed: ${error?.message ?? error}\n`);
			}
		}
	},
	on(channel, handler) {
		if (!listeners.has(channel)) listeners.set(channel, new Set());
		listeners.get(channel).add(handler);
		return () => listeners.get(channel).delete(handler);
	},
};

const pi = lenient(
	{
		cwd: process.cwd(),
		get hasUI() {
			return call?.has_ui === true;
		},
		ui,
		exec,
		events,
		registerTool: (tool) => tools.push({ ...tool, today: true, source: tool }),
		on(name, handler) {
			if (!name.startsWith("session_")) ignore(`on("${name}")`);
			handlers.set(name, [...(handlers.get(name) ?? []), handler]);
		},
	},
	"pi",
);

function entries() {
	return (call?.entries ?? []).map((entry, index) => ({
		type: "message",
		id: `e${index}`,
		parentId: index ? `e${index - 1}` : null,
		message: {
			role: "toolResult",
			toolCallId: entry.call,
			toolName: entry.tool,
			isError: entry.is_error === true,
			content: [],
			details: entry.details,
		},
	}));
}

const sessionManager = lenient(
	{
		getBranch: entries,
		getEntries: entries,
		getSessionId: () => call?.session,
		getSessionFile: () => undefined,
		getCwd: () => process.cwd(),
		getLeafId: () => entries().at(-1)?.id ?? null,
	},
	"sessionManager",
);

const keys = (provider) => process.env[`${String(provider?.provider ?? provider).toUpperCase().replaceAll("-", "_")}_API_KEY`];

const context = lenient(
	{
		cwd: process.cwd(),
		ui,
		get hasUI() {
			return pi.hasUI;
		},
		sessionManager,
		model: undefined,
		modelRegistry: lenient({ getApiKey: async (m) => keys(m), getApiKeyForProvider: async (p) => keys(p) }, "modelRegistry"),
		get signal() {
			return abort.signal;
		},
		isIdle: () => false,
		hasQueuedMessages: () => (call?.queued ?? 0) > 0,
		hasPendingMessages: () => (call?.queued ?? 0) > 0,
		abort: () => abort.abort(),
	},
	"ctx",
);

// ---- Loading, and the calls --------------------------------------------------------------------

async function load() {
	const { default: factory } = await import(url.pathToFileURL(file).href);
	if (typeof factory !== "function") throw new Error("it has no default export that is a function");
	const made = await factory(pi);
	for (const tool of [made].flat())
		if (tool && typeof tool.execute === "function") tools.push({ ...tool, today: false, source: tool });
}

function describe() {
	const described = tools.map(({ name, label, description, parameters }) => ({ name, label, description, parameters }));
	const text = `${JSON.stringify({ protocol: "isthmus-tool/1", lifetime: "call", tools: described })}\n`;
	process.stdout.write(text, () => process.exit(0));
}

async function tell(reason) {
	const event = { type: `session_${reason}`, reason, previousSessionFile: undefined };
	for (const tool of tools) if (tool.source.onSession) await tool.source.onSession(event, context);
	for (const handler of handlers.get(event.type) ?? []) await handler(event, context);
}

async function run(tool) {
	const update = (partial) => send({ type: "update", id: call.id, content: partial.content, details: partial.details });
	const params = tool.source.prepareArguments ? tool.source.prepareArguments(call.params) : call.params;
	const result = await (tool.today
		? tool.source.execute(call.id, params, abort.signal, update, context)
		: tool.source.execute(call.id, params, update, context, abort.signal));
	if (abort.signal.aborted) throw new Error("aborted");
	send({ type: "result", id: call.id, content: result.content, details: result.details });
}

async function execute(message) {
	call = message;
	try {
		await tell("start");
		const tool = tools.find((one) => one.name === call.tool);
		if (!tool) throw new Error(`there is no tool "${call.tool}" in ${file}`);
		await run(tool);
	} catch (error) {
		send({ type: "error", id: call.id, message: String(error?.message ?? error) });
	}
	await Promise.race([tell("shutdown").catch(() => {}), new Promise((resolve) => setTimeout(resolve, 2000))]);
	process.stdout.write("", () => process.exit(0));
}

function take(line) {
	const message = JSON.parse(line);
	if (message.type === "execute") execute(message);
	else if (message.type === "cancel") abort.abort(message.reason);
	else if (waiting.has(message.ask)) {
		waiting.get(message.ask)(message);
		waiting.delete(message.ask);
	}
}

try {
	await load();
} catch (error) {
	process.stderr.write(`${error?.message ?? error}\n`);
	process.exit(1);
}
if (process.env.TOOLBOX_ACTION === "describe") describe();
else readline.createInterface({ input: process.stdin }).on("line", take).on("close", () => abort.abort());
