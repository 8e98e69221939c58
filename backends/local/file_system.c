#include "backends/local/file_system.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fs.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "ops/support/cleanup.h"

enum {
	NETWORK = FILE_SYSTEM_SHARED,
	BY_PROGRAM = FILE_SYSTEM_SHARED | FILE_SYSTEM_GENERATED_IF_EMPTY,
	BY_KERNEL = FILE_SYSTEM_SHARED | FILE_SYSTEM_GENERATED,
};

unsigned file_system_traits(int fd)
{
	static const struct {
		uint32_t type;
		unsigned traits;
	} types[] = {
		{0x6969, NETWORK},        /* nfs */
		{0x517b, NETWORK},        /* smbfs */
		{0xff534d42, NETWORK},    /* cifs */
		{0xfe534d42, NETWORK},    /* smb2 */
		{0x01021997, NETWORK},    /* 9p */
		{0x00c36400, NETWORK},    /* ceph */
		{0x0bd00bd0, NETWORK},    /* Lustre */
		{0x47504653, NETWORK},    /* GPFS */
		{0x19830326, NETWORK},    /* BeeGFS */
		{0xaad7aaea, NETWORK},    /* PanFS */
		{0x01161970, NETWORK},    /* gfs2 */
		{0x7461636f, NETWORK},    /* ocfs2 */
		{0x5346414f, NETWORK},    /* OpenAFS */
		{0x6b414653, NETWORK},    /* afs */
		{0x73757245, NETWORK},    /* coda */
		{0x786f4256, NETWORK},    /* vboxsf */
		{0xbacbacbc, NETWORK},    /* vmhgfs */
		{0x65735546, BY_PROGRAM}, /* fuse; sshfs, GlusterFS, virtiofs */
		{0x9fa0, BY_KERNEL},      /* proc */
		{0x62656572, BY_KERNEL},  /* sysfs */
		{0x0027e0eb, BY_KERNEL},  /* cgroup */
		{0x63677270, BY_KERNEL},  /* cgroup2 */
		{0x64626720, BY_KERNEL},  /* debugfs */
		{0x74726163, BY_KERNEL},  /* tracefs */
		{0x73636673, BY_KERNEL},  /* securityfs */
		{0x62656570, BY_KERNEL},  /* configfs */
		{0x65735543, BY_KERNEL},  /* fusectl */
		{0x42494e4d, BY_KERNEL},  /* binfmt_misc */
		{0x07655821, BY_KERNEL},  /* resctrl */
		{0xf97cff8c, BY_KERNEL},  /* selinux */
		{0x43415d53, BY_KERNEL},  /* smack */
		{0xcafe4a11, BY_KERNEL},  /* bpf */
	};
	struct statfs found;

	if (fstatfs(fd, &found) < 0)
		return 0;
	for (size_t i = 0; i < array_size(types); i++)
		if ((uint32_t)found.f_type == types[i].type)
			return types[i].traits;
	return 0;
}

/* ---- Upper and lower case -------------------------------------------------------------------- */

static bool always_ignores_case(int fd)
{
	static const uint32_t types[] = {
		0x4d44,     /* msdos, vfat */
		0x2011bab0, /* exfat */
		0x4244,     /* hfs */
	};
	struct statfs found;

	for (size_t i = 0; fstatfs(fd, &found) == 0 && i < array_size(types); i++)
		if ((uint32_t)found.f_type == types[i])
			return true;
	return false;
}

static bool is_letter(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* Writes the name with its first letter in the other case.  False: there is no letter. */
static bool flip_case(const char *name, char ret_flipped[NAME_MAX + 1])
{
	size_t at = 0;

	while (name[at] && !is_letter(name[at]))
		at++;
	if (!name[at] || strlen(name) > NAME_MAX)
		return false;
	strcpy(ret_flipped, name);
	ret_flipped[at] ^= 'a' ^ 'A';
	return true;
}

static bool is_listed(DIR *directory, const char *name)
{
	const struct dirent *entry;

	rewinddir(directory);
	while ((entry = readdir(directory)))
		if (strcmp(entry->d_name, name) == 0)
			return true;
	return false;
}

/* The name can be looked up in the other case, in which it is not listed. */
static bool finds_flipped(DIR *directory)
{
	char flipped[NAME_MAX + 1] = "";
	const struct dirent *entry;
	struct stat ignored;

	while ((entry = readdir(directory)) && !flip_case(entry->d_name, flipped)) {}
	return entry &&
	       fstatat(dirfd(directory), flipped, &ignored,
		       AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT) == 0 &&
	       !is_listed(directory, flipped);
}

bool file_system_ignores_case(int directory_fd)
{
	int fd = openat(directory_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *directory = fd < 0 ? NULL : fdopendir(fd);
	bool ignores_case;
	int flags = 0;

	if (!directory) {
		if (fd >= 0)
			close(fd);
		return always_ignores_case(directory_fd);
	}
	ignores_case = always_ignores_case(fd) ||
		       (ioctl(fd, FS_IOC_GETFLAGS, &flags) == 0 && (flags & FS_CASEFOLD_FL)) ||
		       finds_flipped(directory);
	closedir(directory);
	return ignores_case;
}
