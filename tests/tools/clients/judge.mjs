// judge.mjs sdk1|sdk2 PROGRAM DIR [MODE]: works through the server with an official SDK.
import assert from 'node:assert';
import { existsSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';

const [, , which, program, dir, mode] = process.argv;

// A server on this machine needs a rule that names it.
const server = createServer((request, response) => response.end(request.url.startsWith('/search')
	? '{"results": [{"title": "One", "url": "https://one.test/", "content": "text"}]}' : '<html><h1>Served</h1>'));
await new Promise(resolve => server.listen(0, '127.0.0.1', resolve));
const web = `http://127.0.0.1:${server.address().port}`, policy = dir + '-policy.json';
const env = { ...process.env, ISTHMUS_SEARXNG_URL: web, TAVILY_API_KEY: '', BRAVE_API_KEY: '' };
writeFileSync(policy, JSON.stringify({ permissions: [{ tool: 'webfetch', pattern: web + '/*', action: 'allow' }] }));

async function open() {
	const asked = [];
	const answer = async request => {
		asked.push(request.params.message);
		return asked.reply ?? { action: 'accept', content: { decision: 'once' } };
	};
	if (which === 'sdk1') {
		const { Client } = await import('@modelcontextprotocol/sdk/client/index.js');
		const { StdioClientTransport } = await import('@modelcontextprotocol/sdk/client/stdio.js');
		const { ElicitRequestSchema } = await import('@modelcontextprotocol/sdk/types.js');
		const client = new Client({ name: 'judge', version: '1' }, { capabilities: { elicitation: {} } });
		client.setRequestHandler(ElicitRequestSchema, answer);
		await client.connect(new StdioClientTransport({ command: program, args: ['mcp', '--policy', policy, dir], env }));
		return { client, asked, call: (call, options) => client.callTool(call, undefined, options) };
	}
	const { Client } = await import('@modelcontextprotocol/client');
	const { StdioClientTransport } = await import('@modelcontextprotocol/client/stdio');
	const negotiation = mode === 'legacy' || mode === 'auto' ? mode : { pin: mode };
	const client = new Client({ name: 'judge', version: '1' },
		{ capabilities: { elicitation: { form: {} } }, versionNegotiation: { mode: negotiation } });
	client.setRequestHandler('elicitation/create', answer);
	await client.connect(new StdioClientTransport({ command: program, args: ['mcp', '--policy', policy, dir], env }));
	assert.equal(client.getNegotiatedProtocolVersion(), mode === 'legacy' ? '2025-11-25' : '2026-07-28');
	return { client, asked, call: (call, options) => client.callTool(call, options) };
}

const { client, asked, call } = await open();
const use = (name, args, options) => call({ name, arguments: args }, options);

// The client checks each result against the tool's output schema.
const { tools } = await client.listTools();
const png = Buffer.from('iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==', 'base64');
writeFileSync(dir + '/dot.png', png);
const calls = {
	write: { path: 'a.txt', content: 'one\ntwo\n' },
	create_file: { path: 'b.json', content: '{}' },
	read: { path: 'a.txt' },
	edit: { path: 'a.txt', edits: [{ old_text: 'two', new_text: 'three' }] },
	edit_file: { path: 'b.json', content: '[]' },
	ls: {},
	find: { pattern: '*.txt' },
	glob: { pattern: '**/*.json' },
	grep: { pattern: 'three' },
	apply_patch: { patch: '*** Begin Patch\n*** Add File: d.txt\n+four\n*** End Patch' },
	bash: { command: 'cp a.txt c.txt; cat c.txt' },
	bash_output: {},
	bash_input: null,
	bash_kill: null,
	launch_app: { app_name: 'ls', args: ['-a'] },
	delete: { path: 'b.json' },
	webfetch: { url: web + '/page' },
	websearch: { query: 'words' },
};
assert.deepEqual(Object.keys(calls).sort(), tools.map(tool => tool.name).sort());
const whole = result => result.structuredContent ?? result._meta['isthmus/result'];
for (const [name, args] of Object.entries(calls)) {
	if (!args) // needs a command in the background
		continue;
	const result = await use(name, args);
	assert.ok(!result.isError, name + ': ' + JSON.stringify(result));
	assert.equal(whole(result).tool_name, name);
	assert.ok(result.content[0].text.length > 0, name);
}
assert.equal(asked.length, 2, 'bash and launch_app ask');
assert.match(asked[0], /cp a\.txt c\.txt/);
const image = await use('read', { path: 'dot.png' });
assert.deepEqual([image.content[1].type, image.content[1].mimeType], ['image', 'image/png']);
assert.deepEqual(Buffer.from(image.content[1].data, 'base64'), png);

const failed = await use('bash', { command: 'echo out; exit 3' });
assert.ok(failed.isError && whole(failed).data.exit_code === 3);
assert.match(failed.content[0].text, /out\nEXIT_STATUS/);
assert.ok((await use('read', { path: 'nofile' })).isError);
assert.ok((await use('read', {})).isError);
assert.ok((await use('edit', { path: 'a.txt', edits: 5 })).isError);
await assert.rejects(use('nope', {}), error => error.code === -32602);

asked.reply = { action: 'decline' };
const declined = await use('bash', { command: 'touch declined' });
assert.ok(declined.isError && whole(declined).error.code === 'PERMISSION_DENIED');
assert.ok(!existsSync(dir + '/declined'));
asked.reply = undefined;

const seen = [];
await use('bash', { command: 'for i in 1 2 3 4; do echo $i; sleep 0.15; done' },
	{ onprogress: progress => seen.push(progress.progress) });
assert.ok(seen.length >= 3 && seen.every((value, i) => i === 0 || value > seen[i - 1]), String(seen));

const abort = new AbortController();
setTimeout(() => abort.abort(), 200);
await assert.rejects(use('bash', { command: 'sleep 4714' }, { signal: abort.signal }));
const many = await Promise.all(Array.from({ length: 20 }, () => use('read', { path: 'a.txt' })));
assert.ok(many.every(result => whole(result).data.content === 'one\nthree\n'));
await client.close();
server.close();
console.log(which, mode ?? '', 'is content');
