// node-host.mjs FILE - speaks isthmus-tool/1 for the tools of pi in FILE, of both generations:
// custom tools (a factory that returns tools) and extensions (a function that registers them).
// It lives as long as the session, so that the variables in FILE persist between calls.
import { AsyncLocalStorage } from "node:async_hooks";
import console from "node:console";
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

const { installShims, plain, theme, useJiti } = await import("./node-shims.mjs");
installShims();

const file = path.resolve(process.argv[2]);
const describes = process.env.TOOLBOX_ACTION === "describe";
const waiting = new Map(); // questions and commands that have no answer yet, by their ask
const ignored = new Set();
const handlers = new Map(); // of the session's events, by name
const tools = [];
const calls = new AsyncLocalStorage(); // {message, abort}: the call that code runs for
const running = new Map(); // calls by id
let asks = 0;
let session; // the id of the session
let branch = []; // earlier results: {tool, call, is_error, details}
let ready = Promise.resolve(); // the session's events so far are handled
let ended = false;

function send(message) {
	if (!describes) process.stdout.write(`${JSON.stringify(message)}\n`);
}

function complain(what, error) {
	process.stderr.write(`${what} failed: ${error?.message ?? error}\n`);
}

// Accepts functions of pi without a meaning here, and reports each one once.
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

const current = () => calls.getStore()?.message;

function ask(type, fields) {
	// Nobody answers while the tools are described: as without a person, and as if no program could be run.
	if (describes) return Promise.resolve({ cancelled: true, stdout: "", stderr: "", code: 1, killed: false });
	const id = `a${++asks}`;
	return new Promise((resolve) => {
		waiting.set(id, resolve);
		send({ type, id: current()?.id, ask: id, ...fields });
	});
}

// ---- The objects that a tool gets ---------------------------------------------------------

async function question(method, fields, options) {
	if (!current()?.has_ui) return undefined;
	const answer = await ask("ui_request", { method, timeout: options?.timeout, ...fields });
	return answer.cancelled ? undefined : answer.value;
}

const notify = (message) => send({ type: "ui_request", id: current()?.id, method: "notify", message: String(message) });

const ui = lenient(
	{
		theme,
		select: (title, options, more) => question("select", { title, options }, more),
		confirm: async (title, message, more) => (await question("confirm", { title, message }, more)) === true,
		input: (title, placeholder, more) => question("input", { title, placeholder }, more),
		editor: (title, prefill) => question("editor", { title, prefill }),
		notify,
		// No agent can show a component: it is printed once, and its result is that of a user who closed it.
		custom(component) {
			ignore("ui.custom");
			if (typeof component?.render === "function") notify(plain(component.render(80).join("\n")));
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

function deliver(channel, data) {
	for (const handler of [...(listeners.get(channel) ?? [])])
		(async () => handler(data))().catch((error) => complain(`a handler of "${channel}"`, error));
}

const events = {
	emit(channel, data) {
		deliver(channel, data);
		send({ type: "emit", channel, data });
	},
	on(channel, handler) {
		if (!listeners.get(channel)?.size) send({ type: "subscribe", channel });
		listeners.set(channel, (listeners.get(channel) ?? new Set()).add(handler));
		return () => {
			listeners.get(channel).delete(handler);
			if (!listeners.get(channel).size) send({ type: "unsubscribe", channel });
		};
	},
};

function sendMessage(message, options) {
	const { customType, content, display, details } = message;
	const mode = { deliver_as: options?.deliverAs, trigger_turn: options?.triggerTurn };
	if (describes) return;
	ask("message", { custom_type: customType, content, display, details, ...mode }).then(({ delivered }) => {
		if (options?.triggerTurn && delivered === "queued") ignore("triggerTurn");
	});
}

const pi = lenient(
	{
		cwd: process.cwd(),
		get hasUI() {
			return current()?.has_ui === true;
		},
		ui,
		exec,
		events,
		sendMessage,
		sendUserMessage: (content, options) => sendMessage({ customType: "user", content, display: true }, options),
		registerTool: (tool) => tools.push({ ...tool, today: true, source: tool }),
		on(name, handler) {
			if (!name.startsWith("session_")) ignore(`on("${name}")`);
			handlers.set(name, [...(handlers.get(name) ?? []), handler]);
		},
	},
	"pi",
);

function entries() {
	return branch.map((entry, index) => ({
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
		getSessionId: () => session,
		getSessionFile: () => undefined,
		getCwd: () => process.cwd(),
		getLeafId: () => entries().at(-1)?.id ?? null,
	},
	"sessionManager",
);

const keys = (provider) => process.env[`${String(provider?.provider ?? provider).toUpperCase().replaceAll("-", "_")}_API_KEY`];
const hasQueued = () => (current()?.queued ?? 0) > 0;

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
			return calls.getStore()?.abort.signal;
		},
		isIdle: () => running.size === 0,
		hasQueuedMessages: hasQueued,
		hasPendingMessages: hasQueued,
		abort: () => calls.getStore()?.abort.abort(),
	},
	"ctx",
);

// ---- Loading, and the session ------------------------------------------------------------------

async function importFile() {
	const address = url.pathToFileURL(file).href;
	try {
		return (await import(address)).default;
	} catch (error) {
		if (error.code !== "ERR_UNSUPPORTED_TYPESCRIPT_SYNTAX") throw error;
		if (!useJiti(file)) throw new Error(`${error.message.trim()}; it needs jiti: npm install jiti beside ${file}, or install pi`);
		const { default: made } = await import(`${address}?jiti`);
		return made?.default ?? made;
	}
}

async function load() {
	const factory = await importFile();
	if (typeof factory !== "function") throw new Error("it has no default export that is a function");
	const made = await factory(pi);
	for (const tool of [made].flat())
		if (tool && typeof tool.execute === "function") tools.push({ ...tool, today: false, source: tool });
}

// Extensions may register their tools when the session starts.  Without those that take longer, the others are described.
async function startToDescribe() {
	const waited = new Promise((resolve) => setTimeout(resolve, 2000));
	await Promise.race([tell("start").catch((error) => complain("the session's start", error)), waited]);
}

function describe() {
	const described = tools.map(({ name, label, description, parameters, source }) => ({
		name,
		label,
		description,
		parameters,
		renders: Boolean(source.renderCall ?? source.renderResult),
	}));
	const text = { protocol: "isthmus-tool/1", lifetime: "session", subscribe: [...listeners.keys()], tools: described };
	process.stdout.write(`${JSON.stringify(text)}\n`, () => process.exit(0));
}

// Pi's present names for the events of a session, with the reason if there is one.
const eventsNow = {
	start: [["session_start", "startup"]],
	switch: [["session_start", "resume"], ["session_switch", "resume"]],
	branch: [["session_start", "fork"], ["session_branch"], ["session_fork"]],
	tree: [["session_tree"]],
	shutdown: [["session_shutdown", "quit"]],
};

async function tell(reason, previous) {
	const previousSessionFile = previous ?? undefined;
	for (const { source } of tools) await source.onSession?.({ reason, previousSessionFile }, context);
	for (const [type, why] of eventsNow[reason] ?? [])
		for (const handler of handlers.get(type) ?? []) await handler({ type, reason: why, previousSessionFile }, context);
}

function takeSession(message) {
	if (message.reason === "shutdown") return end();
	session = message.id;
	branch = message.entries ?? [];
	ready = ready.then(() => tell(message.reason, message.previous)).catch((error) => complain(`the session's ${message.reason}`, error));
}

async function end() {
	if (ended) return;
	ended = true;
	for (const call of running.values()) call.abort.abort();
	await Promise.race([tell("shutdown").catch(() => {}), new Promise((resolve) => setTimeout(resolve, 1500))]);
	process.stdout.write("", () => process.exit(0));
}

// ---- The calls ---------------------------------------------------------------------------------

async function run(tool, { message, abort }) {
	const update = (partial) => send({ type: "update", id: message.id, content: partial.content, details: partial.details });
	const params = tool.source.prepareArguments ? tool.source.prepareArguments(message.params) : message.params;
	const result = await (tool.today
		? tool.source.execute(message.id, params, abort.signal, update, context)
		: tool.source.execute(message.id, params, update, context, abort.signal));
	if (abort.signal.aborted) throw new Error("aborted");
	return result;
}

function keep(message, is_error, details) {
	branch.push({ tool: message.tool, call: message.id, is_error, details: details === undefined ? undefined : JSON.parse(JSON.stringify(details)) });
}

async function execute(message) {
	const call = { message, abort: new AbortController() };
	running.set(message.id, call);
	try {
		await ready;
		const tool = tools.findLast((one) => one.name === message.tool);
		if (!tool) throw new Error(`there is no tool "${message.tool}" in ${file}`);
		const result = await calls.run(call, () => run(tool, call));
		keep(message, false, result.details);
		send({ type: "result", id: message.id, content: result.content, details: result.details });
	} catch (error) {
		keep(message, true);
		send({ type: "error", id: message.id, message: String(error?.message ?? error) });
	}
	running.delete(message.id);
}

const states = new Map(); // what the renderers of a call share, by its id

function draw({ id, tool: name, phase, args, result, expanded, partial, width }) {
	const tool = tools.findLast((one) => one.name === name)?.source;
	if (!states.has(id)) states.set(id, {});
	const shown = { args, state: states.get(id), toolCallId: id, cwd: process.cwd(), expanded, isPartial: partial, isError: false, invalidate() {} };
	if (phase === "result" && !partial) states.delete(id);
	return phase === "call"
		? tool?.renderCall?.(args, theme, shown)?.render(width)
		: tool?.renderResult?.(result, { expanded, isPartial: partial }, theme, shown)?.render(width);
}

// Without text, the result is the same as without a renderer.
function render(message) {
	let lines;
	try {
		lines = draw(message);
	} catch (error) {
		complain(`drawing ${message.tool}`, error);
	}
	send({ type: "rendered", id: message.id, ask: message.ask, text: lines?.join("\n") });
}

const takers = {
	execute,
	render,
	session: takeSession,
	cancel: (message) => running.get(message.id)?.abort.abort(message.reason),
	event: (message) => deliver(message.channel, message.data),
};

function take(line) {
	const message = JSON.parse(line);
	if (takers[message.type]) takers[message.type](message);
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
if (describes) {
	if (handlers.has("session_start")) await startToDescribe();
	describe();
} else {
	process.on("SIGTERM", end);
	readline.createInterface({ input: process.stdin }).on("line", take).on("close", end);
}
