// For pi, which has no MCP of its own: the tools of a server as tools of pi.  ISTHMUS_MCP is its command line, as JSON.
import { spawn } from "node:child_process";
import { createInterface } from "node:readline";

export default async function (pi: any) {
	const [program, ...words] = JSON.parse(process.env.ISTHMUS_MCP ?? "[]");
	const server = spawn(program, words, { stdio: ["pipe", "pipe", "inherit"] });
	const waiting = new Map<number, (message: any) => void>();
	const pipe = server.stdout as any;
	let last = 0;

	// Only while it is asked something does it keep pi from ending.
	const settle = (message: any) => {
		waiting.get(message.id)?.(message);
		waiting.delete(message.id);
		if (!waiting.size) pipe.unref();
	};
	createInterface({ input: server.stdout }).on("line", (line) => settle(JSON.parse(line)));
	const ask = (method: string, params: object): Promise<any> =>
		new Promise((resolve, reject) => {
			pipe.ref();
			waiting.set(++last, ({ result, error }) => (error ? reject(new Error(error.message)) : resolve(result)));
			server.stdin.write(`${JSON.stringify({ jsonrpc: "2.0", id: last, method, params })}\n`);
		});

	server.unref();
	(server.stdin as any).unref();
	process.on("exit", () => server.kill());
	await ask("initialize", {
		protocolVersion: "2025-11-25",
		capabilities: {},
		clientInfo: { name: "pi", version: "0" },
	});
	for (const tool of (await ask("tools/list", {})).tools) {
		pi.registerTool({
			name: `isthmus_${tool.name}`,
			label: tool.title,
			description: tool.description,
			parameters: tool.inputSchema,
			async execute(_id: string, params: object) {
				const { content, isError } = await ask("tools/call", { name: tool.name, arguments: params });
				if (isError) throw new Error(content[0].text);
				return { content, details: {} };
			},
		});
	}
}
