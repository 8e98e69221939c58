/* The tool of contract.py in C without a library: isthmus-tool/1, one process a call. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char description[] =
	"{\"protocol\":\"isthmus-tool/1\",\"lifetime\":\"call\",\"tools\":[{\"name\":\"exam\","
	"\"label\":\"Exam\",\"description\":\"What a contract asks\",\"parameters\":{"
	"\"type\":\"object\",\"properties\":{\"do\":{\"type\":\"string\",\"enum\":[\"echo\","
	"\"throw\",\"update\",\"crash\",\"hang\",\"twice\",\"noise\",\"exec\",\"silent\",\"big\","
	"\"ask\",\"cwd\",\"tell\",\"emit\",\"before\"]},\"text\":{\"type\":\"string\"},\"count\":{"
	"\"type\":\"integer\"}},"
	"\"required\":[\"do\"],\"additionalProperties\":false}}]}";

static char line[1 << 16], id[64], text[4096], does[32];

/* A string without escapes. */
static void member(const char *name, char *to, size_t size)
{
	char key[32];
	const char *at;
	size_t length;

	snprintf(key, sizeof(key), "\"%s\":\"", name);
	at = strstr(line, key);
	*to = '\0';
	if (!at)
		return;
	at += strlen(key);
	length = strcspn(at, "\"");
	if (length < size) {
		memcpy(to, at, length);
		to[length] = '\0';
	}
}

static void next_line(void)
{
	if (!fgets(line, sizeof(line), stdin))
		exit(0);
}

static void say(const char *type, const char *rest)
{
	printf("{\"type\":\"%s\",\"id\":\"%s\"%s}\n", type, id, rest);
	fflush(stdout);
}

static void result(const char *words, const char *rest)
{
	char content[5000];

	snprintf(content, sizeof(content), ",\"content\":[{\"type\":\"text\",\"text\":\"%s\"}]%s",
		words, rest);
	say("result", content);
}

static void update(void)
{
	for (int i = 1; i <= 3; i++) {
		char content[100];

		snprintf(content, sizeof(content),
			",\"content\":[{\"type\":\"text\",\"text\":\"step %d\"}]", i);
		say("update", content);
	}
	result("all steps", "");
}

static void big(void)
{
	printf("{\"type\":\"result\",\"id\":\"%s\",\"content\":[{\"type\":\"text\",\"text\":\"",
		id);
	for (int i = 0; i < 3000000; i++)
		fputs(i % 100 == 99 ? "\\n" : "x", stdout);
	printf("\"}]}\n");
}

static void ask(void)
{
	char words[4200], value[100];

	say("ui_request", ",\"ask\":\"u1\",\"method\":\"select\",\"title\":\"Which?\","
			  "\"options\":[\"red\",\"blue\"]");
	next_line();
	member("value", value, sizeof(value));
	snprintf(words, sizeof(words), "chose %s in %ld", value, (long)getpid());
	result(words, "");
}

/* How many results it had earlier. */
static void before(void)
{
	char words[16];
	int count = 0;

	for (const char *at = line; (at = strstr(at, "\"call\":")); at++)
		count++;
	snprintf(words, sizeof(words), "%d", count);
	result(words, "");
}

static void run(void)
{
	char words[4200];

	if (strcmp(does, "echo") == 0) {
		result(text, ",\"details\":{\"secret\":\"kept apart\"}");
	} else if (strcmp(does, "throw") == 0) {
		snprintf(words, sizeof(words), ",\"message\":\"no luck with %s\"", text);
		say("error", words);
	} else if (strcmp(does, "update") == 0) {
		update();
	} else if (strcmp(does, "crash") == 0) {
		fputs("it broke\n", stderr);
		exit(3);
	} else if (strcmp(does, "hang") == 0) {
		signal(SIGTERM, SIG_IGN);
		snprintf(words, sizeof(words), "setsid sleep %s", text);
		exit(system(words) != 0);
	} else if (strcmp(does, "twice") == 0) {
		result("first", "");
		result("second", "");
	} else if (strcmp(does, "noise") == 0) {
		fputs("no JSON\n\377\376\n{\"type\":\"unknown\"}\n[1]\n", stdout);
		fputs("harmless\n", stderr);
		result("heard", "");
	} else if (strcmp(does, "exec") == 0) {
		say("exec", ",\"ask\":\"e1\",\"argv\":[\"printf\",\"%s\",\"$HOME and *\"],"
			    "\"timeout\":5000");
		next_line();
		member("stdout", words, sizeof(words));
		result(words, "");
	} else if (strcmp(does, "big") == 0) {
		big();
	} else if (strcmp(does, "ask") == 0) {
		ask();
	} else if (strcmp(does, "cwd") == 0) {
		result(getcwd(words, 4096) ? words : "", "");
	} else if (strcmp(does, "tell") == 0) {
		say("message", ",\"custom_type\":\"note\",\"content\":\"by the way\","
			       "\"display\":true");
		result("told", "");
	} else if (strcmp(does, "emit") == 0) {
		say("emit", ",\"channel\":\"exam:done\",\"data\":{\"n\":1}");
		result("emitted", "");
	} else if (strcmp(does, "before") == 0) {
		before();
	}
}

int main(void)
{
	const char *action = getenv("TOOLBOX_ACTION");

	if (action && strcmp(action, "describe") == 0)
		return puts(description) < 0;
	next_line();
	member("id", id, sizeof(id));
	member("text", text, sizeof(text));
	member("do", does, sizeof(does));
	run();
	return 0;
}
