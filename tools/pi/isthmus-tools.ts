/**
 * The tools of `isthmus mcp` as tools of pi, including custom tools.  The state of custom tools follows pi's session
 * and branch, also after /tree, /fork and /resume.
 *
 *     pi -e /usr/local/share/isthmus/pi/isthmus-tools.ts
 *
 * ISTHMUS_MCP is the command line of the server as JSON, by default ["isthmus", "mcp"], for the current directory.
 */
import { spawn } from "node:child_process";
import { createInterface } from "node:readline";

export default async function (pi: any) {
	const [program, ...args] = JSON.parse(process.env.ISTHMUS_MCP ?? '["isthmus", "mcp"]');
	const server = spawn(program, args, { stdio: ["pipe", "pipe", "inherit"] });
	const pipe = server.stdout as any;
	const calls = new Map<unknown, any>(); // requests that wait for an answer, by id
	let last = 0;
	let isFirst = true; // call of the turn: only then does the branch have the results of all calls before it
	let ui: any;

	const send = (message: object) => server.stdin.write(`${JSON.stringify({ jsonrpc: "2.0", ...message })}\n`);

	// Answers a question of a tool: a form with one field.
	async function answer(id: unknown, { message, requestedSchema }: any) {
		const [name, field]: any = Object.entries(requestedSchema.properties)[0];
		const value = field.enum
			? await ui?.select(message, field.enum)
			: field.type === "boolean"
				? await ui?.confirm(message, "")
				: await (field.default === undefined ? ui?.input(message, field.description) : ui?.editor(message, field.default));
		send({ id, result: value === undefined ? { action: "cancel" } : { action: "accept", content: { [name]: value } } });
	}

	function take(message: any) {
		const { id, method, params } = message;
		if (method === "elicitation/create") answer(id, params).catch(() => send({ id, result: { action: "cancel" } }));
		if (method === "notifications/progress" && params.message) calls.get(params.progressToken)?.onProgress?.(params.message);
		if (method) return;
		calls.get(id)?.settle(message);
		calls.delete(id);
		// The server keeps pi from exiting only while a request is pending.
		if (!calls.size) pipe.unref();
	}

	function ask(method: string, params: any, signal?: AbortSignal, onProgress?: (text: string) => void): Promise<any> {
		const id = ++last;
		return new Promise((resolve, reject) => {
			const settle = ({ result, error }: any) => (error ? reject(new Error(error.message)) : resolve(result));
			calls.set(id, { settle, onProgress });
			pipe.ref();
			send({ id, method, params: onProgress ? { ...params, _meta: { ...params._meta, progressToken: id } } : params });
			signal?.addEventListener("abort", () => {
				send({ method: "notifications/cancelled", params: { requestId: id } });
				take({ id, error: { message: "aborted" } });
			});
		});
	}

	// The call of the last result of a custom tool on the branch, or null.
	const parentOf = (entries: any[]) =>
		entries.map((entry) => entry.message?.details?.isthmusCall).filter(Boolean).at(-1) ?? null;

	function placeOf(ctx: any) {
		const place: any = { "isthmus/session": `pi-${ctx.sessionManager.getSessionId()}`, "isthmus/queued": Number(ctx.hasPendingMessages?.() ?? 0) };
		if (isFirst) place["isthmus/parent"] = parentOf(ctx.sessionManager.getBranch());
		isFirst = false;
		return place;
	}

	createInterface({ input: server.stdout }).on("line", (line) => take(JSON.parse(line)));
	server.unref();
	(server.stdin as any).unref();
	server.stdin.on("error", () => {});
	process.on("exit", () => server.kill());
	server.on("error", (error) => calls.forEach(({ settle }) => settle({ error })));
	pi.on("turn_start", () => (isFirst = true));
	await ask("initialize", { protocolVersion: "2025-11-25", capabilities: { elicitation: {} }, clientInfo: { name: "pi", version: "0" } });
	for (const { name, title, description, inputSchema, _meta: about } of (await ask("tools/list", {})).tools)
		pi.registerTool({
			name: `isthmus_${name}`,
			label: title,
			description,
			parameters: inputSchema,
			async execute(_id: string, params: object, signal: AbortSignal, onUpdate: any, ctx: any) {
				if (ctx.hasUI) ui = ctx.ui;
				const progress = (text: string) => onUpdate?.({ content: [{ type: "text", text }], details: {} });
				const result = await ask("tools/call", { name, arguments: params, _meta: placeOf(ctx) }, signal, progress);
				const { isError, _meta } = result;
				const content = result.content.filter((block: any) => block.type !== "resource_link"); // pi has no such blocks
				if (isError) throw new Error(content.map((block: any) => block.text ?? "").join("\n"));
				const { call_id, data } = _meta?.["isthmus/result"] ?? {};
				return { content, details: about?.["isthmus/custom"] ? { ...data?.details, isthmusCall: call_id } : {} };
			},
		});
}
