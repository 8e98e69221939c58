#include "ops/support/redact.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

#include "ops/support/redact_names.h"
#include "ops/support/cleanup.h"
#include "ops/support/words.h"

enum {
	DEPTH_MAX = 4,            /* of lines inside the words of a line */
	PEM_LINE_MAX_BYTES = 128, /* "-----BEGIN ... PRIVATE KEY-----" */
	BEARER_MIN_BYTES = 8,
	BEARER_SURE_BYTES = 20,   /* from here on it is no word of a language */
	URL_TOKEN_MIN_BYTES = 20, /* a user name that is as long is a token */
};

/* What a program's option is followed by. */
enum option_value {
	NO_VALUE,
	SECRET,
	BEARER,              /* SECRET, if it does not look like a word of a language */
	HEADER,              /* name: SECRET */
	AFTER_COLON = ':',   /* user:SECRET */
	AFTER_PERCENT = '%', /* user%SECRET */
	AFTER_COMMA = ',',   /* user,SECRET */
};

/* Options that mean a secret with these programs only. */
static const struct {
	const char *programs; /* with blanks between them */
	const char *command;  /* NULL, or a word that comes before the option */
	const char *option;
	enum option_value value;
	bool attached_only; /* without a value in the same word, there is none */
} program_options[] = {
	{"mysql mysqladmin mysqlcheck mysqldump mysqlimport mysqlshow mariadb mariadb-admin "
	 "mariadb-dump 7z 7za",
		NULL, "-p", SECRET, true},
	{"sshpass mongo mongosh mongodump mongoexport mongoimport mongorestore", NULL, "-p", SECRET,
		false},
	{"docker podman buildah nerdctl helm oc az cf", "login", "-p", SECRET, false},
	{"redis-cli", NULL, "-a", SECRET, false},
	{"ldapadd ldapdelete ldapmodify ldapsearch ldapwhoami", NULL, "-w", SECRET, false},
	{"zip unzip sqlcmd", NULL, "-P", SECRET, false},
	{"curl", NULL, "-u", AFTER_COLON, false},
	{"curl", NULL, "--user", AFTER_COLON, false},
	{"curl", NULL, "-U", AFTER_COLON, false},
	{"curl", NULL, "--proxy-user", AFTER_COLON, false},
	{"curl", NULL, "-b", SECRET, false},
	{"curl", NULL, "--cookie", SECRET, false},
	{"skopeo", NULL, "--creds", AFTER_COLON, false},
	{"openssl", NULL, "-passin", AFTER_COLON, false},
	{"openssl", NULL, "-passout", AFTER_COLON, false},
	{"openssl", NULL, "-pass", AFTER_COLON, false},
	{"smbclient", NULL, "-U", AFTER_PERCENT, false},
	{"lftp", NULL, "-u", AFTER_COMMA, false},
};

/* Words before the program of a command, with blanks between them. */
static const char prefixes[] =
	"! { command do doas elif else env exec if nohup sudo then time until while xargs";

/* Keys that are known by how they begin, and how many bytes follow at least. */
static const struct {
	const char *prefix;
	unsigned min_bytes;
	const char *further; /* bytes that may be in them beside letters and digits */
} shapes[] = {
	{"ghp_", 20, ""},
	{"gho_", 20, ""},
	{"ghu_", 20, ""},
	{"ghs_", 20, ""},
	{"ghr_", 20, ""},
	{"github_pat_", 20, "_"},
	{"glpat-", 16, "_-."},
	{"AKIA", 16, ""},
	{"ASIA", 16, ""},
	{"xoxa-", 10, "-"},
	{"xoxb-", 10, "-"},
	{"xoxp-", 10, "-"},
	{"xoxr-", 10, "-"},
	{"xoxs-", 10, "-"},
	{"sk-", 20, "_-"},
	{"sk_live_", 10, ""},
	{"sk_test_", 10, ""},
	{"rk_live_", 10, ""},
	{"AIza", 30, "_-"},
	{"npm_", 30, ""},
	{"pypi-", 30, "_-"},
	{"hf_", 30, ""},
	{"SG.", 30, "_-."},
	{"dop_v1_", 30, ""},
	{"hvs.", 20, "_-"},
	{"ya29.", 20, "_-."},
	{"eyJ", 30, "_-."},
};

/* ---- Output -------------------------------------------------------------------------------- */

struct redactor {
	struct buffer *out;
	bool *redacted;
	int error;
	unsigned depth;

	/* The command that is being read. */
	bool at_program;
	char program[32], command[16]; /* command: a word that is one in program_options */
	uint64_t options;              /* a bit for each row of program_options that counts */
	enum option_value next;
	bool after_set; /* "config set NAME VALUE" */
};

static void put(struct redactor *r, const char *at, const char *end)
{
	if (r->error == 0)
		r->error = buffer_append(r->out, at, (size_t)(end - at));
}

static void put_string(struct redactor *r, const char *text)
{
	put(r, text, text + strlen(text));
}

static void put_stars(struct redactor *r)
{
	*r->redacted = true;
	put_string(r, "***");
}

/* Hides a value, but for the quotes around it. */
static void put_hidden(struct redactor *r, struct span value)
{
	char first = value.at < value.end ? *value.at : '\0';
	char last = value.at < value.end ? value.end[-1] : '\0';

	if (redact_is_harmless_value(value)) {
		put(r, value.at, value.end);
		return;
	}
	if (first == '"' || first == '\'')
		put(r, &first, &first + 1);
	put_stars(r);
	if (last == '"' || last == '\'')
		put(r, &last, &last + 1);
}

/* ---- What stands anywhere in a text ------------------------------------------------------ */

static const char *after_run(const char *at, const char *end, const char *further)
{
	while (at < end && (isalnum((unsigned char)*at) || (*further && strchr(further, *at))))
		at++;
	return at;
}

static bool starts(const char *at, const char *end, const char *text)
{
	size_t size = strlen(text);

	return (size_t)(end - at) >= size && strncasecmp(at, text, size) == 0;
}

/* Each of these returns where it goes on, or NULL: not such a thing. */

static const char *hide_shape(struct redactor *r, const char *at, const char *end)
{
	for (size_t i = 0; i < array_size(shapes); i++) {
		size_t size = strlen(shapes[i].prefix);
		const char *after;

		if ((size_t)(end - at) < size || strncmp(at, shapes[i].prefix, size) != 0)
			continue;
		after = after_run(at + size, end, shapes[i].further);
		if ((size_t)(after - at) < size + shapes[i].min_bytes)
			continue;
		put(r, at, at + size);
		put_stars(r);
		return after;
	}
	return NULL;
}

/* scheme://user:SECRET@host, or a token in place of the user. */
static const char *hide_in_url(struct redactor *r, const char *at, const char *end)
{
	const char *user = at + 3, *host = NULL, *colon, *c;

	if (!starts(at, end, "://"))
		return NULL;
	for (c = user; c < end && !strchr("/?#\"' \t\n", *c); c++)
		if (*c == '@')
			host = c;
	if (!host)
		return NULL;
	colon = memchr(user, ':', (size_t)(host - user));
	if (!colon && host - user < URL_TOKEN_MIN_BYTES)
		return NULL;
	put(r, at, colon ? colon + 1 : user);
	put_hidden(r, (struct span){colon ? colon + 1 : user, host});
	return host;
}

/* NAME=SECRET, up to what separates it from the next. */
static const char *hide_pair(struct redactor *r, const char *at, const char *end)
{
	struct span name = redact_name_at(at, end), value;

	if (name.end == at || name.end >= end || *name.end != '=' || !redact_is_secret_name(name))
		return NULL;
	value.at = value.end = name.end + 1;
	if (value.at < end && *value.at == '=')
		return NULL; /* a comparison */
	while (value.end < end && !strchr("&;,\"' \t\n", *value.end))
		value.end++;
	put(r, at, value.at);
	put_hidden(r, value);
	return value.end;
}

/* "NAME": "SECRET", with or without backslashes before the quotes; or a number. */
static const char *hide_json(struct redactor *r, const char *at, const char *end)
{
	struct span name = redact_name_at(at, end), value;
	const char *c = name.end;

	while (c < end && *c == '\\')
		c++;
	if (name.end == at || c >= end || *c++ != '"' || !redact_is_secret_name(name))
		return NULL;
	while (c < end && strchr(" \t", *c))
		c++;
	if (c >= end || *c++ != ':')
		return NULL;
	while (c < end && strchr(" \t\\\"", *c))
		c++;
	for (value.at = value.end = c; value.end < end; value.end++)
		if (strchr("\\\",}\n", *value.end))
			break;
	put(r, at, value.at);
	put_hidden(r, value);
	return value.end;
}

static const char *hide_private_key(struct redactor *r, const char *at, const char *end)
{
	static const char begin[] = "-----BEGIN ", mark[] = "PRIVATE KEY-----";
	const char *found;

	if (!starts(at, end, begin))
		return NULL;
	found = end - at < PEM_LINE_MAX_BYTES ? end : at + PEM_LINE_MAX_BYTES;
	found = memmem(at, (size_t)(found - at), mark, strlen(mark));
	if (!found)
		return NULL;
	put(r, at, found + strlen(mark));
	put_stars(r);
	found = memmem(found, (size_t)(end - found), "-----END ", strlen("-----END "));
	return found ? found : end;
}

static const char *hide_in_word(struct redactor *r, const char *at, const char *end)
{
	const char *after = hide_shape(r, at, end);

	if (!after)
		after = hide_pair(r, at, end);
	return after ? after : hide_json(r, at, end);
}

static void put_text(struct redactor *r, const char *at, const char *end)
{
	const char *begin = at;

	while (at < end) {
		bool in_word = at > begin && (isalnum((unsigned char)at[-1]) || at[-1] == '_');
		const char *after = NULL, *plain = at;

		if (*at == ':')
			after = hide_in_url(r, at, end);
		else if (*at == '-')
			after = hide_private_key(r, at, end);
		else if (!in_word && redact_is_name_byte(*at))
			after = hide_in_word(r, at, end);
		if (after) {
			at = after;
			begin = at; /* a new word may begin here */
			continue;
		}
		/* The rest of a word holds nothing more. */
		at++;
		while (at < end && redact_is_name_byte(at[-1]) && isalnum((unsigned char)*at) &&
			(isalnum((unsigned char)at[-1]) || at[-1] == '_'))
			at++;
		put(r, plain, at);
	}
}

/* ---- Words --------------------------------------------------------------------------------- */

static void put_line(struct redactor *r, const char *at, const char *end);

static const char *skip_quotes(const char *at, const char *end)
{
	while (at < end && (*at == '"' || *at == '\''))
		at++;
	return at;
}

/* Authorization: Bearer SECRET */
static bool put_header(struct redactor *r, struct span word, bool is_header)
{
	static const char *const headers[] = {
		"authorization", "cookie", "proxy-authorization", "set-cookie"};
	const char *at = word.at, *value;
	struct span name;
	bool known = false;

	if (starts(at, word.end, "--header=") || starts(at, word.end, "-H")) {
		at += at[1] == '-' ? strlen("--header=") : 2;
		is_header = true;
	}
	at = skip_quotes(at, word.end);
	name = redact_name_at(at, word.end);
	if (name.end == at || name.end >= word.end || *name.end != ':')
		return false;
	for (size_t i = 0; i < array_size(headers); i++)
		known = known || ((size_t)(name.end - at) == strlen(headers[i]) &&
					 strncasecmp(at, headers[i], strlen(headers[i])) == 0);
	value = name.end + 1;
	if (!known && (!is_header || !redact_is_secret_name(name)))
		return false;
	while (value < word.end && *value == ' ')
		value++;
	if (starts(value, word.end, "bearer ") || starts(value, word.end, "basic ") ||
		starts(value, word.end, "token "))
		value = (const char *)memchr(value, ' ', (size_t)(word.end - value)) + 1;
	put(r, word.at, value);
	put_hidden(r, (struct span){value, word.end});
	return true;
}

/* docker build --secret id=NAME,src=FILE */
static bool is_description(const struct redactor *r, struct span value)
{
	static const char *const keys[] = {"id=", "type=", "src="};

	for (size_t i = 0; i < array_size(keys); i++)
		if ((size_t)(value.end - value.at) > strlen(keys[i]) &&
			strncmp(value.at, keys[i], strlen(keys[i])) == 0)
			return words_contain(
				"docker podman buildah nerdctl buildctl", ' ', r->program);
	return false;
}

static void put_option_value(struct redactor *r, struct span value)
{
	if (is_description(r, value))
		put(r, value.at, value.end);
	else
		put_hidden(r, value);
}

/* NAME=SECRET, --name=SECRET, -Dname=SECRET: all of the word. */
static bool put_assignment(struct redactor *r, struct span word)
{
	const char *at = skip_quotes(word.at, word.end);
	struct span name = redact_name_at(at, word.end);

	if (name.end >= word.end || *name.end != '=' || !redact_is_secret_name(name))
		return false;
	if (name.end + 1 < word.end && name.end[1] == '=')
		return false;
	put(r, word.at, name.end + 1);
	put_option_value(r, (struct span){name.end + 1, word.end});
	return true;
}

static void put_after(struct redactor *r, struct span word, char separator)
{
	const char *found = memchr(word.at, separator, (size_t)(word.end - word.at));

	if (!found) {
		put_text(r, word.at, word.end);
		return;
	}
	put(r, word.at, found + 1);
	put_hidden(r, (struct span){found + 1, word.end});
}

static void put_bearer(struct redactor *r, struct span word)
{
	const char *after = after_run(word.at, word.end, "-._~+/=");
	bool has_digit = false;

	for (const char *c = word.at; c < after; c++)
		has_digit = has_digit || isdigit((unsigned char)*c);
	if (after - word.at >= (has_digit ? BEARER_MIN_BYTES : BEARER_SURE_BYTES)) {
		put_stars(r);
		put(r, after, word.end);
	} else {
		put_text(r, word.at, word.end);
	}
}

static void put_value(struct redactor *r, struct span word, enum option_value value)
{
	switch (value) {
	case NO_VALUE:
		put_text(r, word.at, word.end);
		break;
	case SECRET:
		put_option_value(r, word);
		break;
	case BEARER:
		put_bearer(r, word);
		break;
	case HEADER:
		break; /* put_header() */
	default:
		put_after(r, word, (char)value);
	}
}

/* An option of the program at hand.  False: it is none of those that mean a secret. */
static bool put_program_option(struct redactor *r, struct span word)
{
	size_t size = (size_t)(word.end - word.at);

	for (size_t i = 0; i < array_size(program_options); i++) {
		const char *option = program_options[i].option,
			   *command = program_options[i].command;
		enum option_value value = program_options[i].value;
		size_t length = strlen(option);
		bool is_long = length > 2;

		if (size < length || strncmp(word.at, option, length) != 0 ||
			!(r->options >> i & 1) || (command && strcmp(command, r->command) != 0))
			continue;
		if (size == length) {
			put(r, word.at, word.end);
			r->next = program_options[i].attached_only ? NO_VALUE : value;
			return true;
		}
		if (is_long && word.at[length] != '=')
			continue;
		length += is_long;
		put(r, word.at, word.at + length);
		put_value(r, (struct span){word.at + length, word.end}, value);
		return true;
	}
	return false;
}

/* A known program may also follow another one (timeout 5 mysql -pSECRET), and an operand may have
 * the name of one (mysql -u docker -pSECRET): the options of all count. */
static void note_program(struct redactor *r, struct span word)
{
	const char *slash = memrchr(word.at, '/', (size_t)(word.end - word.at));
	const char *base = slash ? slash + 1 : word.at;
	char name[sizeof(r->program)];
	bool is_known = false;

	snprintf(name, sizeof(name), "%.*s", (int)(word.end - base), base);
	for (size_t i = 0; i < array_size(program_options); i++)
		if (words_contain(program_options[i].programs, ' ', name)) {
			r->options |= UINT64_C(1) << i;
			is_known = true;
		}
	if (r->at_program || is_known)
		strcpy(r->program, name);
}

/* What the word says of the next ones. */
static void note_word(struct redactor *r, struct span word)
{
	struct span name = word;
	size_t size = (size_t)(word.end - word.at);

	if (*word.at != '-' && !memchr(word.at, '=', size))
		note_program(r, word);
	if (r->at_program) {
		if (*word.at == '-' || memchr(word.at, '=', size))
			return;
		r->at_program = words_contain(prefixes, ' ', r->program);
		return;
	}
	if (size >= 6 && starts(word.end - 6, word.end, "bearer"))
		r->next = BEARER;
	if (*word.at != '-') {
		if (r->after_set && redact_is_secret_name(word))
			r->next = SECRET;
		r->after_set = size == 3 && memcmp(word.at, "set", 3) == 0;
		if (size == 5 && memcmp(word.at, "login", 5) == 0)
			strcpy(r->command, "login");
		return;
	}
	while (name.at < name.end && *name.at == '-')
		name.at++;
	if (starts(word.at, word.end, "-H") || starts(word.at, word.end, "--header")) {
		r->next = HEADER;
		return;
	}
	if (redact_name_at(name.at, name.end).end != name.end || !redact_is_secret_name(name))
		return;
	/* ffmpeg -pass 1 */
	if (name.end - name.at == 4 && name.at - word.at == 1)
		return;
	r->next = SECRET;
}

/* Words of their own; not JSON, nor a key. */
static bool is_line(struct span word, const char *inner)
{
	if (starts(inner, word.end, "{\"") || starts(inner, word.end, "{\\\"") ||
		starts(inner, word.end, "[") || starts(inner, word.end, "-----BEGIN "))
		return false;
	for (const char *c = word.at; c < word.end; c++)
		if (strchr(" \t\n", *c))
			return true;
	return false;
}

/* One word, with its quotes if it is of a line. */
static void put_word(struct redactor *r, struct span word)
{
	enum option_value value = r->next;
	const char *inner = skip_quotes(word.at, word.end);

	r->next = NO_VALUE;
	if (word.at == word.end)
		return;
	if (value != NO_VALUE && value != HEADER && *word.at != '-') {
		put_value(r, word, value);
		return;
	}
	if (put_header(r, word, value == HEADER) || put_assignment(r, word) ||
		put_program_option(r, word))
		return;
	if (r->depth < DEPTH_MAX && is_line(word, inner)) {
		struct redactor line = {.out = r->out,
			.redacted = r->redacted,
			.depth = r->depth + 1,
			.error = r->error};

		put(&line, word.at, inner);
		put_line(&line, inner, word.end);
		r->error = line.error;
	} else {
		put_text(r, word.at, word.end);
	}
	note_word(r, word);
}

/* ---- Lines --------------------------------------------------------------------------------- */

static void begin_command(struct redactor *r)
{
	r->at_program = true;
	r->program[0] = r->command[0] = '\0';
	r->options = 0;
	r->next = NO_VALUE;
	r->after_set = false;
}

static const char *end_of_word(const char *at, const char *end)
{
	char quote = '\0';

	for (; at < end; at++) {
		if (*at == '\\' && quote != '\'' && at + 1 < end)
			at++;
		else if (quote)
			quote = *at == quote ? '\0' : quote;
		else if (*at == '"' || *at == '\'')
			quote = *at;
		else if (strchr(" \t\n|&;()<>`", *at))
			break;
	}
	return at;
}

static void put_line(struct redactor *r, const char *at, const char *end)
{
	begin_command(r);
	while (at < end) {
		const char *after = end_of_word(at, end);

		if (after > at) {
			put_word(r, (struct span){at, after});
		} else {
			after = at + 1;
			put(r, at, after);
			if (strchr("\n|&;()`", *at))
				begin_command(r);
			else if (*at == '<' || *at == '>')
				r->next = NO_VALUE;
		}
		at = after;
	}
}

int redact_line(struct buffer *out, const char *line, bool *redacted)
{
	struct redactor r = {.out = out, .redacted = redacted};

	put_line(&r, line, line + strlen(line));
	return r.error;
}

int redact_words(struct buffer *out, const char *const *words, bool *redacted)
{
	struct redactor r = {.out = out, .redacted = redacted};

	begin_command(&r);
	for (; *words && r.error == 0; words++) {
		put_word(&r, (struct span){*words, *words + strlen(*words)});
		if (words[1])
			put_string(&r, " ");
	}
	return r.error;
}
