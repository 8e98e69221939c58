/**
 * Lets pi work on an isthmus mount: files through the mount, commands at the workspace.
 *
 *     pi -e /usr/local/share/isthmus/pi/isthmus.ts                   in a directory of the mount
 *     pi -e …/isthmus.ts --workspace ~/ws                            from anywhere
 *
 * or, in a program of your own:
 *
 *     createBashTool(cwd, { operations: bashOperations() })          and so on, cwd on the mount
 */
import { spawn } from "node:child_process";
import { constants } from "node:fs";
import { access, mkdir, open, readFile, writeFile } from "node:fs/promises";

type Exec = { onData: (data: Buffer) => void; signal?: AbortSignal; timeout?: number; env?: NodeJS.ProcessEnv };

const SECOND_SIGNAL_MS = 500; // the first signal goes to the command, the second one ends isthmus exec and the command
const BASH = 'if command -v bash >/dev/null; then exec bash -c "$1"; else exec sh -c "$1"; fi';

/** Null for other types, and for files that cannot be read. */
async function detectImageMimeType(path: string): Promise<string | null> {
	const file = await open(path).catch(() => null);
	const { buffer, bytesRead } = (await file?.read(Buffer.alloc(12), 0, 12, 0).catch(() => null)) ?? { bytesRead: 0 };
	await file?.close();
	const head = buffer?.toString("latin1", 0, bytesRead) ?? "";
	if (head.startsWith("\x89PNG\r\n\x1a\n")) return "image/png";
	if (head.startsWith("\xff\xd8\xff")) return "image/jpeg";
	if (/^GIF8[79]a/.test(head)) return "image/gif";
	return /^RIFF[^]{4}WEBP/.test(head) ? "image/webp" : null;
}

export const readOperations = () => ({
	readFile: (path: string) => readFile(path),
	access: (path: string) => access(path, constants.R_OK),
	detectImageMimeType,
});
export const writeOperations = () => ({
	writeFile: (path: string, content: string) => writeFile(path, content),
	mkdir: (path: string) => mkdir(path, { recursive: true }).then(() => {}),
});
export const editOperations = () => ({
	readFile: (path: string) => readFile(path),
	writeFile: (path: string, content: string) => writeFile(path, content),
	access: (path: string) => access(path, constants.R_OK | constants.W_OK),
});

/** The variables that were set for this command; the environment of this machine does not apply at the workspace. */
function environmentOptions(env: NodeJS.ProcessEnv = {}): string[] {
	const isOurs = (name: string, value?: string) =>
		!/^[A-Za-z_][A-Za-z0-9_]*$/.test(name) || value === undefined || value === process.env[name] ||
		(name === "PATH" && value.includes(process.env.PATH ?? "\0"));
	return Object.entries(env).flatMap(([name, value]) => (isOurs(name, value) ? [] : ["-e", `${name}=${value}`]));
}

export const bashOperations = (isthmus = "isthmus") => ({
	exec: (command: string, cwd: string, { onData, signal, timeout, env }: Exec) =>
		new Promise<{ exitCode: number | null }>((resolve, reject) => {
			if (signal?.aborted) return reject(new Error("aborted"));
			const argv = ["exec", cwd, "--merge", ...environmentOptions(env), "--", "sh", "-c", BASH, "sh", command];
			const child = spawn(isthmus, argv, { stdio: ["ignore", "pipe", "pipe"] });
			let timedOut = false, second: NodeJS.Timeout | undefined;
			const stop = () => {
				child.kill("SIGTERM");
				second ??= setTimeout(() => child.kill("SIGTERM"), SECOND_SIGNAL_MS);
			};
			const timer = timeout && timeout > 0 ? setTimeout(() => ((timedOut = true), stop()), timeout * 1000) : undefined;
			const settle = (end: () => void) => {
				clearTimeout(timer);
				clearTimeout(second);
				signal?.removeEventListener("abort", stop);
				end();
			};
			signal?.addEventListener("abort", stop, { once: true });
			child.stdout.on("data", onData);
			child.stderr.on("data", onData);
			child.on("error", (error) => settle(() => reject(error)));
			child.on("close", (exitCode) =>
				settle(() => {
					if (signal?.aborted) reject(new Error("aborted"));
					else if (timedOut) reject(new Error(`timeout:${timeout}`));
					else resolve({ exitCode });
				}),
			);
		}),
});

/** The extension: replaces pi's tools for files and commands, and the user's "!" commands. */
export default async function (pi: any) {
	// The package under its new or its old name.
	const { createReadTool, createWriteTool, createEditTool, createBashTool, createGrepTool, createFindTool, createLsTool }: any = await import(
		"@earendil-works/pi-coding-agent"
	).catch(() => import("@mariozechner/pi-coding-agent"));
	const workspace = () => (pi.getFlag("workspace") as string | undefined) ?? process.cwd();
	const register = (make: (cwd: string) => any) =>
		pi.registerTool({ ...make(process.cwd()), execute: (...call: any[]) => make(workspace()).execute(...call.slice(0, 4)) });

	pi.registerFlag("workspace", { description: "a directory of an isthmus mount", type: "string" });
	register((cwd) => createReadTool(cwd, { operations: readOperations() }));
	register((cwd) => createWriteTool(cwd, { operations: writeOperations() }));
	register((cwd) => createEditTool(cwd, { operations: editOperations() }));
	register((cwd) => createBashTool(cwd, { operations: bashOperations() }));
	// These are off unless --tools or the settings name them, and pi switches on what is registered: keep its choice.
	pi.on("session_start", () => {
		const active = pi.getActiveTools();
		[createGrepTool, createFindTool, createLsTool].filter(Boolean).forEach((make) => register((cwd) => make(cwd)));
		pi.setActiveTools(active);
	});
	pi.on("user_bash", () => ({ operations: bashOperations() }));
	pi.on("before_agent_start", async (event: any) => ({
		systemPrompt: event.systemPrompt.replace(
			`Current working directory: ${process.cwd()}`,
			`Current working directory: ${workspace()} (commands run where its files are)`,
		),
	}));
}
