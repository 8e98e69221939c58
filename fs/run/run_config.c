#include "fs/run/run_config.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ops/support/buffer.h"
#include "ops/support/cleanup.h"
#include "ops/support/files.h"
#include "ops/support/json.h"

enum { CONFIG_MAX_BYTES = 1 << 20 };

/* Before the path, which ends the file.  In two parts, as the program has it too. */
static const char mark[] = "\nisthmus run ";
static const char mark_end[] = "directory: ";

int run_config_save(const cJSON *json, const char *directory)
{
	cleanup_free char *path = string_printf("%s/config.json", directory);
	cleanup_free char *text = cJSON_PrintUnformatted(json);
	cleanup_fd int fd = -1;

	if (!path || !text)
		return -ENOMEM;
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	return fd < 0 ? -errno : write_all(fd, text, strlen(text));
}

int run_config_install(const char *program, const char *path, const char *directory)
{
	cleanup_free char *end = string_printf("%s%s%s", mark, mark_end, directory);
	cleanup_fd int from = open(program, O_RDONLY | O_CLOEXEC);
	cleanup_fd int to = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0700);
	ssize_t sent;

	if (!end)
		return -ENOMEM;
	if (from < 0 || to < 0)
		return -errno;
	do
		sent = sendfile(to, from, NULL, 1 << 24);
	while (sent > 0);
	return sent < 0 ? -errno : write_all(to, end, strlen(end));
}

static int read_end(const char *path, size_t size, char **ret_text)
{
	cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
	cleanup_free char *text = malloc(size + 1);
	struct stat status;
	ssize_t got;

	if (!text)
		return -ENOMEM;
	if (fd < 0 || fstat(fd, &status) < 0)
		return -errno;
	got = pread(
		fd, text, size, status.st_size > (off_t)size ? status.st_size - (off_t)size : 0);
	if (got < 0)
		return -errno;
	text[got] = '\0';
	/* Strings end where the program's other bytes may have a NUL: the path has none. */
	for (ssize_t i = 0; i < got; i++)
		if (!text[i])
			text[i] = '\n';
	*ret_text = steal_ptr(&text);
	return 0;
}

static int find_directory(char **ret_directory)
{
	cleanup_free char *text = NULL, *whole = string_printf("%s%s", mark, mark_end);
	const char *found;
	int r = whole ? read_end("/proc/self/exe", PATH_MAX + 64, &text) : -ENOMEM;

	if (r < 0)
		return r;
	found = strstr(text, whole);
	if (!found)
		return -ENOENT;
	*ret_directory = strdup(found + strlen(whole));
	return *ret_directory ? 0 : -ENOMEM;
}

static bool is_complete(const struct run_config *config)
{
	return config->control_path && config->mount_point && config->root && config->real_bash &&
	       config->real_sh && config->far_shell && config->proof;
}

int run_config_load(struct run_config *ret_config)
{
	cleanup_free char *directory = NULL, *path = NULL, *text = NULL;
	int r = find_directory(&directory);

	if (r < 0)
		return r;
	path = string_printf("%s/config.json", directory);
	r = path ? read_end(path, CONFIG_MAX_BYTES, &text) : -ENOMEM;
	if (r < 0)
		return r;
	*ret_config = (struct run_config){.json = cJSON_Parse(text)};
	ret_config->agent = (enum agent_kind)json_integer(ret_config->json, "agent");
	ret_config->control_path = json_text(ret_config->json, "control_path");
	ret_config->mount_point = json_text(ret_config->json, "mount_point");
	ret_config->root = json_text(ret_config->json, "root");
	ret_config->real_bash = json_text(ret_config->json, "real_bash");
	ret_config->real_sh = json_text(ret_config->json, "real_sh");
	ret_config->far_shell = json_text(ret_config->json, "far_shell");
	ret_config->proof = json_text(ret_config->json, "proof");
	ret_config->environment = cJSON_GetObjectItemCaseSensitive(ret_config->json, "environment");
	if (is_complete(ret_config))
		return 0;
	run_config_done(ret_config);
	return -EINVAL;
}

void run_config_done(struct run_config *config)
{
	cJSON_Delete(config->json);
	*config = (struct run_config){0};
}
